"""What is known of a job beyond its row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainshed.attempts.journal import HangRecord
from trainshed.domain.jobs.job import HangKind, Job, JobEvent, JobEventKind
from trainshed.services.jobs.failures import Failures
from trainshed.services.ports import AttemptReader, ProgressReader


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReports:
    """The sources of a job's restarts, hangs, progress and failure. Read-only. Thread-safe."""

    attempts: AttemptReader
    progress: ProgressReader
    failures: Failures

    def restarts(self, job: Job) -> Sequence[str]:
        """Return one sentence per restart of the current attempt, oldest first, without full stops."""
        return [restart.sentence for restart in self.attempts.restarts(job)]

    def hangs(self, job: Job) -> Sequence[HangRecord]:
        """Return the hangs of the current attempt, oldest first. Those of a job that ended have ended too."""
        hangs = self.attempts.hangs(job)
        return [each if each.ended_us else replace(each, ended_us=job.ended_us) for each in hangs]

    def hang_events(self, job: Job) -> Iterator[JobEvent]:
        """Yield the events that tell of hangs. They are not stored: the journal of the attempt has them."""
        for hang in self.hangs(job):
            yield JobEvent(
                kind=JobEventKind.HUNG,
                message=hang.sentence,
                time_us=hang.time_us,
                severity="WARNING",
                subject=hang.name,
            )
            if hang.ended_us is not None:
                message = f"{hang.name} does not hang any more."
                yield JobEvent(kind=JobEventKind.HANG_ENDED, message=message, time_us=hang.ended_us, subject=hang.name)


def hang_remedy(hang: HangRecord) -> str:
    """Return what a person can do about a hang."""
    if hang.kind is HangKind.STOPPED:
        continued = f"Continue it with `kill -CONT {hang.pid}`" if hang.pid else "Continue it on its node with SIGCONT"
        return f"{continued}, or cancel the job."
    return (
        "The stack on the job's page shows where it waits. Kill the replica on that page, so that it restarts, or "
        "cancel the job. With the setting hang_restart, replicas that hang restart by themselves."
    )
