"""The lines of one job: its events and the log of each attempt, by time, read on from a place or back from it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from trainshed.config import Home
from trainshed.domain import names
from trainshed.domain.jobs import Event, Job
from trainshed.domain.logs import SERVICE, Cursor, Entry, insert_id
from trainshed.engines.logfiles import Line, LogFile
from trainshed.store.jobs import JobStore

Numbered = tuple[Entry, int, int]  #: an entry, its source (0: events, n: attempt n), and a place beside it
Places = list[int]  #: how far each source was read


@dataclass(frozen=True, slots=True)
class JobLog:
    """The sources as they are now. Within a source, lines come in its own order, whatever their times are."""

    job: Job
    events: Sequence[Event]
    files: Sequence[LogFile]

    @classmethod
    def open(cls, jobs: JobStore, home: Home, project: str, job_id: str) -> JobLog:
        job = jobs.get(project, job_id)  # before the lines: once it has ended, none are added
        return cls(job, jobs.events(project, job_id), log_files(home, job))

    def end(self) -> Cursor:
        """The place behind all that is there."""
        last = max((event.seq for event in self.events), default=0)
        return Cursor(last, tuple(file.complete() for file in self.files))

    def places(self, cursor: Cursor) -> Places:
        """One for each source; those that the cursor does not know were not read at all."""
        known = [cursor.events, *cursor.offsets[: len(self.files)]]
        return known + [0] * (1 + len(self.files) - len(known))

    def forwards(self, places: Sequence[int], until: Sequence[int] | None = None) -> Iterator[Numbered]:
        """The entries beyond the places, and not beyond `until`, oldest first; each with the place after it."""
        events = (event for event in self.events if event.seq > places[0])
        sources: list[Iterable[Numbered]] = [((event_entry(self.job, e), 0, e.seq) for e in events)]
        for number, file in enumerate(self.files, start=1):
            sources.append(self._lines(number, file.forwards(places[number]), lambda line: line.end))
        if until is not None:
            sources = [takewhile(lambda item: item[2] <= until[item[1]], source) for source in sources]
        return heapq.merge(*sources, key=lambda item: item[0].key)

    def backwards(self, places: Sequence[int]) -> Iterator[Numbered]:
        """All entries before the places, newest first; each with the place before it."""
        events = [event for event in self.events if event.seq <= places[0]]
        sources: list[Iterable[Numbered]] = [((event_entry(self.job, e), 0, e.seq - 1) for e in reversed(events))]
        for number, file in enumerate(self.files, start=1):
            if places[number]:
                sources.append(self._lines(number, file.backwards(places[number]), lambda line: line.start))
        return heapq.merge(*sources, key=lambda item: item[0].key, reverse=True)

    def _lines(self, number: int, lines: Iterable[Line], place: Callable[[Line], int]) -> Iterator[Numbered]:
        return ((line_entry(self.job, number, line), number, place(line)) for line in lines)


def log_files(home: Home, job: Job) -> list[LogFile]:
    """The log of each attempt."""
    return [
        LogFile(root=home.jobs, folder=(job.project, job.id, str(number)), floor_us=job.created_us)
        for number in range(1, job.attempt + 1)
    ]


def sizes(home: Home, project: str, job_id: str, cursor: Cursor) -> tuple[int, ...]:
    """The bytes in the files that a cursor tells of. Costs microseconds: a follower asks this while it waits."""
    folder = (names.project_id(project), names.job_id(job_id))
    attempts = range(1, len(cursor.offsets) + 1)
    return tuple(LogFile(root=home.jobs, folder=(*folder, str(n)), floor_us=0).size() for n in attempts)


def event_entry(job: Job, event: Event) -> Entry:
    return Entry(
        project=job.project,
        job=job.id,
        time_us=event.time_us,
        replica=SERVICE,
        severity=event.severity,
        text=event.text,
        insert_id=insert_id(event.time_us, attempt=0, position=event.seq),
    )


def line_entry(job: Job, attempt: int, line: Line) -> Entry:
    return Entry(
        project=job.project,
        job=job.id,
        time_us=line.time_us,
        replica=line.replica,
        severity=line.severity,
        text=line.text,
        insert_id=insert_id(line.time_us, attempt=attempt, position=line.start),
    )


def line_entries(job: Job, attempt: int, lines: Iterable[Line]) -> Iterator[Entry]:
    return (line_entry(job, attempt, line) for line in lines)
