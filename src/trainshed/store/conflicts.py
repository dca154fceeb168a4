"""Optimistic concurrency: retry on write conflicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trainshed.errors import WriteConflictError

T = TypeVar("T")

MAX_ATTEMPTS = 20


def retry_on_conflict(operation: Callable[[], T]) -> T:
    """Run a read-modify-write and retry it on a write conflict, up to MAX_ATTEMPTS times.

    Raises `WriteConflictError` if every attempt conflicts. Everything that `operation` does before its write must be
    safe to repeat.
    """
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return operation()
        except WriteConflictError:
            continue
    return operation()
