"""Reading logs: a job's events and its replicas' lines as one stream, in time order."""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cmp_to_key
from itertools import takewhile

import orjson

from trainshed.attempts.log_file import MAX_TIME_US, AttemptLog, LogRecord
from trainshed.config import Home
from trainshed.domain import names
from trainshed.domain.filters.parser import Filter, parse
from trainshed.domain.iam import Access, Principal
from trainshed.domain.jobs.job import Job
from trainshed.domain.logs import LogCursor, LogEntry, LogSelection
from trainshed.domain.page_tokens import decode_page_token, encode_page_token
from trainshed.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from trainshed.services.logs.job_log import JobLog, Positions, Sourced, event_line, line_entries, log_files, sizes
from trainshed.store.jobs import JobStore

DEFAULT_PAGE = 50
MAX_PAGE = 1000
PAGE_BYTES = 8 * 1024 * 1024  #: an answer is cut after about as much text
SCAN_BYTES = 16 * 1024 * 1024  #: a request looks at about as much; the next page goes on from there
_OVERHEAD = 256  #: what a line costs besides its text
_JOBS_AT_ONCE = 500

_TIMED = re.compile(r"\d{1,18}-", re.ASCII)

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """What `entries:list` is asked."""

    resource_names: tuple[str, ...]
    filter: str = ""
    order_by: str = ""
    page_size: int = 0  #: 0: as many as is usual
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class LogEntryPage:
    """Entries in order. With a token there may be more, even if this page is short."""

    entries: list[LogEntry]
    next_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch:
    """What has come since a cursor. `more`: there is more already; `ended`: there will never be."""

    entries: list[LogEntry]
    cursor: LogCursor
    more: bool
    ended: bool
    end: LogCursor | None = None  #: behind all that was there, told to a reader who had no cursor


