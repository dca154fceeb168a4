"""The log of one job: its events and the log file of each attempt, merged by time, read forwards or backwards."""

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

#: a record and its source: 0 for events, n for attempt n
SourcedRecord = tuple[LogRecord, int]
Positions = list[int]  #: the position in each source: the start or end of a record


@dataclass(frozen=True, slots=True)
class JobLog:
    """The current sources. Within a source, records keep its order, whatever their times are."""

    job: Job
    events: Sequence[JobEvent]
    files: Sequence[AttemptLog]

    @classmethod
    def open(cls, jobs: JobStore, home: Home, project: str, job_id: str) -> JobLog:
        job = jobs.get(project, job_id)  # before the records: none are added after a job has ended
        return cls(job, jobs.events(project, job_id), log_files(home, job))

    def end(self) -> LogCursor:
        """Return the cursor behind all records."""
        last = max((event.seq for event in self.events), default=0)
        return LogCursor(last, tuple(file.complete() for file in self.files))

    def positions(self, cursor: LogCursor) -> Positions:
        """Return one position per source; 0 for those that the cursor does not know."""
        positions = [cursor.events, *cursor.offsets[: len(self.files)]]
        return positions + [0] * (1 + len(self.files) - len(positions))

    def forwards(self, positions: Sequence[int], until: Sequence[int] | None = None) -> Iterator[SourcedRecord]:
        """Yield the records after the positions, up to `until`, oldest first. `end` of each is its next position."""
        events = (event_line(event) for event in self.events if event.seq > positions[0])
        read = [events, *(file.forwards(positions[number]) for number, file in enumerate(self.files, start=1))]
        sources: list[Iterable[SourcedRecord]] = [_with_source(lines, number) for number, lines in enumerate(read)]
        if until is not None:
            sources = [takewhile(lambda item: item[0].end <= until[item[1]], source) for source in sources]
        return heapq.merge(*sources, key=_order)

    def backwards(self, positions: Sequence[int]) -> Iterator[SourcedRecord]:
        """Yield all records before the positions, newest first. `start` of each is its next position."""
        events = [event_line(event) for event in reversed(self.events) if event.seq <= positions[0]]
        sources: list[Iterable[SourcedRecord]] = [_with_source(events, 0)]
        for number, file in enumerate(self.files, start=1):
            if positions[number]:
                sources.append(_with_source(file.backwards(positions[number]), number))
        return heapq.merge(*sources, key=_order, reverse=True)

    def entry(self, line: LogRecord, source: int) -> LogEntry:
        return line_entry(self.job, source, line)


def _with_source(lines: Iterable[LogRecord], number: int) -> Iterator[SourcedRecord]:
    return ((line, number) for line in lines)


def _order(item: SourcedRecord) -> tuple[int, int, int]:
    """Sort like `LogEntry.key` within one job."""
    return item[0].time_us, item[1], item[0].start


def log_files(home: Home, job: Job) -> list[AttemptLog]:
    """Return the log of each attempt."""
    return [
        AttemptLog(root=home.jobs, folder=(job.project, job.id, str(number)), floor_us=job.created_us)
        for number in range(1, job.attempt + 1)
    ]


def sizes(home: Home, project: str, job_id: str, cursor: LogCursor) -> tuple[int, ...]:
    """Return the sizes of the files of a cursor. Takes microseconds: long polls call it repeatedly."""
    folder = (names.project_id(project), names.job_id(job_id))
    attempts = range(1, len(cursor.offsets) + 1)
    return tuple(AttemptLog(root=home.jobs, folder=(*folder, str(n)), floor_us=0).size() for n in attempts)


def event_line(event: JobEvent) -> LogRecord:
    """Return an event as a record of the service. Its sequence number is the position behind it."""
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
