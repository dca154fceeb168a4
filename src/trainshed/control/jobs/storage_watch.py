"""Ends the jobs of projects whose buckets have more bytes than their limit. Programs write there as files."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from trainshed.background import BackgroundLoop, PassFailures
from trainshed.domain.access.quotas import AppliedLimit, exceeded_words
from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.reconcile import cancelled
from trainshed.domain.jobs.states import JobState
from trainshed.domain.times import now_us
from trainshed.node.crashpoints import crashpoint
from trainshed.store.database import retry_on_conflict
from trainshed.store.jobs import JobStore

LOG = logging.getLogger("trainshed.control.jobs.storage_watch")

INTERVAL_S = 10.0  #: between two passes
MAX_SHARE = 0.05  #: of the time, in which it scans
_RUNS = (JobState.PREPARING, JobState.RUNNING)


class StoredBytes(Protocol):
    """Counts the bytes in the buckets of projects."""

    def limit(self, project: str) -> AppliedLimit | None:
        """Return the limit of a project, if it has one."""

    def rescan(self, project: str) -> int:
        """Scan the buckets of a project. Returns the bytes in use."""


class StorageWatch:
    """Scans projects that have a limit while jobs of theirs run. One thread owns the loop; `stop` and `join` end it.

    `check` raises if this server may not act any more. `wake` is called when jobs are to be ended.
    """

    def __init__(
        self,
        jobs: JobStore,
        stored: StoredBytes,
        *,
        wake: Callable[[], None],
        check: Callable[[], None] = lambda: None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._jobs = jobs
        self._stored = stored
        self._wake = wake
        self._check = check
        self._clock = clock
        self._loop = BackgroundLoop("storage-watch", self.step)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    def join(self) -> None:
        """Blocks until the loop ends. Call it after `stop`."""
        self._loop.join()

    def step(self) -> float:
        """Scan each project with running jobs and a limit, and end its jobs if it is beyond.

        Returns the seconds until the next pass. A project that can't be scanned is logged, and the next pass tries
        it again.
        """
        self._check()
        started = time.monotonic()
        failures = PassFailures(LOG, "storage_watch.scan_failed")
        running = [job for job in self._jobs.active() if job.state in _RUNS]
        for project in sorted({job.project for job in running}):
            if self._loop.stopping.is_set():
                break
            try:
                self._look(project, [job for job in running if job.project == project])
            except Exception as exc:  # noqa: BLE001 - logged with the project's name; others go on
                failures.add(project, exc)
        return max(INTERVAL_S, (time.monotonic() - started) / MAX_SHARE)

    def _look(self, project: str, running: list[Job]) -> None:
        limit = self._stored.limit(project)
        if limit is None:
            return
        used = self._stored.rescan(project)
        if used <= limit.value:
            return
        message = f"The job was ended: {exceeded_words(limit, used)}"
        failure = Failure(cause=FailureCause.BUCKET_LIMIT, message=message, facts={"used": used, "limit": limit.value})
        for job in running:
            retry_on_conflict(lambda job=job: self._end(job, failure))  # type: ignore[misc]
        LOG.info("storage_watch.ended project=%s jobs=%d used=%d limit=%d", project, len(running), used, limit.value)
        self._wake()

    def _end(self, job: Job, failure: Failure) -> None:
        """End a job. One that has ended or is being cancelled meanwhile stays as it is."""
        current = self._jobs.get(job.project, job.id)
        if current.state in _RUNS and (changed := cancelled(current, failure, now_us=self._clock())) is not None:
            crashpoint("job.storage_limit.before_write")
            self._jobs.record(*changed)
