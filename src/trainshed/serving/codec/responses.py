"""An answer, and what is answered when there are no predictions. Needs no NumPy: hosts of containers have none."""

from __future__ import annotations

import sys

from ..errors import ModelRunError, ServingError
from .json_documents import error_body

_LOGGED = 1 << 18  #: characters of an error in the log

Answer = tuple[int, bytes]  #: HTTP status and body

QUEUE_FULL: Answer = (
    429,
    error_body(429, "This version has as many requests waiting as it can take. Send this one again a little later."),
)


def error_answer(error: BaseException) -> Answer:
    """What is answered instead of predictions."""
    known = error if isinstance(error, ServingError) else ModelRunError(f"{type(error).__name__}: {error}")
    if known.is_cut:
        sys.stderr.write(f"{known.message}: {known.detail[:_LOGGED]}\n")
    return known.status, error_body(known.status, f"Prediction failed: {known}")
