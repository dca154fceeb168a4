"""Log pages of one job: the last page, the pages before it, and new records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from trainshed.config import Home
from trainshed.domain.jobs.gang import gang
from trainshed.domain.jobs.job import Job
from trainshed.domain.logs import SERVICE, LogCursor, LogEntry, LogSelection
from trainshed.domain.times import rfc3339
from trainshed.errors import InvalidArgumentError
from trainshed.services.logs.job_log import JobLog, Positions, SourcedRecord, sizes
from trainshed.store.jobs import JobStore

DEFAULT_LINES = 1000
MAX_LINES = 5000
MAX_PAGE_BYTES = 8 << 20  #: approximate size limit of a page
MAX_SCAN_BYTES = 8 << 20  #: approximate scan limit of a request; its cursors continue there
_OVERHEAD_BYTES = 256  #: overhead of a record besides its message


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPageRequest:
    """Which page to return: with neither `after` nor `before`, the last one."""

    selection: LogSelection
    after: LogCursor | None = None
    before: LogCursor | None = None
    limit: int = DEFAULT_LINES

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= MAX_LINES:
            raise InvalidArgumentError(f"`limit` is a number of lines from 1 to {MAX_LINES}.", field="limit")
        if self.after is not None and self.before is not None:
            raise InvalidArgumentError("A page is either `after` or `before` a place, not both.", field="before")

    def since(self, after: LogCursor | None) -> LogPageRequest:
        """Return the same request from another cursor."""
        return replace(self, after=after)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Entries in order, between two cursors. May be short or empty: one request scans a limited number of bytes."""

    entries: list[LogEntry]
    cursor: LogCursor  #: behind the last entry
    before: LogCursor | None  #: before the first entry; None if there are no earlier ones
    more: bool  #: whether later entries are available now
    ended: bool  #: whether the job has ended and there are no later entries
    replicas: tuple[str, ...]

    def body(self) -> dict[str, Any]:
        return {
            "lines": [line_body(entry) for entry in self.entries],
            "after": str(self.cursor),
            "before": "" if self.before is None else str(self.before),
            "more": self.more,
            "ended": self.ended,
            "replicas": list(self.replicas),
        }


def line_body(entry: LogEntry) -> dict[str, str]:
    return {
        "id": entry.insert_id,
        "time": rfc3339(entry.time_us),
        "replica": entry.replica,
        "severity": entry.severity,
        "message": entry.message,
    }


class LogPages:
    """Reads log pages. Read-only. Thread-safe.

    Between pages, in either direction, no entry is lost or repeated.
    """

    def __init__(self, jobs: JobStore, home: Home) -> None:
        self._jobs = jobs
        self._home = home

    def page(self, project: str, job_id: str, request: LogPageRequest) -> LogPage:
        log = JobLog.open(self._jobs, self._home, project, job_id)
        if request.after is not None:
            return _page_after(log, request, request.after)
        return _page_before(log, request, request.before or log.end())

    def sizes(self, project: str, job_id: str, cursor: LogCursor) -> tuple[int, ...]:
        return sizes(self._home, project, job_id, cursor)


def _page_after(log: JobLog, request: LogPageRequest, start: LogCursor) -> LogPage:
    positions = log.positions(start)
    records, done = _take_page(log.forwards(positions), positions, request, back=False)
    return LogPage(
        entries=[log.entry(*item) for item in records],
        cursor=_cursor(positions),
        before=start,
        more=not done,
        ended=log.job.ended and done,
        replicas=_replicas(log.job),
    )


def _page_before(log: JobLog, request: LogPageRequest, end: LogCursor) -> LogPage:
    positions = log.positions(end)
    records, done = _take_page(log.backwards(positions), positions, request, back=True)
    more = request.before is not None
    return LogPage(
        entries=[log.entry(*item) for item in reversed(records)],
        cursor=end,
        before=None if done else _cursor(positions),
        more=more,
        ended=log.job.ended and not more,
        replicas=_replicas(log.job),
    )


def _take_page(
    records: Iterator[SourcedRecord], positions: Positions, request: LogPageRequest, *, back: bool
) -> tuple[list[SourcedRecord], bool]:
    """Return up to a page of matching records, and whether the source is exhausted. Advances the positions."""
    page: list[SourcedRecord] = []
    size = scanned = 0
    matches = request.selection.matches
    for item in records:
        if len(page) == request.limit or size > MAX_PAGE_BYTES or scanned > MAX_SCAN_BYTES:
            return page, False
        record, source = item
        positions[source] = record.start if back else record.end
        cost = len(record.message) + _OVERHEAD_BYTES
        scanned += cost
        if matches(record):
            page.append(item)
            size += cost
    return page, True


def _cursor(positions: Positions) -> LogCursor:
    return LogCursor(positions[0], tuple(positions[1:]))


def _replicas(job: Job) -> tuple[str, ...]:
    """Return the names that records may have."""
    return (*(replica.name for replica in gang(job.workload)), SERVICE)
