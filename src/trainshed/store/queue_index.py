"""The queued jobs of each engine, in memory: what the order of the queue is computed from, without a read of rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.queue_order import QueuedJob
from trainshed.domain.jobs.states import JobState
from trainshed.store.database import Database, load_queries

_QUEUED_KEYS = load_queries("jobs")["queued_keys"]

JobKey = tuple[str, str]  #: project and id


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """The queued jobs of one engine at one moment. Two with the same version have the same jobs."""

    version: int
    jobs: tuple[QueuedJob, ...]


class QueueIndex:
    """The queued jobs of each engine. Thread-safe.

    One server owns the database, and every write of a job goes through `change`. The rows are read at the first use,
    after a write whose outcome is unknown, and after another server may have written.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._state = threading.Condition()  # guards all below
        self._jobs: dict[str, dict[JobKey, QueuedJob]] = {}  # by engine
        self._version = 0  # of all engines together
        self._versions: dict[str, int] = {}  # by engine, of its last change
        self._loaded_under: int | None = None  # the number of the fence; None while the jobs are not to be trusted
        self._loading = False  # new writes wait
        self._writes = 0  # transactions in progress

    @contextmanager
    def change(self) -> Iterator[Callable[[Job], None]]:
        """Surround a transaction that writes jobs. Gives the function that the transaction calls last, with each job.

        The transaction still holds the lock of the row then. So changes of one job come in the order of their commits.
        """
        changed = False

        def put(job: Job) -> None:
            nonlocal changed
            changed = True
            with self._state:
                self._put(job)

        with self._state:
            self._state.wait_for(lambda: not self._loading)
            self._writes += 1
        try:
            yield put
        except BaseException:
            if changed:  # a failed commit may or may not have written
                with self._state:
                    self._loaded_under = None
            raise
        finally:
            with self._state:
                self._writes -= 1
                self._state.notify_all()

    def snapshot(self, engine: str) -> QueueSnapshot:
        """The queued jobs of an engine, in no particular order."""
        with self._state:
            self._ensure_loaded()
            return QueueSnapshot(self._versions.get(engine, 0), tuple(self._jobs.get(engine, {}).values()))

    def version(self, engine: str) -> int:
        """The version that `snapshot` would have now."""
        with self._state:
            self._ensure_loaded()
            return self._versions.get(engine, 0)

    def mark_passed_over(self, engine: str, passed_over: Mapping[JobKey, int]) -> None:
        """Enter the time at which queued jobs were first passed over, after it was written."""
        with self._state:
            jobs = self._jobs.get(engine, {})
            for key, time_us in passed_over.items():
                if (job := jobs.get(key)) is not None and job.passed_over_us is None:
                    jobs[key] = replace(job, passed_over_us=time_us)
                    self._touch(engine)

    def _ensure_loaded(self) -> None:
        while self._loaded_under != self._database.fence_number:
            self._load()

    def _touch(self, engine: str) -> None:
        self._version += 1
        self._versions[engine] = self._version

    def _put(self, job: Job) -> None:
        jobs, key = self._jobs.setdefault(job.engine, {}), (job.project, job.id)
        if job.state is JobState.QUEUED and job.replicas:  # a tuning job has none, and waits for nothing itself
            queued, known = _queued(job), jobs.get(key)
            if known is not None and queued.passed_over_us is None:  # it may have been read before it was passed over
                queued = replace(queued, passed_over_us=known.passed_over_us)
            if known != queued:
                jobs[key] = queued
                self._touch(job.engine)
        elif jobs.pop(key, None) is not None:
            self._touch(job.engine)

    def _load(self) -> None:
        """Read the rows while no write is in progress, or wait until another thread has done so."""
        if self._loading:
            self._state.wait_for(lambda: not self._loading)
            return
        self._loading = True
        try:
            self._state.wait_for(lambda: self._writes == 0)
            number = self._database.fence_number
            jobs: dict[str, dict[JobKey, QueuedJob]] = {}
            with self._database.read() as tx:
                for row in tx.rows(_QUEUED_KEYS):
                    queued = QueuedJob(
                        project=row["project"],
                        id=row["id"],
                        user=row["user_name"],
                        priority=row["priority"],
                        replicas=row["replicas"],
                        order_us=row["order_us"],
                        passed_over_us=row["passed_over_us"],
                    )
                    jobs.setdefault(row["engine"], {})[queued.key] = queued
            for engine in {*self._jobs, *jobs}:
                self._touch(engine)
            self._jobs = jobs
            self._loaded_under = number
        finally:
            self._loading = False
            self._state.notify_all()


def _queued(job: Job) -> QueuedJob:
    return QueuedJob(
        project=job.project,
        id=job.id,
        user=job.user,
        priority=job.priority,
        replicas=job.replicas,
        order_us=job.order_us or job.created_us,
        passed_over_us=job.passed_over_us,
    )
