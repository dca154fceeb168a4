"""Errors between a request and its response, with the messages and codes of AI Platform's prediction library."""

from __future__ import annotations

MAX_DETAIL_CHARACTERS = 4096  #: of a detail in a response; a model may raise with a whole batch in its message


def _truncate(detail: str) -> str:
    if len(detail) <= MAX_DETAIL_CHARACTERS:
        return detail
    return (
        f"{detail[:MAX_DETAIL_CHARACTERS]} ... (cut after {MAX_DETAIL_CHARACTERS:,} of {len(detail):,} characters; the "
        f"version's log has the rest)"
    )


class ServingError(Exception):
    """`Message: detail (Error code: N)`. Subclasses set the message, the code and the HTTP status.

    ServingError
    ├── LoaderError         the model cannot be loaded (by this loader)
    ├── InvalidInputsError  the caller's fault
    ├── ModelRunError       the model failed on inputs that match its signature
    ├── BadOutputsError     the model returned outputs that cannot be sent
    └── UserCodeError       a custom prediction class raised
    """

    code = 2
    message = "Failed to run the provided model"
    status = 500

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"{self.message}: {_truncate(detail)} (Error code: {self.code})")

    @property
    def is_cut(self) -> bool:
        """Whether the message has only the beginning of the detail."""
        return len(self.detail) > MAX_DETAIL_CHARACTERS


class LoaderError(ServingError):
    code = 0
    message = "Failed to load model"


class InvalidInputsError(ServingError):
    code = 1
    message = "Invalid inputs"
    status = 400


class ModelRunError(ServingError):
    pass


class BadOutputsError(ServingError):
    code = 3
    message = "There was a problem processing the outputs"


class UserCodeError(ServingError):
    code = 4
    message = "There was a problem processing the user code"