class LogEntries:
    """Reads only. Of replicas' lines, however many, about one page is in memory; of events, those of the jobs read."""

    def __init__(self, jobs: JobStore, home: Home) -> None:
        self._jobs = jobs
        self._home = home

    def entries(self, principal: Principal, query: LogQuery) -> LogEntryPage:
        """A page of the entries that match. `PermissionDeniedError` if a project is not the principal's to read."""
        projects = _projects(principal, query.resource_names)
        span = _Span.of(query)
        found: list[LogEntry] = []
        size = scanned = 0
        for entry in self._merged(projects, span):
            scanned += len(entry.message) + _OVERHEAD
            if span.filter.matches(entry.body()):
                found.append(entry)
                size += len(entry.message) + _OVERHEAD
            if len(found) == span.page_size or size > PAGE_BYTES or scanned > SCAN_BYTES:
                return LogEntryPage(found, _token(query, entry.key))
        return LogEntryPage(found, "")

    def follow(
        self,
        project: str,
        job_id: str,
        selection: LogSelection,
        after: LogCursor | None,
        until: LogCursor | None = None,
    ) -> LogBatch:
        """What has come since `after`, or from the start that the selection names, up to `until` if that is given.

        With each answer's cursor in the next question, every line is told once. An answer may be empty and have
        `more`: it looks at so many bytes only.
        """
        log = JobLog.open(self._jobs, self._home, project, job_id)
        end = log.end() if after is None else None
        start = after or _start(log, selection)
        places = log.places(start)
        if start.seeking and (left := _seek(log.backwards(places), places, selection, start)):
            cursor = LogCursor(places[0], tuple(places[1:]), left)
            return LogBatch(entries=[], cursor=cursor, more=True, ended=False, end=end)
        found: list[LogEntry] = []
        size = scanned = 0
        more = False
        for line, source in log.forwards(places, log.places(until) if until else None):
            places[source] = line.end
            scanned += len(line.message) + _OVERHEAD
            if selection.matches(line):
                found.append(log.entry(line, source))
                size += len(line.message) + _OVERHEAD
            if len(found) == MAX_PAGE or size > PAGE_BYTES or scanned > SCAN_BYTES:
                more = True
                break
        cursor = LogCursor(places[0], tuple(places[1:]))
        return LogBatch(entries=found, cursor=cursor, more=more, ended=log.job.ended and not more, end=end)

    def sizes(self, project: str, job_id: str, cursor: LogCursor) -> tuple[int, ...]:
        return sizes(self._home, project, job_id, cursor)

    def _merged(self, projects: Sequence[str], span: _Span) -> Iterator[LogEntry]:
        """All entries of the span, in its order. A job is opened only when the time of its lines has come."""
        streams = [stream for project in projects for stream in self._streams(project, span)]
        streams.sort(key=lambda stream: -stream.last_us if span.descending else stream.first_us, reverse=True)
        heap: list[tuple[object, int, LogEntry, Iterator[LogEntry]]] = []
        opened = 0

        def push(number: int, rest: Iterator[LogEntry]) -> None:
            if (entry := next(rest, None)) is not None:
                heapq.heappush(heap, (span.rank(entry.key), number, entry, rest))

        while heap or streams:
            while streams and (not heap or span.may_precede(streams[-1], heap[0][2])):
                push(opened, self._open(streams.pop().job, span))
                opened += 1
            if heap:
                _, number, entry, rest = heapq.heappop(heap)
                yield entry
                push(number, rest)

    def _streams(self, project: str, span: _Span) -> Iterator[_Stream]:
        """The jobs of a project that may have entries in the span."""
        wanted = span.job_ids()
        if wanted is not None:
            for job_id in sorted(wanted):
                with suppress(NotFoundError):  # a job that is not there has no entries
                    yield _Stream(self._jobs.get(project, job_id), 0, MAX_TIME_US)
            return
        told = self._jobs.event_spans(project)
        before = (MAX_TIME_US, "")
        while jobs := self._jobs.page(project, before=before, limit=_JOBS_AT_ONCE):
            for job in jobs:
                first, last = told.get(job.id, (job.created_us, job.created_us))
                stream = _Stream(
                    job, min(first, job.created_us), max(last, job.ended_us or last) if job.ended else MAX_TIME_US
                )
                if stream.first_us <= span.upper_us and stream.last_us >= span.lower_us:
                    yield stream
            before = (jobs[-1].created_us, jobs[-1].id)

    def _open(self, job: Job, span: _Span) -> Iterator[LogEntry]:
        """The entries of one job in the span, in its order."""
        events = sorted(
            line_entries(job, 0, map(event_line, self._jobs.events(job.project, job.id))),
            key=lambda entry: entry.key,
            reverse=span.descending,
        )
        sources: list[Iterable[LogEntry]] = [events]
        for number, file in enumerate(log_files(self._home, job), start=1):
            sources.append(line_entries(job, number, span.lines(file)))
        merged = heapq.merge(*sources, key=lambda entry: entry.key, reverse=span.descending)
        return takewhile(span.not_past, filter(span.reached, merged))


@dataclass(frozen=True, slots=True)
class _Stream:
    """A job, and the times outside of which it has no entries."""

    job: Job
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """The part of the logs that a page is made of: between two times, beyond a position, in one direction."""

    filter: Filter
    descending: bool
    lower_us: int
    upper_us: int
    position: Key | None  #: of the last entry that was looked at before
    page_size: int

    @classmethod
    def of(cls, query: LogQuery) -> _Span:
        if query.page_size < 0:
            raise InvalidArgumentError("The page size can't be negative.", field="page_size")
        parsed = parse(query.filter)
        descending = _descending(query.order_by)
        position = _position(query) if query.page_token else None
        lower, upper = parsed.window("timestamp")
        lower_us = max(0, lower or 0)
        upper_us = MAX_TIME_US if upper is None else upper
        if position is not None:
            at = int(position[0].partition("-")[0])
            lower_us, upper_us = (lower_us, min(upper_us, at)) if descending else (max(lower_us, at), upper_us)
        return cls(
            filter=parsed,
            descending=descending,
            lower_us=lower_us,
            upper_us=upper_us,
            position=position,
            page_size=min(query.page_size or DEFAULT_PAGE, MAX_PAGE),
        )

    def job_ids(self) -> frozenset[str] | None:
        """The jobs that the filter names, or None if it leaves them open."""
        by_resource = self.filter.required("resource", "labels", "job_id")
        by_label = self.filter.required("labels", "ml.googleapis.com/job_id")
        if by_resource is None or by_label is None:
            return by_label if by_resource is None else by_resource
        return by_resource & by_label

    def rank(self, key: Key) -> object:
        return cmp_to_key(_newest_first)(key) if self.descending else key

    def may_precede(self, stream: _Stream, entry: LogEntry) -> bool:
        """Whether a job that is not open yet may have something to tell before this entry."""
        return stream.last_us >= entry.time_us if self.descending else stream.first_us <= entry.time_us

    def lines(self, file: AttemptLog) -> Iterator[LogRecord]:
        if self.descending:
            return file.backwards(None if self.upper_us >= MAX_TIME_US else file.find(self.upper_us + 1))
        return file.forwards(file.find(self.lower_us) if self.lower_us > 0 else 0)

    def reached(self, entry: LogEntry) -> bool:
        """Whether the entry lies on this side of where the span begins."""
        if self.descending:
            return entry.time_us <= self.upper_us and (self.position is None or entry.key < self.position)
        return entry.time_us >= self.lower_us and (self.position is None or entry.key > self.position)

    def not_past(self, entry: LogEntry) -> bool:
        return entry.time_us >= self.lower_us if self.descending else entry.time_us <= self.upper_us


