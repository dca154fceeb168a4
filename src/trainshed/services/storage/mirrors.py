"""Local mirrors of event files in cloud buckets, extended as the files grow."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from trainshed.buckets.checksums import PIECE
from trainshed.buckets.names import components
from trainshed.buckets.staging import ObjectReader
from trainshed.domain.objects import ListQuery, ObjectInfo, ObjectPage
from trainshed.domain.times import now_us
from trainshed.errors import InvalidArgumentError, TrainshedError

LOG = logging.getLogger("trainshed.mirrors")

REFRESH_INTERVAL_US = 5_000_000  #: between two refreshes of a folder
BACKOFF_US = 60_000_000  #: between two refreshes if the last one failed
MAX_NAMES = 4000  #: objects listed per refresh
MAX_FILES = 64
MAX_BYTES = 256 << 20  #: per folder
MIRROR_RETENTION_US = 3600_000_000  #: after the last request for a folder
_SECOND_US = 1_000_000  #: clouds report whole seconds: a file was written within one


class ListableBuckets(Protocol):
    """Access to bucket backends, as mirrors need it."""

    def cloud_of(self, bucket: str) -> str: ...

    def list(self, bucket: str, query: ListQuery) -> ObjectPage: ...

    def open(self, bucket: str, name: str) -> ObjectReader: ...


@dataclass(slots=True)
class _Mirror:
    """The state of one mirrored folder."""

    requested_us: int  #: time of the last request
    next_us: int = 0  #: the next refresh is due
    complete_us: int = 0  #: time of the last complete refresh
    failed: bool = False  #: whether the last refresh failed
    lock: threading.Lock = field(default_factory=threading.Lock)


class Mirrors:
    """Mirrors in `root/BUCKET/NAME`, a folder of the server's own. Thread-safe."""

    def __init__(self, root: Path, backend: ListableBuckets, *, clock: Callable[[], int] = now_us) -> None:
        self.root = root
        self._backend = backend
        self._clock = clock
        self._lock = threading.Lock()
        self._mirrors: dict[tuple[str, ...], _Mirror] = {}

    def clear(self) -> None:
        """Remove the mirrors of an earlier server."""
        shutil.rmtree(self.root, ignore_errors=True)

    def serves(self, folder: tuple[str, ...]) -> bool:
        """Return whether a folder, given with its bucket first, is in a cloud bucket."""
        return bool(self._backend.cloud_of(folder[0]))

    def refresh(self, folder: tuple[str, ...], *, ended_us: int | None = None) -> None:
        """Copy what is new below a folder, unless it was refreshed just now. Errors of a cloud are logged.

        Files written until `ended_us` are complete afterwards.
        """
        now = self._clock()
        self._remove_expired(now)
        with self._lock:
            mirror = self._mirrors.setdefault(folder, _Mirror(requested_us=now))
        with mirror.lock:
            mirror.requested_us = now
            late = ended_us is not None and mirror.complete_us <= ended_us and not mirror.failed
            if now < mirror.next_us and not late:
                return
            mirror.next_us, mirror.failed = now + REFRESH_INTERVAL_US, False
            try:
                budget = MAX_BYTES
                for info in self._event_files(folder):
                    budget -= self._append(info, budget)
                mirror.complete_us = now
            except (TrainshedError, OSError) as exc:
                mirror.next_us, mirror.failed = now + BACKOFF_US, True
                LOG.warning("mirror.behind folder=gs://%s reason=%r", "/".join(folder), str(exc))

    def _remove_expired(self, now: int) -> None:
        """Remove mirrors that were not requested for long."""
        with self._lock:
            expired = [
                folder
                for folder, mirror in self._mirrors.items()
                if mirror.requested_us + MIRROR_RETENTION_US < now and not mirror.lock.locked()
            ]
            for folder in expired:
                del self._mirrors[folder]
        for folder in expired:
            shutil.rmtree(self.root.joinpath(*folder), ignore_errors=True)

    def _event_files(self, folder: tuple[str, ...]) -> Iterator[ObjectInfo]:
        query = ListQuery(prefix="".join(f"{part}/" for part in folder[1:]), checksums=False)
        names = files = 0
        while names < MAX_NAMES:
            page = self._backend.list(folder[0], query)
            for item in page.items:
                if "tfevents" in item.name.rpartition("/")[2] and files < MAX_FILES:
                    files += 1
                    yield item
            names += len(page.items)
            if not page.next:
                return
            query = replace(query, after=page.next)

    def _append(self, info: ObjectInfo, max_bytes: int) -> int:
        """Append what a file has beyond its copy. Returns the size of the copy.

        A file shorter than its copy was replaced, and is copied again.
        """
        try:
            copy = self.root.joinpath(info.bucket, *components(info.name))
        except InvalidArgumentError:
            return 0  # not a valid file name
        size = min(info.size, max_bytes)
        copied = copy.stat().st_size if copy.is_file() else 0
        if copied > size:
            copy.unlink()
            copied = 0
        if copied == size:
            return size
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._backend.open(info.bucket, info.name) as reader, open(copy, "ab") as file:
            for offset in range(copied, min(size, reader.info.size), PIECE):
                file.write(reader.read(offset, min(PIECE, size - offset)))
        written_us = info.created_us + _SECOND_US
        with suppress(FileNotFoundError):
            os.utime(copy, ns=(written_us * 1000, written_us * 1000))
        return size
