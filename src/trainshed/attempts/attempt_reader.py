"""Reads the current attempts of jobs, by job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainshed.attempts.batch_progress import BatchProgress, read_batch_progress
from trainshed.attempts.journal import HangRecord, RestartRecord, read_record
from trainshed.domain.jobs.batch_prediction import BatchPrediction
from trainshed.domain.jobs.job import Job


@dataclass(frozen=True, slots=True)
class AttemptFolders:
    """The folders of attempts below `root`, one for each job and attempt. Read-only. Thread-safe."""

    root: Path

    def restarts(self, job: Job) -> Sequence[RestartRecord]:
        """The restarts of the current attempt, oldest first."""
        return read_record(self._folder(job)).restarts

    def hangs(self, job: Job) -> Sequence[HangRecord]:
        """The hangs of the current attempt, oldest first."""
        return read_record(self._folder(job)).hangs

    def batch_progress(self, job: Job) -> BatchProgress | None:
        """The progress of a batch prediction. Returns None for another workload, and before it has any."""
        return read_batch_progress(self._folder(job)) if isinstance(job.workload, BatchPrediction) else None

    def _folder(self, job: Job) -> Path:
        return self.root / job.project / job.id / str(job.attempt)
