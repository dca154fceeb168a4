"""What is known of a job beyond its row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainshed.domain.jobs.job import Job
from trainshed.services.jobs.failures import Failures
from trainshed.services.ports import AttemptReader, ProgressReader


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReports:
    """The sources of a job's restarts, progress and failure. Read-only. Thread-safe."""

    attempts: AttemptReader
    progress: ProgressReader
    failures: Failures

    def restarts(self, job: Job) -> Sequence[str]:
        """Return one sentence per restart of the current attempt, oldest first, without full stops."""
        return [restart.sentence for restart in self.attempts.restarts(job)]
