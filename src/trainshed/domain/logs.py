"""Log entries of a job, cursors into its log, and the selection of entries."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from trainshed.domain.filters.terms import SEVERITIES, Search, compile_pattern
from trainshed.domain.times import parse_rfc3339, rfc3339
from trainshed.errors import InvalidArgumentError

SERVICE = "service"  #: task name of the server's own messages

_CURSOR = re.compile(r"(?:\d{1,9}~)?\d{1,18}(?:\.\d{1,18}){0,3000}", re.ASCII)
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def insert_id(time_us: int, *, attempt: int, position: int) -> str:
    """A fixed-width id that sorts the entries of one job by time, source and position. Attempt 0 means events."""
    return f"{time_us:018d}-{attempt:04d}-{position:012d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One log entry, of a replica or of the service."""

    project: str
    job: str
    time_us: int
    replica: str
    severity: str
    message: str
    insert_id: str
    trial: int = 0  #: of a tuning job; 0 if the entry is of none

    @property
    def key(self) -> tuple[str, str, str]:
        """A unique key that orders the entries of all jobs by time."""
        return self.insert_id, self.project, self.job

    @property
    def trial_id(self) -> str:
        """The number of its trial as text. Empty if there is none."""
        return str(self.trial) if self.trial else ""

    def line(self) -> dict[str, str]:
        """The entry in Trainshed's own API."""
        return {
            "insertId": self.insert_id,
            "time": rfc3339(self.time_us),
            "replica": self.replica,
            "trial": self.trial_id,
            "severity": self.severity,
            "message": self.message,
        }

    def body(self) -> dict[str, Any]:
        """Cloud Logging's LogEntry. Times have a fixed width because gcloud compares them as strings."""
        timestamp = rfc3339(self.time_us, digits=9)
        return {
            "insertId": self.insert_id,
            "jsonPayload": {"created": self.time_us / 1e6, "levelname": self.severity, "message": self.message},
            "labels": {
                "ml.googleapis.com/job_id": self.job,
                "ml.googleapis.com/job_id/log_area": "root",
                "ml.googleapis.com/task_name": self.replica,
                "ml.googleapis.com/trial_id": self.trial_id,
            },
            "logName": f"projects/{self.project}/logs/{self.replica}",
            "receiveTimestamp": timestamp,
            "resource": {
                "labels": {"job_id": self.job, "project_id": self.project, "task_name": self.replica},
                "type": "ml_job",
            },
            "severity": self.severity,
            "timestamp": timestamp,
        }


class LogFields(Protocol):
    """The fields by which log records are selected."""

    @property
    def time_us(self) -> int: ...

    @property
    def replica(self) -> str: ...

    @property
    def severity(self) -> str: ...

    @property
    def message(self) -> str: ...


@dataclass(frozen=True, slots=True)
class LogCursor:
    """How far each source of a job's log was read: events by number, each attempt's file by offset.

    A time would not be enough: a record of one source can appear after a later one of another source was read.
    """

    events: int = 0
    offsets: tuple[int, ...] = ()  #: of attempt 1, 2, ...
    seeking: int = 0  #: for `tail`: matching entries before this cursor that are yet to be found

    def __str__(self) -> str:
        position = ".".join(map(str, (self.events, *self.offsets)))
        return f"{self.seeking}~{position}" if self.seeking else position

    @classmethod
    def read(cls, text: str, *, field: str = "cursor") -> Self:
        if not _CURSOR.fullmatch(text):
            raise InvalidArgumentError(f"`{field}` must be a cursor from an earlier response.", field=field)
        seeking, _, position = text.rpartition("~")
        events, *offsets = map(int, position.split("."))
        return cls(events, tuple(offsets), int(seeking or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """Which entries of a job's log a reader selects."""

    replica: str = ""  #: empty: all
    since_us: int = 0
    grep: str = ""  #: a regular expression; empty: all
    tail: int | None = None  #: start this many matching entries before the end
    severity: str = ""  #: the minimum; empty: all
    words: str = ""  #: plain text, case-insensitive; empty: all
    trial: int = 0  #: of a tuning job; 0: all, and entries of none. Selects sources of a log, so `matches` ignores it
    _search: Search | None = field(init=False, repr=False, compare=False)
    _rank: int = field(init=False, repr=False, compare=False)
    _folded: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "_search", compile_pattern(self.grep) if self.grep else None)
        except ValueError as exc:
            raise InvalidArgumentError(f"{exc}.", field="grep") from None
        if self.tail is not None and self.tail < 0:
            raise InvalidArgumentError("`tail` is a number of lines, 0 or more.", field="tail")
        if self.severity and self.severity not in SEVERITIES:
            known = ", ".join(SEVERITIES)
            raise InvalidArgumentError(
                f"{self.severity[:40]!r} is not a severity; these are: {known}.", field="severity"
            )
        object.__setattr__(self, "_rank", SEVERITIES.get(self.severity, 0))
        object.__setattr__(self, "_folded", self.words.casefold())

    def matches(self, record: LogFields) -> bool:
        return (
            record.time_us >= self.since_us
            and (not self.replica or record.replica == self.replica)
            and (not self._rank or SEVERITIES[record.severity] >= self._rank)
            and (not self._folded or self._folded in record.message.casefold())
            and (self._search is None or self._search(record.message))
        )


def parse_since(text: str, *, now_us: int) -> int:
    """Parse a time (`2026-11-15T21:17:35Z`) or an age (`90s`, `10m`, `2h`, `1d`). Returns microseconds."""
    if ago := _DURATION.fullmatch(text):
        return max(0, now_us - int(float(ago[1]) * _SECONDS[ago[2]] * 1_000_000))
    try:
        return max(0, parse_rfc3339(text))
    except (ValueError, OverflowError):
        raise InvalidArgumentError(
            f"`since` is a time like 2026-11-15T21:17:35Z or a duration like 90s, 10m, 2h or 1d; {text[:40]!r} is not.",
            field="since",
        ) from None
