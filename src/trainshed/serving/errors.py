"""What can go wrong between a request and its answer, in the words and numbers of AI Platform's prediction library."""

from __future__ import annotations

MOST = 4096  #: characters of a detail that are passed on: a model may raise with a whole batch in its words


def _cut(detail: str) -> str:
    if len(detail) <= MOST:
        return detail
    return f"{detail[:MOST]} ... (cut after {MOST:,} of {len(detail):,} characters; the version's log has the rest)"


class ServingError(Exception):
    """`Message: detail (Error code: N)`. The subclass says the message, the number and the HTTP status.

    ServingError
    ├── LoaderError     the model can't be loaded (by this loader)
    ├── InvalidInputs   the caller's fault
    ├── RunFailed       the model failed on inputs that fit its signature
    ├── BadOutputs      the model answered what can't be given back
    └── UserCodeFailed  a custom prediction class raised
    """

    code = 2
    message = "Failed to run the provided model"
    status = 500

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"{self.message}: {_cut(detail)} (Error code: {self.code})")

    @property
    def is_cut(self) -> bool:
        """Whether there is more to say than what is shown."""
        return len(self.detail) > MOST


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
