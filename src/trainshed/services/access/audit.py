"""The audit record: every change and every refused try.

An entry of a change in the database is committed in the transaction of the change. All other entries, those of objects
and of refused tries, are gathered and written within `FLUSH_INTERVAL_S`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from trainshed.background import BackgroundLoop
from trainshed.domain.access.audit import OK, AuditEntry, AuditSearch, masked
from trainshed.domain.page_tokens import decode_page_token, encode_page_token
from trainshed.domain.times import now_us
from trainshed.errors import InvalidArgumentError
from trainshed.store.audit import MAX_ID, AuditStore, insert
from trainshed.store.database import Rider, riding

LOG = logging.getLogger("trainshed.audit")

FLUSH_INTERVAL_S = 0.2
ROTATE_INTERVAL_S = 3600.0
DEFAULT_PAGE, MAX_PAGE = 50, 1000
MAX_GATHERED = 100_000  #: entries in memory while the database can't be written
MAX_REFUSED_PER_MINUTE = 30  #: entries of one address, user and project; further tries share one entry
_MAX_JOBS = 10_000  #: jobs and buckets whose first write is remembered
_MINUTE_US = 60_000_000
_DAY_US = 86_400_000_000


@dataclass(slots=True, kw_only=True)
class Trail:
    """What is known of a request, for its entry. The edge and handlers fill it in."""

    address: str = ""
    user: str = ""
    job: str = ""  #: the job whose code sends the request
    project: str = ""
    method: str = ""
    resource: str = ""
    changes: bool = False  #: whether a success is a change
    hidden: bool = False  #: whether it names another project's bucket
    rider: Rider | None = None

    def name(self, resource: str) -> None:
        """Add the name of what is created to the resource, which is the collection so far."""
        self.resource = f"{self.resource}/{resource}"


@dataclass(slots=True)
class _Refused:
    """Refused tries of one address, user and project within a minute."""

    began_us: int
    count: int = 0
    last: AuditEntry | None = None  #: the last one that has no entry of its own
    uncounted: int = 0  #: tries without an entry


class AuditLog:
    """Writes and reads the record. Thread-safe."""

    def __init__(
        self,
        store: AuditStore,
        *,
        retention_days: int = 400,
        max_entries: int = 1_000_000,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._store = store
        self._retention_us = retention_days * _DAY_US
        self._max_entries = max_entries
        self._clock = clock
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._gathered: list[AuditEntry] = []
        self._dropped = 0
        self._refused: dict[tuple[str, str, str], _Refused] = {}
        self._jobs: set[tuple[str, str, str]] = set()
        self._rotate_us = 0
        self._loop = BackgroundLoop("audit", self._step)

    def begin(self) -> None:
        """Start to write what is gathered."""
        self._loop.start()

    def close(self) -> None:
        """Write what is gathered, and stop."""
        self._loop.stop()
        self._loop.join()
        self._end_minutes(force=True)
        self.flush()

    def riding(self, trail: Trail) -> AbstractContextManager[None]:
        """Let the entry of a change join its transaction inside the block."""
        trail.rider = Rider(lambda tx: insert(tx, self._entry(trail, OK)))
        return riding(trail.rider)

    def end(self, trail: Trail, outcome: str, *, refused: bool) -> None:
        """Record the outcome of a request, if it is a change, or refused, and has no entry yet. Returns immediately."""
        committed = trail.rider is not None and trail.rider.committed
        if refused:
            self._refuse(self._entry(trail, outcome))
        elif outcome != OK:
            if committed:  # its entry says that it succeeded
                self._gather([self._entry(trail, outcome)])
        elif trail.changes and not committed and self._is_first(trail):
            self._gather([self._entry(trail, outcome)])

    def _entry(self, trail: Trail, outcome: str) -> AuditEntry:
        return AuditEntry(
            time_us=self._clock(),
            project=masked(trail.project),
            user=masked(trail.user),
            address=masked(trail.address),
            method=masked(trail.method),
            resource=masked(trail.resource),
            outcome=outcome,
        )

    def _is_first(self, trail: Trail) -> bool:
        """Return False if a job does the same again. Its first write to a bucket stands for all of them."""
        if not trail.job:
            return True
        bucket = "/".join(trail.resource.split("/")[:2])
        key = (trail.project, trail.job, bucket)
        with self._lock:
            if key in self._jobs:
                return False
            if len(self._jobs) >= _MAX_JOBS:
                self._jobs.clear()
            self._jobs.add(key)
        trail.resource = bucket
        return True

    def _refuse(self, entry: AuditEntry) -> None:
        """Gather a refused try, or count it if there were many within a minute, so that a flood fills no disk."""
        key = (entry.address, entry.user, entry.project)
        with self._lock:
            known = self._refused.get(key)
            if known is None and len(self._refused) >= _MAX_JOBS:
                key = ("", "", entry.project)  # more addresses than can be told apart share a count
                known = self._refused.get(key)
            if known is None:
                known = self._refused[key] = _Refused(entry.time_us)
            known.count += 1
            if known.count > MAX_REFUSED_PER_MINUTE:
                known.last, known.uncounted = entry, known.uncounted + 1
                return
        self._gather([entry])

    def _end_minutes(self, *, force: bool = False) -> None:
        """Gather one entry for each group of tries that have none of their own, after their minute."""
        now = self._clock()
        with self._lock:
            ended = [key for key, each in self._refused.items() if force or now - each.began_us >= _MINUTE_US]
            groups = [self._refused.pop(key) for key in ended]
        self._gather([replace(each.last, times=each.uncounted) for each in groups if each.last is not None])

    def _gather(self, entries: Sequence[AuditEntry]) -> None:
        if not entries:
            return
        with self._lock:
            free = MAX_GATHERED - len(self._gathered)
            self._gathered += entries[:free]
            self._dropped += len(entries[free:])
        self._loop.wake()

    def flush(self) -> None:
        """Write what is gathered. Raises `UnavailableError` or `DiskFullError` if it can't; then it stays gathered."""
        with self._flushing:
            with self._lock:
                entries, dropped = list(self._gathered), self._dropped
            if entries:
                self._store.append(entries)
            with self._lock:
                del self._gathered[: len(entries)]
                self._dropped -= dropped
        if dropped:
            LOG.error("audit.dropped entries=%d reason=the database could not be written for too long", dropped)

    def _step(self) -> float:
        self._loop.stopping.wait(FLUSH_INTERVAL_S)
        self._end_minutes()
        self.flush()
        if (now := self._clock()) >= self._rotate_us:
            deleted = self._store.rotate(before_us=now - self._retention_us, most=self._max_entries)
            self._rotate_us = now + int(ROTATE_INTERVAL_S * 1_000_000)
            if deleted:
                LOG.info("audit.rotated entries=%d", deleted)
        return 60.0 if self._refused else ROTATE_INTERVAL_S

    def between(self, project: str, since_us: int, until_us: int, *, descending: bool) -> Iterator[AuditEntry]:
        """Yield the entries of a project with a time in the range, in order."""
        return self._store.between(project, since_us, until_us, descending=descending)

    def page(self, search: AuditSearch, *, limit: int, page_token: str = "", after: str = "") -> dict[str, Any]:
        """Return a page of entries, the newest first. With `after`, those committed after that cursor, oldest first."""
        self.flush()
        limit = min(limit or DEFAULT_PAGE, MAX_PAGE)
        if after:
            if not (after.isascii() and after.isdigit() and len(after) < 19):
                raise InvalidArgumentError("`after` must be a cursor from an earlier response.", field="after")
            entries = self._store.after(search, int(after), limit=limit)
            cursor = str(entries[-1].id) if entries else after
            return {"entries": [entry.line() for entry in entries], "cursor": cursor, "nextPageToken": ""}
        last_id = self._store.last_id()
        before = _position(page_token) if page_token else (MAX_ID, MAX_ID)
        entries = self._store.newest(search, before=before, limit=limit)
        more = encode_page_token((entries[-1].time_us, entries[-1].id)) if len(entries) == limit else ""
        return {"entries": [entry.line() for entry in entries], "cursor": str(last_id), "nextPageToken": more}


def _position(page_token: str) -> tuple[int, int]:
    match decode_page_token(page_token):
        case [int(time_us), int(entry_id)] if 0 <= time_us < MAX_ID and 0 <= entry_id < MAX_ID:
            return time_us, entry_id
    raise InvalidArgumentError("This page token is not one of this list. Start without one.", field="pageToken")
