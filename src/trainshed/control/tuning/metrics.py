"""The metrics of trials while they run, and what they reported in all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from trainshed.attempts.event_files import EventFolder, launch_time_us
from trainshed.attempts.trial_metrics import TrialMetrics
from trainshed.domain.jobs.gang import gang
from trainshed.domain.jobs.job import Job
from trainshed.domain.tuning.trial import TrialOutcome
from trainshed.node.process.metric_reports import HYPERTUNE_FOLDER

READ_INTERVAL_S = 0.5  #: between two reads of a trial that runs; hypertune keeps 100 reports
MAX_FINAL_READS = 64  #: of a trial that has ended, 2 MiB each

AttemptKey = tuple[str, str, int]


class TrialReader:
    """Reads the metrics of trials. One thread updates; `current` is thread-safe.

    `event_folders` returns the folders of a job's event files. `jobs` is the folder of all attempts.
    """

    def __init__(
        self,
        jobs: Path,
        event_folders: Callable[[Job], Iterable[EventFolder]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = jobs
        self._event_folders = event_folders
        self._monotonic = monotonic
        self._metrics: dict[AttemptKey, TrialMetrics] = {}
        self._read_at: dict[AttemptKey, float] = {}
        self._lock = threading.Lock()
        self._current: dict[AttemptKey, TrialOutcome] = {}  # guarded by the lock

    def current(self, job: Job) -> TrialOutcome | None:
        """Return what a trial that runs has reported. Returns None if it was not read yet."""
        with self._lock:
            return self._current.get(_key(job))

    def update(self, job: Job, tag: str) -> TrialOutcome:
        """Read what a trial that runs has written since, at most every READ_INTERVAL_S."""
        key, now = _key(job), self._monotonic()
        known = self.current(job)
        if known is not None and now - self._read_at.get(key, 0.0) < READ_INTERVAL_S:
            return known
        self._read_at[key] = now
        metrics = self._read(job, tag)
        outcome = metrics.outcome()
        with self._lock:
            self._current[key] = outcome
        return outcome

    def final(self, job: Job, tag: str) -> TrialOutcome:
        """Return all that a trial that has ended reported."""
        if not job.attempt:
            return TrialOutcome()
        for _ in range(MAX_FINAL_READS):
            metrics = self._read(job, tag)
            if metrics.complete:
                break
        return metrics.outcome()

    def forget(self, live: Collection[Job]) -> None:
        """Drop the state of all attempts but these."""
        keys = {_key(job) for job in live}
        self._metrics = {key: value for key, value in self._metrics.items() if key in keys}
        self._read_at = {key: value for key, value in self._read_at.items() if key in keys}
        with self._lock:
            self._current = {key: value for key, value in self._current.items() if key in keys}

    def _read(self, job: Job, tag: str) -> TrialMetrics:
        attempt = EventFolder(self._jobs, (job.project, job.id, str(job.attempt)))
        if (metrics := self._metrics.get(_key(job))) is None:
            since_us = launch_time_us(self._jobs.joinpath(*attempt.parts), otherwise_us=job.created_us)
            metrics = self._metrics[_key(job)] = TrialMetrics(tag, since_us=since_us)
        work = (*attempt.parts, "work", HYPERTUNE_FOLDER)
        reports = (EventFolder(self._jobs, (*work, replica.name)) for replica in gang(job.workload))
        metrics.update(self._event_folders(job), attempt, reports)
        return metrics


def _key(job: Job) -> AttemptKey:
    return job.project, job.id, job.attempt
