"""Log entries of all jobs: events and replicas' log records as one stream in time order."""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Generic, TypeVar

import orjson

from trainshed.attempts.log_file import MAX_TIME_US
from trainshed.config import Home
from trainshed.domain import names
from trainshed.domain.access.audit import AuditEntry
from trainshed.domain.filters.parser import Filter, parse
from trainshed.domain.filters.server import SERVER
from trainshed.domain.iam import Access, Principal
from trainshed.domain.jobs.job import Job
from trainshed.domain.logs import LogEntry
from trainshed.domain.page_tokens import decode_page_token, encode_page_token
from trainshed.domain.work_budget import WorkBudget
from trainshed.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from trainshed.services.logs.entry_filter import EntryFilter
from trainshed.services.logs.job_log import JobLog, PageBudget, scan_budget
from trainshed.services.logs.log_names import LogNames
from trainshed.store.jobs import JobStore

DEFAULT_PAGE = 50
MAX_PAGE = 1000
_JOBS_PER_READ = 500

_TIMED = re.compile(r"\d{1,18}-", re.ASCII)

Key = tuple[str, str, str]
E = TypeVar("E", LogEntry, AuditEntry)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """The request of `entries:list`."""

    resource_names: tuple[str, ...]
    filter: str = ""
    order_by: str = ""
    page_size: int = 0  #: 0 for the default
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class LogEntryPage(Generic[E]):
    """Entries in order. With a token there may be more, even if this page is short."""

    entries: list[E]
    next_token: str


class LogEntries:
    """Reads log entries. Read-only.

    Holds about one page of log records in memory, and the events of the jobs it reads.
    """

    def __init__(self, jobs: JobStore, home: Home) -> None:
        self._jobs = jobs
        self._home = home
        self._names = LogNames(jobs, home)

    def logs(self, project: str) -> set[str]:
        """Return the names of a project's logs."""
        return self._names.of(project)

    def entries(self, principal: Principal, query: LogQuery, work: WorkBudget | None = None) -> LogEntryPage[LogEntry]:
        """Return a page of matching entries. Raises `PermissionDeniedError` if the principal may not read a project.

        The page is short, or empty with a token, if the work that the request may do is done before.
        """
        projects = readable_projects(principal, query.resource_names)
        span = LogSpan.of(query)
        return select_page(query, span, self._merged(projects, span), EntryFilter(span.filter).matches, work)

    def _merged(self, projects: Sequence[str], span: LogSpan) -> Iterator[LogEntry]:
        """Yield all entries of the span in order. Opens a job only when its time range is reached."""
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

    def _streams(self, project: str, span: LogSpan) -> Iterator[_Stream]:
        """Yield the jobs of a project that may have entries in the span."""
        job_ids = span.job_ids()
        if job_ids is not None:
            for job_id in sorted(job_ids):
                with suppress(NotFoundError):  # an unknown job has no entries
                    job = self._jobs.get(project, job_id)
                    if not job.trial:  # its entries are those of its tuning job
                        yield _Stream(job, 0, MAX_TIME_US)
            return
        event_spans = self._jobs.event_spans(project)
        before = (MAX_TIME_US, "")
        while jobs := self._jobs.page(project, before=before, limit=_JOBS_PER_READ):
            for job in jobs:
                first, last = event_spans.get(job.id, (job.created_us, job.created_us))
                stream = _Stream(
                    job, min(first, job.created_us), max(last, job.ended_us or last) if job.ended else MAX_TIME_US
                )
                if stream.first_us <= span.upper_us and stream.last_us >= span.lower_us:
                    yield stream
            before = (jobs[-1].order_us, jobs[-1].id)

    def _open(self, job: Job, span: LogSpan) -> Iterator[LogEntry]:
        """Return the entries of one job in the span, in order."""
        log = JobLog.of(self._jobs, self._home, job)
        entries = log.between(span.lower_us, span.upper_us, descending=span.descending)
        return filter(span.reached, entries)


@dataclass(frozen=True, slots=True)
class _Stream:
    """A job, and the time range of its entries."""

    job: Job
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpan:
    """The range of entries for a page: a time window, a start position and a direction."""

    filter: Filter
    descending: bool
    lower_us: int
    upper_us: int
    position: Key | None  #: of the last scanned entry
    page_size: int

    @classmethod
    def of(cls, query: LogQuery) -> LogSpan:
        if query.page_size < 0:
            raise InvalidArgumentError("The page size can't be negative.", field="page_size")
        parsed = parse(query.filter, SERVER)
        descending = _descending(query.order_by)
        position = _position(query) if query.page_token else None
        lower, upper = parsed.window("timestamp")
        lower_us = max(0, lower or 0)
        upper_us = MAX_TIME_US if upper is None else upper
        if position is not None:
            position_us = int(position[0].partition("-")[0])
            lower_us, upper_us = (
                (lower_us, min(upper_us, position_us)) if descending else (max(lower_us, position_us), upper_us)
            )
        return cls(
            filter=parsed,
            descending=descending,
            lower_us=lower_us,
            upper_us=upper_us,
            position=position,
            page_size=min(query.page_size or DEFAULT_PAGE, MAX_PAGE),
        )

    def job_ids(self) -> frozenset[str] | None:
        """Return the jobs that the filter names. Returns None if it names none."""
        by_resource = self.filter.required("resource", "labels", "job_id")
        by_label = self.filter.required("labels", "ml.googleapis.com/job_id")
        if by_resource is None or by_label is None:
            return by_label if by_resource is None else by_resource
        return by_resource & by_label

    def rank(self, key: Key) -> object:
        return cmp_to_key(_newest_first)(key) if self.descending else key

    def may_precede(self, stream: _Stream, entry: LogEntry) -> bool:
        """Return whether an unopened job may have entries before this one."""
        return stream.last_us >= entry.time_us if self.descending else stream.first_us <= entry.time_us

    def reached(self, entry: LogEntry | AuditEntry) -> bool:
        """Return whether the entry is behind the last scanned one."""
        if self.position is None:
            return True
        return entry.key < self.position if self.descending else entry.key > self.position


def select_page(
    query: LogQuery, span: LogSpan, entries: Iterable[E], matches: Callable[[E], bool], work: WorkBudget | None
) -> LogEntryPage[E]:
    """Return the entries that match, until the page is full or the budget is spent."""
    page: list[E] = []
    budget = PageBudget(span.page_size, work or scan_budget())
    scanned: Key | None = None
    for entry in entries:
        if scanned is not None and budget.exhausted:
            return LogEntryPage(page, _token(query, scanned))
        matched = matches(entry)
        budget.count(entry.message, matched=matched)
        scanned = entry.key
        if matched:
            page.append(entry)
    return LogEntryPage(page, "")


def _newest_first(a: Key, b: Key) -> int:
    return (a < b) - (a > b)


def readable_projects(principal: Principal, resource_names: Sequence[str]) -> list[str]:
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
    identity = orjson.dumps([sorted(query.resource_names), query.filter, _descending(query.order_by)])
    return hashlib.sha256(identity).hexdigest()[:16]


def _token(query: LogQuery, key: Key) -> str:
    return encode_page_token((_digest(query), *key))


def _position(query: LogQuery) -> Key:
    """Return the position in a page token.

    Raises `InvalidArgumentError` if the token does not belong to this query.
    """
    match decode_page_token(query.page_token):
        case [str(digest), str(entry), str(project), str(job)] if digest == _digest(query) and _TIMED.match(entry):
            return entry, project, job
    raise InvalidArgumentError(
        "This page token does not belong to this query. Start again without one.", field="page_token"
    )
