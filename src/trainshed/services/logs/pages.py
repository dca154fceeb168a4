"""A job's lines in pages: the last ones, those before a page, and those that have come since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from trainshed.config import Home
from trainshed.domain.jobs.gang import gang
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.workload import workload_of
from trainshed.domain.logs import SERVICE, LogCursor, LogEntry, LogSelection
from trainshed.domain.times import rfc3339
from trainshed.errors import InvalidArgumentError
from trainshed.services.logs.job_log import JobLog, Positions, Sourced, sizes
from trainshed.store.jobs import JobStore

DEFAULT_LINES = 1000
MAX_LINES = 5000
PAGE_BYTES = 8 << 20  #: a page is cut after about as much text
SCAN_BYTES = 8 << 20  #: one request looks at about as much; its cursors lead on from there
_OVERHEAD = 256  #: what a line costs besides its text


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPageRequest:
    """Which page is wanted: with neither `after` nor `before`, the last one."""

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
        """The same, from another place on."""
        return replace(self, after=after)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Lines in order, between two places. It may be short, even empty: one request looks at so many bytes only."""

    entries: list[LogEntry]
    cursor: LogCursor  #: behind its last line
    before: LogCursor | None  #: in front of its first line; None: there are none before
    more: bool  #: whether there is more behind it already
    ended: bool  #: whether the job has ended and nothing is behind it
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
        "text": entry.message,
    }


class LogPages:
    """Reads only. Threads may share it. From page to page, in either direction, no line is lost or repeated."""

    def __init__(self, jobs: JobStore, home: Home) -> None:
        self._jobs = jobs
        self._home = home

    def page(self, project: str, job_id: str, wanted: LogPageRequest) -> LogPage:
        log = JobLog.open(self._jobs, self._home, project, job_id)
        if wanted.after is not None:
            return _since(log, wanted, wanted.after)
        return _until(log, wanted, wanted.before or log.end())

    def sizes(self, project: str, job_id: str, cursor: LogCursor) -> tuple[int, ...]:
        return sizes(self._home, project, job_id, cursor)


def _since(log: JobLog, wanted: LogPageRequest, start: LogCursor) -> LogPage:
    places = log.places(start)
    found, done = _taken(log.forwards(places), places, wanted, back=False)
    return LogPage(
        entries=[log.entry(*item) for item in found],
        cursor=_cursor(places),
        before=start,
        more=not done,
        ended=log.job.ended and done,
        replicas=_replicas(log.job),
    )


def _until(log: JobLog, wanted: LogPageRequest, end: LogCursor) -> LogPage:
    places = log.places(end)
    found, done = _taken(log.backwards(places), places, wanted, back=True)
    more = wanted.before is not None
    return LogPage(
        entries=[log.entry(*item) for item in reversed(found)],
        cursor=end,
        before=None if done else _cursor(places),
        more=more,
        ended=log.job.ended and not more,
        replicas=_replicas(log.job),
    )


def _taken(
    lines: Iterator[Sourced], places: Positions, wanted: LogPageRequest, *, back: bool
) -> tuple[list[Sourced], bool]:
    """The lines that match, up to a page of them, and whether there were no more. Moves the places past them."""
    found: list[Sourced] = []
    size = scanned = 0
    matches = wanted.selection.matches
    for item in lines:
        if len(found) == wanted.limit or size > PAGE_BYTES or scanned > SCAN_BYTES:
            return found, False
        line, source = item
        places[source] = line.start if back else line.end
        cost = len(line.message) + _OVERHEAD
        scanned += cost
        if matches(line):
            found.append(item)
            size += cost
    return found, True


def _cursor(places: Positions) -> LogCursor:
    return LogCursor(places[0], tuple(places[1:]))


def _replicas(job: Job) -> tuple[str, ...]:
    """Whose lines there may be."""
    return (*(replica.name for replica in gang(workload_of(job.body))), SERVICE)
