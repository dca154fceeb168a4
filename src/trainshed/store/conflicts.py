"""Writing over what was read, while others may do the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trainshed.errors import WriteConflictError

T = TypeVar("T")

MAX_ATTEMPTS = 20


def retry_on_conflict(once: Callable[[], T]) -> T:
    """What `once` gives, which reads, decides and writes: from the start again if someone else wrote in between.

    `WriteConflictError` if others are always faster. All that `once` does before it writes must bear being done again.
    """
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return once()
        except WriteConflictError:
            continue
    return once()
