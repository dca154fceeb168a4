"""Log pages of one job: from the start, from the last entries, on from a cursor, or back from one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile

from trainshed.config import Home
from trainshed.domain.jobs.gang import gang
from trainshed.domain.jobs.job import Job
from trainshed.domain.logs import SERVICE, LogCursor, LogEntry, LogSelection
from trainshed.domain.work_budget import WorkBudget
from trainshed.errors import InvalidArgumentError
from trainshed.services.logs.job_log import JobLog, Positions, scan_budget, sizes
from trainshed.store.jobs import JobStore

DEFAULT_PAGE = 1000
MAX_PAGE = 5000
END = "end"  #: `before` the end: the last page


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPageRequest:
    """Which page to return.

    Without `cursor` and `before` it is the first page or, with `tail` in the selection, the page that starts `tail`
    entries before the end.
    """

    selection: LogSelection
    cursor: LogCursor | None = None  #: what follows it
    before: LogCursor | str | None = None  #: what precedes it; `END`: the last page
    until: LogCursor | None = None  #: nothing that follows it
    page_size: int = DEFAULT_PAGE

    def __post_init__(self) -> None:
        if not 1 <= self.page_size <= MAX_PAGE:
            raise InvalidArgumentError(f"`pageSize` is a number of entries from 1 to {MAX_PAGE}.", field="pageSize")
        if self.before is not None and (self.cursor or self.until or self.selection.tail is not None):
            raise InvalidArgumentError(
                "A page `before` a cursor has no `cursor`, no `until` and no `tail`.", field="before"
            )

    def on_from(self, cursor: LogCursor | None) -> LogPageRequest:
        """Return the same request from another cursor."""
        return replace(self, cursor=cursor)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Entries in order, between two cursors. May be short or empty: one request scans a limited number of bytes."""

    entries: list[LogEntry]
    cursor: LogCursor  #: behind the last entry
    before: LogCursor | None  #: before the first entry; None if there are no earlier ones
    end: LogCursor | None  #: the current end; None if the request had a cursor
    more: bool  #: whether later entries are available now
    ended: bool  #: whether the job has ended and there are no later entries
    replicas: tuple[str, ...]


class LogPages:
    """Reads log pages. Read-only. Thread-safe.

    Between pages, in either direction, no entry is lost or repeated.
    """

    def __init__(self, jobs: JobStore, home: Home) -> None:
        self._jobs = jobs
        self._home = home

    def page(self, project: str, job_id: str, request: LogPageRequest, work: WorkBudget | None = None) -> LogPage:
        """Return a page. It is short if the work that the request may do is done before."""
        log = JobLog.open(self._jobs, self._home, project, job_id).of_trial(request.selection.trial)
        work = work or scan_budget()
        if request.before is None:
            return _page_after(log, request, work)
        return _page_before(log, request, request.before, work)

    def sizes(self, project: str, job_id: str, cursor: LogCursor) -> tuple[int, ...]:
        return sizes(self._home, project, job_id, cursor)


def _page_after(log: JobLog, request: LogPageRequest, work: WorkBudget) -> LogPage:
    end = log.end() if request.cursor is None else None
    start = request.cursor or _start(log, request.selection, end)
    positions = log.positions(start)
    if start.seeking and (missing := _seek(log, positions, request.selection, start.seeking, work)):
        entries, done, before = list[LogEntry](), False, None
        cursor = replace(_cursor(positions), seeking=missing)
    else:
        before = _cursor(positions)
        records = log.forwards(positions, log.positions(request.until) if request.until else None)
        entries, done = log.take(
            records, request.selection.matches, positions, limit=request.page_size, back=False, work=work
        )
        cursor = _cursor(positions)
    return LogPage(
        entries=entries,
        cursor=cursor,
        before=before if before is not None and any(log.positions(before)) else None,
        end=end,
        more=not done,
        ended=log.job.ended and done,
        replicas=_replicas(log.job),
    )


def _page_before(log: JobLog, request: LogPageRequest, before: LogCursor | str, work: WorkBudget) -> LogPage:
    end = before if isinstance(before, LogCursor) else log.end()
    positions = log.positions(end)
    entries, done = log.take(
        log.backwards(positions), request.selection.matches, positions, limit=request.page_size, back=True, work=work
    )
    more = isinstance(before, LogCursor)
    return LogPage(
        entries=entries[::-1],
        cursor=end,
        before=None if done else _cursor(positions),
        end=None if more else end,
        more=more,
        ended=log.job.ended and not more,
        replicas=_replicas(log.job),
    )


def _start(log: JobLog, selection: LogSelection, end: LogCursor | None) -> LogCursor:
    """Return where a reader without a cursor starts: at the top, at a time, or at the end to seek the tail."""
    if selection.tail is None:
        return log.since(selection.since_us)
    return replace(end or log.end(), seeking=selection.tail)


def _seek(log: JobLog, positions: Positions, selection: LogSelection, seeking: int, work: WorkBudget) -> int:
    """Move the positions back over the matching records of the tail. Returns how many are still missing.

    Returns 0 also if there are no more.
    """
    records = takewhile(lambda item: item[0].time_us >= selection.since_us, log.backwards(positions))
    entries, done = log.take(records, selection.matches, positions, limit=seeking, back=True, work=work)
    return 0 if done else seeking - len(entries)


def _cursor(positions: Positions) -> LogCursor:
    return LogCursor(positions[0], tuple(positions[1:]))


def _replicas(job: Job) -> tuple[str, ...]:
    """Return the names that records may have."""
    return (*(replica.name for replica in gang(job.workload)), SERVICE)
