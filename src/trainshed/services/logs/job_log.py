"""The lines of one job: its events and the log of each attempt, by time, read on from a place or back from it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from trainshed.attempts.log_file import AttemptLog, LogRecord
from trainshed.config import Home
from trainshed.domain import names
from trainshed.domain.jobs.job import Job, JobEvent
from trainshed.domain.logs import SERVICE, LogCursor, LogEntry, insert_id
from trainshed.store.jobs import JobStore

#: a line and its source: 0 is the events, n is attempt n
Sourced = tuple[LogRecord, int]
Positions = list[int]  #: how far each source was read: the start or the end of one of its lines


@dataclass(frozen=True, slots=True)
class JobLog:
    """The sources as they are now. Within a source, lines come in its own order, whatever their times are."""

    job: Job
    events: Sequence[JobEvent]
    files: Sequence[AttemptLog]

    @classmethod
    def open(cls, jobs: JobStore, home: Home, project: str, job_id: str) -> JobLog:
        job = jobs.get(project, job_id)  # before the lines: once it has ended, none are added
        return cls(job, jobs.events(project, job_id), log_files(home, job))

    def end(self) -> LogCursor:
        """The place behind all that is there."""
        last = max((event.seq for event in self.events), default=0)
        return LogCursor(last, tuple(file.complete() for file in self.files))

    def places(self, cursor: LogCursor) -> Positions:
        """One for each source; those that the cursor does not know were not read at all."""
        known = [cursor.events, *cursor.offsets[: len(self.files)]]
        return known + [0] * (1 + len(self.files) - len(known))

    def forwards(self, places: Sequence[int], until: Sequence[int] | None = None) -> Iterator[Sourced]:
        """The lines beyond the places, and not beyond `until`, oldest first. Each leads to the place at its end."""
        events = (event_line(event) for event in self.events if event.seq > places[0])
        read = [events, *(file.forwards(places[number]) for number, file in enumerate(self.files, start=1))]
        sources: list[Iterable[Sourced]] = [_sourced(lines, number) for number, lines in enumerate(read)]
        if until is not None:
            sources = [takewhile(lambda item: item[0].end <= until[item[1]], source) for source in sources]
        return heapq.merge(*sources, key=_order)

    def backwards(self, places: Sequence[int]) -> Iterator[Sourced]:
        """All lines before the places, newest first. Each leads to the place at its start."""
        told = [event_line(event) for event in reversed(self.events) if event.seq <= places[0]]
        sources: list[Iterable[Sourced]] = [_sourced(told, 0)]
        for number, file in enumerate(self.files, start=1):
            if places[number]:
                sources.append(_sourced(file.backwards(places[number]), number))
        return heapq.merge(*sources, key=_order, reverse=True)

    def entry(self, line: LogRecord, source: int) -> LogEntry:
        return line_entry(self.job, source, line)


def _sourced(lines: Iterable[LogRecord], number: int) -> Iterator[Sourced]:
    return ((line, number) for line in lines)


def _order(item: Sourced) -> tuple[int, int, int]:
    """As `LogEntry.key` orders what is of one job."""
    return item[0].time_us, item[1], item[0].start


def log_files(home: Home, job: Job) -> list[AttemptLog]:
    """The log of each attempt."""
    return [
        AttemptLog(root=home.jobs, folder=(job.project, job.id, str(number)), floor_us=job.created_us)
        for number in range(1, job.attempt + 1)
    ]


def sizes(home: Home, project: str, job_id: str, cursor: LogCursor) -> tuple[int, ...]:
    """The bytes in the files that a cursor tells of. Costs microseconds: a follower asks this while it waits."""
    folder = (names.project_id(project), names.job_id(job_id))
    attempts = range(1, len(cursor.offsets) + 1)
    return tuple(AttemptLog(root=home.jobs, folder=(*folder, str(n)), floor_us=0).size() for n in attempts)


def event_line(event: JobEvent) -> LogRecord:
    """An event as a line of the service. Its number is the place behind it."""
    return LogRecord(event.seq - 1, event.seq, event.time_us, SERVICE, event.severity, event.message)


def line_entry(job: Job, source: int, line: LogRecord) -> LogEntry:
    return LogEntry(
        project=job.project,
        job=job.id,
        time_us=line.time_us,
        replica=line.replica,
        severity=line.severity,
        message=line.message,
        insert_id=insert_id(line.time_us, attempt=source, position=line.start if source else line.end),
    )


def line_entries(job: Job, attempt: int, lines: Iterable[LogRecord]) -> Iterator[LogEntry]:
    return (line_entry(job, attempt, line) for line in lines)
