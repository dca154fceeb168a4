"""One walk along an engine's queue: which gangs wait, which are passed over, and which nothing may overtake."""

from __future__ import annotations

from trainshed.domain.jobs.queue_order import QueuedJob
from trainshed.engines import base
from trainshed.store.queue_index import JobKey

MAX_WAITING_GANGS = 8  #: while those behind them are tried; more where only the number of replicas counts


class QueueWalk:
    """What one pass over an engine's queue has found so far."""

    def __init__(self, *, uniform_slots: bool) -> None:
        self.ahead: list[base.GangRequest] = []  #: overdue gangs, which nothing may overtake
        self.passed_over: list[JobKey] = []  #: jobs that others started before, for the first time
        self._uniform_slots = uniform_slots
        self._waiting: list[JobKey] = []  # jobs that are to be recorded if one behind them starts
        self._smallest = 0  # gang that does not fit; 0: all did
        self._count = 0

    @property
    def is_over(self) -> bool:
        return self._count >= MAX_WAITING_GANGS and not self._uniform_slots

    def cannot_fit(self, queued: QueuedJob) -> bool:
        """Whether an earlier gang that does not fit is no larger than this one. Such a job waits too."""
        if not (self._uniform_slots and self._smallest and queued.replicas >= self._smallest):
            return False
        self._note_waiting(queued)
        return True

    def wait(self, queued: QueuedJob, gang: base.GangRequest, *, overdue: bool) -> None:
        """Note a gang that does not fit now."""
        self._count += 1
        self._smallest = min(self._smallest or len(gang.machines), len(gang.machines))
        if overdue:
            self.ahead.append(gang)
        else:
            self._note_waiting(queued)

    def note_start(self) -> None:
        """Note that a job behind the waiting ones was admitted."""
        self.passed_over += self._waiting
        self._waiting = []

    def _note_waiting(self, queued: QueuedJob) -> None:
        if queued.passed_over_us is None:
            self._waiting.append(queued.key)
