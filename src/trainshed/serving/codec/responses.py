"""Responses and error responses. Without NumPy, because container hosts do not have it."""

from __future__ import annotations

import sys

from ..errors import ModelRunError, ServingError
from .json_documents import error_body

_MAX_LOGGED_CHARACTERS = 1 << 18  #: of an error

Answer = tuple[int, bytes]  #: HTTP status and body

QUEUE_FULL: Answer = (
    429,
    error_body(429, "This version has as many requests waiting as it can take. Send this one again a little later."),
)


def error_answer(error: BaseException) -> Answer:
    """The response for an error."""
    serving_error = error if isinstance(error, ServingError) else ModelRunError(f"{type(error).__name__}: {error}")
    if serving_error.is_cut:
        sys.stderr.write(f"{serving_error.message}: {serving_error.detail[:_MAX_LOGGED_CHARACTERS]}\n")
    return serving_error.status, error_body(serving_error.status, f"Prediction failed: {serving_error}")
