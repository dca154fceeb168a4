"""The log of one job: its events and the log file of each attempt, merged by time, read forwards or backwards."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from trainshed.attempts.log_file import AttemptLog, LogRecord
from trainshed.config import Home
from trainshed.domain import names
from trainshed.domain.jobs.job import Job, JobEvent
from trainshed.domain.jobs.reconcile import MAX_TRIAL_ATTEMPTS
from trainshed.domain.logs import SERVICE, LogCursor, LogEntry, insert_id
from trainshed.domain.work_budget import WorkBudget, WorkLimits
from trainshed.errors import FailedPreconditionError
from trainshed.store.jobs import JobStore

MAX_PAGE_BYTES = 8 << 20  #: approximate size limit of a page
#: of a reader that has no limits of its own; the next request continues where this one stopped
SCAN_LIMITS = WorkLimits(max_bytes=8 << 20, max_seconds=1.0)
_OVERHEAD_BYTES = 256  #: overhead of a record besides its message

#: a record and its source: 0 for events, n for attempt n
SourcedRecord = tuple[LogRecord, int]
Positions = list[int]  #: the position in each source: the start or end of a record


def scan_budget() -> WorkBudget:
    return WorkBudget(SCAN_LIMITS)


class PageBudget:
    """What one request may still read and return."""

    def __init__(self, limit: int, work: WorkBudget) -> None:
        self._entries = limit
        self._page_bytes = MAX_PAGE_BYTES
        self._work = work

    @property
    def exhausted(self) -> bool:
        return self._entries <= 0 or self._page_bytes < 0 or self._work.exhausted

    def count(self, message: str, *, matched: bool) -> None:
        """Count a record that was read, and returned if it matched. Raises what `WorkBudget.spend` raises."""
        cost = len(message) + _OVERHEAD_BYTES
        self._work.spend(cost)
        if matched:
            self._entries -= 1
            self._page_bytes -= cost


@dataclass(frozen=True, slots=True)
class JobLog:
    """The current sources. Within a source, records keep its order, whatever their times are."""

    job: Job
    events: Sequence[JobEvent]
    files: Sequence[AttemptLog]  #: of each attempt; of a tuning job: of each attempt at each trial
    only: int = 0  #: the trial whose records are read; 0: all records

    @classmethod
    def open(cls, jobs: JobStore, home: Home, project: str, job_id: str) -> JobLog:
        job = jobs.get(project, job_id)  # before the records: none are added after a job has ended
        return cls.of(jobs, home, job)

    @classmethod
    def of(cls, jobs: JobStore, home: Home, job: Job) -> JobLog:
        """Return the log of a job that was read before."""
        if job.tuning is None:
            return cls(job, jobs.events(job.project, job.id), log_files(home, job))
        last = jobs.last_trial(job.project, job.id)
        return cls(job, jobs.events(job.project, job.id), _trial_files(home, job, last))

    def of_trial(self, number: int) -> JobLog:
        """Return the log with the records of one trial. Cursors stay valid. Raises `FailedPreconditionError`."""
        if number and self.job.tuning is None:
            raise FailedPreconditionError(f"Job {self.job.id} has no trials: it has no hyperparameters.", field="trial")
        return replace(self, only=number)

    def end(self) -> LogCursor:
        """Return the cursor behind all records."""
        return LogCursor(self._last_event(), tuple(file.complete() for file in self.files))

    def since(self, time_us: int) -> LogCursor:
        """Return the cursor before the records of this time or later. Events before it are not skipped."""
        return LogCursor(0, tuple(file.find(time_us) if time_us > 0 else 0 for file in self.files))

    def positions(self, cursor: LogCursor) -> Positions:
        """Return one position per source; 0 for those that the cursor does not know."""
        positions = [cursor.events, *cursor.offsets[: len(self.files)]]
        return positions + [0] * (1 + len(self.files) - len(positions))

    def forwards(self, positions: Sequence[int], until: Sequence[int] | None = None) -> Iterator[SourcedRecord]:
        """Yield the records after the positions, up to `until`, oldest first. `end` of each is its next position."""
        events = (event_record(event) for event in self.events if event.seq > positions[0])
        read = [events, *(file.forwards(positions[number]) for number, file in enumerate(self.files, start=1))]
        sources: list[Iterable[SourcedRecord]] = [
            _with_source(records, number) for number, records in enumerate(read) if self._is_read(number)
        ]
        if until is not None:
            sources = [takewhile(lambda item: item[0].end <= until[item[1]], source) for source in sources]
        return heapq.merge(*sources, key=_order)

    def backwards(self, positions: Sequence[int]) -> Iterator[SourcedRecord]:
        """Yield all records before the positions, newest first. `start` of each is its next position."""
        events = [event_record(event) for event in reversed(self.events) if event.seq <= positions[0]]
        sources: list[Iterable[SourcedRecord]] = [_with_source(events, 0)] if self._is_read(0) else []
        for number, file in enumerate(self.files, start=1):
            if positions[number] and self._is_read(number):
                sources.append(_with_source(file.backwards(positions[number]), number))
        return heapq.merge(*sources, key=_order, reverse=True)

    def between(self, lower_us: int, upper_us: int, *, descending: bool) -> Iterator[LogEntry]:
        """Yield the entries of a time range in the order of their keys. Both ends are included."""
        ordered = replace(self, events=sorted(self.events, key=lambda event: (event.time_us, event.seq)))
        if descending:
            end = LogCursor(self._last_event(), self.since(upper_us + 1).offsets)
            records = ordered.backwards(self.positions(end))
        else:
            records = ordered.forwards(self.positions(self.since(lower_us)))
        for record, source in records:
            if (record.time_us < lower_us) if descending else (record.time_us > upper_us):
                return
            if lower_us <= record.time_us <= upper_us:
                yield self.entry(record, source)

    def take(
        self,
        records: Iterable[SourcedRecord],
        matches: Callable[[LogRecord], bool],
        positions: Positions,
        *,
        limit: int,
        back: bool,
        work: WorkBudget | None = None,
    ) -> tuple[list[LogEntry], bool]:
        """Return up to `limit` matching entries as they are read, and whether there are no more records.

        Advances the positions, by one record at least. Stops when the work that it may do is done.
        """
        entries: list[LogEntry] = []
        budget = PageBudget(limit, work or scan_budget())
        advanced = False
        for record, source in records:
            if advanced and budget.exhausted:
                return entries, False
            advanced = True
            positions[source] = record.start if back else record.end
            matched = matches(record)
            budget.count(record.message, matched=matched)
            if matched:
                entries.append(self.entry(record, source))
        return entries, True

    def entry(self, record: LogRecord, source: int) -> LogEntry:
        return LogEntry(
            project=self.job.project,
            job=self.job.parent or self.job.id,
            trial=self._trial(source),
            time_us=record.time_us,
            replica=record.replica,
            severity=record.severity,
            message=record.message,
            insert_id=insert_id(record.time_us, attempt=source, position=record.start if source else record.end),
        )

    def _is_read(self, source: int) -> bool:
        return not self.only or self._trial(source) == self.only

    def _trial(self, source: int) -> int:
        """Return the number of the trial whose record a source has. Returns 0 if there is none."""
        if self.job.tuning is None or source == 0:
            return self.job.trial
        return (source - 1) // MAX_TRIAL_ATTEMPTS + 1

    def _last_event(self) -> int:
        return max((event.seq for event in self.events), default=0)


def _with_source(records: Iterable[LogRecord], number: int) -> Iterator[SourcedRecord]:
    return ((record, number) for record in records)


def _order(item: SourcedRecord) -> tuple[int, int, int]:
    """Sort like `LogEntry.key` within one job."""
    return item[0].time_us, item[1], item[0].start


def log_files(home: Home, job: Job) -> list[AttemptLog]:
    """Return the log of each attempt. Paths of buckets are shown as the gs:// URIs that the user gave."""
    root = f"{home.buckets}/"
    return [
        AttemptLog(root=home.jobs, folder=(job.project, job.id, str(number)), floor_us=job.created_us, bucket_root=root)
        for number in range(1, job.attempt + 1)
    ]


