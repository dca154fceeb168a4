"""Attempts without folders: a test sets what is read of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainshed.attempts.batch_progress import BatchProgress
from trainshed.attempts.journal import HangRecord, RestartRecord
from trainshed.domain.jobs.job import Job
from trainshed.engines.base import AttemptSpec


class FakeAttempts:
    """An `AttemptReader` and `ProgressReader` that says the same of every job. `reads` counts reads of progress."""

    def __init__(self) -> None:
        self.restarted: list[RestartRecord] = []
        self.hung: list[HangRecord] = []
        self.predicted: BatchProgress | None = None
        self.progress: Mapping[str, Any] | None = None
        self.reads = 0

    def restarts(self, job: Job) -> Sequence[RestartRecord]:
        return self.restarted

    def hangs(self, job: Job) -> Sequence[HangRecord]:
        return self.hung

    def batch_progress(self, job: Job) -> BatchProgress | None:
        return self.predicted

    def of(self, job: Job) -> Mapping[str, Any] | None:
        self.reads += 1
        return self.progress


def attempt_folder(job: Job) -> Path:
    """Return the path of an attempt that writes nothing."""
    return Path("/attempts") / job.project / job.id / str(job.attempt)


def attempt_spec(job: Job) -> AttemptSpec:
    """Return a spec that `FakeEngine` can launch."""
    return AttemptSpec(
        project=job.project,
        job=job.id,
        attempt=job.attempt,
        folder=attempt_folder(job),
        python=Path("/python"),
        module="m",
        args=(),
        packages=(),
        site=Path("/site"),
        replicas=(),
        env={},
        grace_s=1,
        max_running_s=1,
        log_limit_bytes=1,
    )
