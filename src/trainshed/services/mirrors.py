"""Event files of trainings in buckets that are kept in a cloud: copied here, as far as they are written, to be read."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from trainshed.buckets.checksums import PIECE
from trainshed.buckets.names import components
from trainshed.buckets.staging import Reader
from trainshed.domain.objects import ListQuery, ObjectInfo, Page
from trainshed.domain.times import now_us
from trainshed.errors import Invalid, TrainshedError

LOG = logging.getLogger("trainshed.mirrors")

LOOK_US = 5_000_000  #: between two looks at the same folder
BACK_OFF_US = 60_000_000  #: the same, if the last one failed
MAX_NAMES = 4000  #: looked at in one look
MAX_FILES = 64
MAX_BYTES = 64 << 20  #: of one file
_SECOND_US = 1_000_000  #: a cloud tells whole seconds; a file was written in one of them


class Shelves(Protocol):
    """The buckets, as far as they are looked through here."""

    def cloud_of(self, bucket: str) -> str: ...

    def list(self, bucket: str, query: ListQuery) -> Page: ...

    def open(self, bucket: str, name: str) -> Reader: ...


class Mirrors:
    """`root/BUCKET/NAME`, below a folder of the server's own. Threads may share it."""

    def __init__(self, root: Path, shelves: Shelves, *, clock: Callable[[], int] = now_us) -> None:
        self.root = root
        self._shelves = shelves
        self._clock = clock
        self._guard = threading.Lock()
        self._locks: dict[tuple[str, ...], threading.Lock] = {}
        self._next_us: dict[tuple[str, ...], int] = {}  #: when a folder may be looked at again
        self._looked_us: dict[tuple[str, ...], int] = {}

    def clear(self) -> None:
        """Forget what an earlier server copied."""
        shutil.rmtree(self.root, ignore_errors=True)

    def serves(self, folder: tuple[str, ...]) -> bool:
        """Whether a folder, its bucket first, is one of a bucket in a cloud."""
        return bool(self._shelves.cloud_of(folder[0]))

    def refresh(self, folder: tuple[str, ...], *, ended_us: int | None = None) -> None:
        """Copy what is new below a folder, unless that was done just now. A cloud that fails is logged.

        What was written until `ended_us` is there afterwards.
        """
        with self._guard:
            lock = self._locks.setdefault(folder, threading.Lock())
        with lock:
            now = self._clock()
            looked = self._looked_us.get(folder, 0)
            if now < self._next_us.get(folder, 0) and not (ended_us is not None and looked <= ended_us):
                return
            self._looked_us[folder], self._next_us[folder] = now, now + LOOK_US
            try:
                for info in self._found(folder):
                    self._follow(info)
            except (TrainshedError, OSError) as exc:
                self._looked_us[folder], self._next_us[folder] = looked, now + BACK_OFF_US
                LOG.warning("mirror.behind folder=gs://%s reason=%r", "/".join(folder), str(exc))

    def _found(self, folder: tuple[str, ...]) -> Iterator[ObjectInfo]:
        query = ListQuery(prefix="".join(f"{part}/" for part in folder[1:]), checksums=False)
        names = files = 0
        while names < MAX_NAMES:
            page = self._shelves.list(folder[0], query)
            for item in page.items:
                if "tfevents" in item.name.rpartition("/")[2] and files < MAX_FILES:
                    files += 1
                    yield item
            names += len(page.items)
            if not page.next:
                return
            query = replace(query, after=page.next)

    def _follow(self, info: ObjectInfo) -> None:
        """Append what a file has more than its copy. One that is shorter than its copy is another one."""
        try:
            copy = self.root.joinpath(info.bucket, *components(info.name))
        except Invalid:
            return  # a name that no file can have
        size = min(info.size, MAX_BYTES)
        have = copy.stat().st_size if copy.is_file() else 0
        if have > size:
            copy.unlink()
            have = 0
        if have == size:
            return
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._shelves.open(info.bucket, info.name) as reader, open(copy, "ab") as file:
            for offset in range(have, min(size, reader.info.size), PIECE):
                file.write(reader.read(offset, min(PIECE, size - offset)))
        written_us = info.created_us + _SECOND_US
        with suppress(FileNotFoundError):
            os.utime(copy, ns=(written_us * 1000, written_us * 1000))
