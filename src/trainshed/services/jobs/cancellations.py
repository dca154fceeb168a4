"""Jobs that the server cancels for a reason of its own, such as a user who was disabled."""

from __future__ import annotations

from collections.abc import Callable

from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.reconcile import cancelled
from trainshed.domain.times import now_us
from trainshed.services.jobs.tuning import TuningJobs
from trainshed.services.ports import Scheduler
from trainshed.store.database import retry_on_conflict
from trainshed.store.jobs import JobStore
from trainshed.store.queue_index import JobKey


class Cancellations:
    """Cancels jobs with a reason. Thread-safe."""

    def __init__(
        self, store: JobStore, scheduler: Scheduler, tuning: TuningJobs, *, clock: Callable[[], int] = now_us
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._tuning = tuning
        self._clock = clock

    def of_user(self, user: str, by: str) -> int:
        """Cancel all jobs of a user, in all projects, because the user was disabled. Idempotent.

        Trials are cancelled by their tuning job. Returns how many jobs there are to cancel.
        """
        failure = Failure(cause=FailureCause.CANCELLED, facts={"by": by, "disabled_user": user})
        keys = self._store.live_of_user(user)
        for key in keys:
            self.cancel(key, failure)
        return len(keys)

    def cancel(self, key: JobKey, failure: Failure) -> None:
        """Cancel one job. One that has ended meanwhile stays as it ended."""

        def attempt() -> None:
            job = self._store.get(*key)
            if not job.ended and (changed := cancelled(job, failure, now_us=self._clock())) is not None:
                self._store.record(*changed)

        retry_on_conflict(attempt)
        self._scheduler.wake()
        self._tuning.wake()