def _newest_first(a: Key, b: Key) -> int:
    return (a < b) - (a > b)


def _projects(principal: Principal, resource_names: Sequence[str]) -> list[str]:
    if not resource_names:
        raise InvalidArgumentError(
            "At least one resource name is needed, such as projects/my-project.", field="resource_names"
        )
    projects = []
    for name in resource_names:
        kind, _, project = name.partition("/")
        if kind != "projects":
            raise InvalidArgumentError(
                f"Logs are kept by project: a resource name is like projects/my-project; {name[:100]!r} is not.",
                field="resource_names",
            )
        projects.append(names.project_id(project))
        if not principal.may(Access.READ, project):
            raise PermissionDeniedError(f"This token may not read the logs of project {project}.")
    return sorted(set(projects))


def _descending(order_by: str) -> bool:
    match order_by.split():
        case [] | ["timestamp"] | ["timestamp", "asc"]:
            return False
        case ["timestamp", "desc"]:
            return True
    raise InvalidArgumentError(
        f"Entries are ordered by `timestamp asc` or `timestamp desc`, not by {order_by[:40]!r}.", field="order_by"
    )


def _digest(query: LogQuery) -> str:
    asked = orjson.dumps([sorted(query.resource_names), query.filter, _descending(query.order_by)])
    return hashlib.sha256(asked).hexdigest()[:16]


def _token(query: LogQuery, key: Key) -> str:
    return encode_page_token((_digest(query), *key))


def _position(query: LogQuery) -> Key:
    """Where a page token says that the last page ended.

    `InvalidArgumentError` if it is not one of ours for this query.
    """
    match decode_page_token(query.page_token):
        case [str(digest), str(entry), str(project), str(job)] if digest == _digest(query) and _TIMED.match(entry):
            return entry, project, job
    raise InvalidArgumentError(
        "This page token does not belong to this query. Start again without one.", field="page_token"
    )


def _start(log: JobLog, selection: LogSelection) -> LogCursor:
    """Where a reader begins who has no cursor: at the top, at a time, or at the end, to seek the last lines there."""
    if selection.tail is None:
        return LogCursor(0, tuple(file.find(selection.since_us) if selection.since_us else 0 for file in log.files))
    return replace(log.end(), seeking=selection.tail)


def _seek(lines: Iterator[Sourced], places: Positions, selection: LogSelection, start: LogCursor) -> int:
    """Move the places back over the matching lines that are sought; return how many are yet to be found.

    0 also if there are no more of them. Looks at about SCAN_BYTES.
    """
    left, scanned = start.seeking, 0
    for line, source in lines:
        if line.time_us < selection.since_us:
            return 0
        places[source] = line.start
        left -= selection.matches(line)
        scanned += len(line.message) + _OVERHEAD
        if left == 0 or scanned > SCAN_BYTES:
            return left
    return 0