def _trial_files(home: Home, job: Job, last: int) -> list[AttemptLog]:
    """Return the log of each attempt at each trial, with places for those that do not exist.

    So a source of a cursor stays the same one when a trial starts again.
    """
    return [
        AttemptLog(root=home.jobs, folder=(job.project, *_trial_folder(job.id, number)), floor_us=job.created_us)
        for number in range(last * MAX_TRIAL_ATTEMPTS)
    ]


def _trial_folder(job_id: str, number: int) -> tuple[str, str]:
    """Return the folder of an attempt at a trial by the number of its source, from 0."""
    trial, attempt = divmod(number, MAX_TRIAL_ATTEMPTS)
    return names.trial_job_id(job_id, trial + 1), str(attempt + 1)


def sizes(home: Home, project: str, job_id: str, cursor: LogCursor) -> tuple[int, ...]:
    """Return the sizes of the files of a cursor. Takes microseconds: long polls call it repeatedly."""
    folder, job_folder = names.project_id(project), names.job_folder(job_id)
    tuning = not (home.jobs / folder / job_folder).exists()  # only its trials have folders
    folders = [
        _trial_folder(job_folder, number) if tuning else (job_folder, str(number + 1))
        for number in range(len(cursor.offsets))
    ]
    return tuple(AttemptLog(root=home.jobs, folder=(folder, *each), floor_us=0).size() for each in folders)


def event_record(event: JobEvent) -> LogRecord:
    """Return an event as a record of the service. Its sequence number is the position behind it."""
    return LogRecord(event.seq - 1, event.seq, event.time_us, SERVICE, event.severity, event.message)
