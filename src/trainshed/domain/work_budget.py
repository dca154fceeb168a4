"""How much one piece of slow work may read, how long it may take, and whether anyone still waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from trainshed.errors import DeadlineExceededError, RequestCancelledError


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLimits:
    """The limits of one kind of work."""

    max_bytes: int
    max_seconds: float


class WorkBudget:
    """What one piece of work may still use. One thread works with it; any thread may cancel it."""

    def __init__(self, limits: WorkLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._bytes = limits.max_bytes
        self._cancelled = threading.Event()
        self._deadline = clock() + limits.max_seconds

    def begin(self) -> None:
        """Start the clock anew: the work has waited for its thread until now."""
        self._deadline = self._clock() + self._limits.max_seconds

    def cancel(self) -> None:
        """Stop the work at its next check."""
        self._cancelled.set()

    def spend(self, size: int) -> None:
        """Count bytes that were read. Raises `RequestCancelledError` if nobody waits for the work any more."""
        self._bytes -= size
        if self._cancelled.is_set():
            raise RequestCancelledError("The client has disconnected, so the work for it was stopped.")

    @property
    def exhausted(self) -> bool:
        """Whether no more may be read."""
        return self._bytes <= 0 or self.overdue

    @property
    def overdue(self) -> bool:
        """Whether the time is over."""
        return self._clock() >= self._deadline

    def check(self, size: int) -> None:
        """Like `spend`, for work that is of no use in part. Raises `DeadlineExceededError` if the time is over."""
        self.spend(size)
        if self.overdue:
            raise DeadlineExceededError(
                f"This took longer than the {self._limits.max_seconds:g} seconds that a request may work here."
            )


def unlimited() -> WorkBudget:
    """The budget of work that no client waits for."""
    return WorkBudget(WorkLimits(max_bytes=1 << 62, max_seconds=float("inf")))
