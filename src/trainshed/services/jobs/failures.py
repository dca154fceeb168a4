"""Why a job failed: the cause, what to do, and the lines that tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainshed.config import Home
from trainshed.domain.filters.terms import SEVERITIES
from trainshed.domain.jobs.diagnosis import Diagnosis, diagnose
from trainshed.domain.jobs.job import Job, JobState
from trainshed.domain.logs import SERVICE, LogEntry
from trainshed.services.logs.job_log import line_entry, log_files
from trainshed.services.logs.pages import line_body

_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = (
    "The above exception was the direct cause",
    "During handling of the above exception",
)
#: what a supervisor adds to a replica's lines when that has ended
_CLOSING = frozenset({"Module completed; cleaning up.", "Clean up finished."})
_READ_LINES = 2000
_READ_BYTES = 4 << 20
_MOST_LINES = 60
_LAST_LINES = 20


class Failures:
    """Reads only. Threads may share it."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def of(self, job: Job) -> dict[str, Any] | None:
        """None for a job that did not fail. One that ran into its time limit is CANCELLED, and failed all the same."""
        if job.state not in (JobState.FAILED, JobState.CANCELLED):
            return None
        found = self.diagnosed(job)
        if job.state is JobState.CANCELLED and found.cause != "time limit":
            return None
        return {
            "summary": found.summary,
            "remedy": found.remedy,
            "replica": found.replica or SERVICE,
            "lines": [line_body(entry) for entry in self._telling(job, found.replica)],
        }

    def diagnosed(self, job: Job) -> Diagnosis:
        """A path into the buckets is told as the address that its user gave."""
        return diagnose(job.error.replace(f"{self._home.buckets}/", "gs://"), runtime=job.runtime)

    def _telling(self, job: Job, replica: str) -> Sequence[LogEntry]:
        """Where no replica is to blame, the last steps tell more than errors do."""
        entries = self._last_lines(job, replica)
        return telling(entries) if replica else entries[-_LAST_LINES:]

    def _last_lines(self, job: Job, replica: str) -> list[LogEntry]:
        """The last of what the replica wrote, or all of them if it is none's, in order."""
        found: list[LogEntry] = []
        read = 0
        for number, file in list(enumerate(log_files(self._home, job), start=1))[-1:]:
            for line in file.backwards():
                read += len(line.message) + 1
                mine = line.replica == replica if replica else line.replica != SERVICE
                if mine and line.message not in _CLOSING:
                    found.append(line_entry(job, number, line))
                if len(found) == _READ_LINES or read > _READ_BYTES:
                    break
        return found[::-1]


def telling(entries: Sequence[LogEntry]) -> Sequence[LogEntry]:
    """Those that matter: the last traceback with those that led to it, else the last errors, else the last lines."""
    starts = [number for number, entry in enumerate(entries) if entry.message.startswith(_TRACEBACK)]
    if not starts:
        errors = [entry for entry in entries if SEVERITIES[entry.severity] >= SEVERITIES["ERROR"]]
        return (errors or entries)[-_LAST_LINES:]
    first = starts.pop()
    while starts and any(entry.message.startswith(_CHAINED) for entry in entries[starts[-1] : first]):
        first = starts.pop()
    traceback = entries[first:]
    if len(traceback) <= _MOST_LINES:
        return traceback
    return [traceback[0], *traceback[1 - _MOST_LINES :]]
