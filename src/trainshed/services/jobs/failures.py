"""Why a job failed: the cause, the remedy and the relevant log entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainshed.attempts.log_file import LogRecord
from trainshed.config import Home
from trainshed.domain.filters.terms import SEVERITIES
from trainshed.domain.jobs.failure import FailureCause
from trainshed.domain.jobs.failure_text import Diagnosis, diagnose
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.logs import SERVICE, LogEntry
from trainshed.services.logs.job_log import JobLog, log_files

_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = (
    "The above exception was the direct cause",
    "During handling of the above exception",
)
_MAX_READ_LINES = 2000
_MAX_LINES = 60
_LAST_LINES = 20


class Failures:
    """Diagnoses failed jobs. Read-only. Thread-safe."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def of(self, job: Job) -> dict[str, Any] | None:
        """Return the failure of a job. Returns None if it did not fail.

        A job that exceeded its time limit is CANCELLED, and counts as failed.
        """
        failure = job.failure
        if failure is None or job.state not in (JobState.FAILED, JobState.CANCELLED):
            return None
        if job.state is JobState.CANCELLED and failure.cause is not FailureCause.TIME_LIMIT:
            return None
        diagnosis = self.diagnose(job)
        return {
            "cause": failure.cause.value,
            "replica": failure.replica or SERVICE,
            "exitCode": failure.exit_code,
            "signal": failure.signal,
            "memoryPeakBytes": failure.memory_peak_bytes,
            "facts": {_camel_case(name): value for name, value in failure.facts.items()},
            "summary": diagnosis.summary,
            "remedy": diagnosis.remedy,
            "lines": [entry.line() for entry in self._relevant(job, failure.replica)],
        }

    def diagnose(self, job: Job) -> Diagnosis:
        """Diagnose the job's failure."""
        return Diagnosis(summary="") if job.failure is None else diagnose(job.failure, runtime=job.runtime)

    def _relevant(self, job: Job, replica: str) -> Sequence[LogEntry]:
        """Return the relevant entries. Without a failed replica, the last entries say more than errors do."""
        entries = self._last_entries(job, replica)
        return relevant_entries(entries) if replica else entries[-_LAST_LINES:]

    def _last_entries(self, job: Job, replica: str) -> list[LogEntry]:
        """Return the last entries of a replica, or of all replicas if none is given, in order."""
        log = JobLog(job, (), log_files(self._home, job))
        positions = [0] * len(log.files) + [file.complete() for file in log.files[-1:]]  # of the last attempt alone

        def selected(record: LogRecord) -> bool:
            of_replica = record.replica == replica if replica else record.replica != SERVICE
            return of_replica and not record.is_cleanup

        entries, _ = log.take(log.backwards(positions), selected, positions, limit=_MAX_READ_LINES, back=True)
        return entries[::-1]


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return "".join((first, *map(str.title, others)))


def relevant_entries(entries: Sequence[LogEntry]) -> Sequence[LogEntry]:
    """Return the relevant entries: the last traceback with its causes, else the last errors, else the last lines."""
    starts = [number for number, entry in enumerate(entries) if entry.message.startswith(_TRACEBACK)]
    if not starts:
        errors = [entry for entry in entries if SEVERITIES[entry.severity] >= SEVERITIES["ERROR"]]
        return (errors or entries)[-_LAST_LINES:]
    first = starts.pop()
    while starts and any(entry.message.startswith(_CHAINED) for entry in entries[starts[-1] : first]):
        first = starts.pop()
    traceback = entries[first:]
    if len(traceback) <= _MAX_LINES:
        return traceback
    return [traceback[0], *traceback[1 - _MAX_LINES :]]
