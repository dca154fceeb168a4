"""Event files of trainings in buckets that are kept in a cloud: copied here, as far as they are written, to be read."""

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

LOOK_US = 5_000_000  #: between two looks at the same folder
BACK_OFF_US = 60_000_000  #: the same, if the last one failed
MAX_NAMES = 4000  #: looked at in one look
MAX_FILES = 64
MAX_BYTES = 256 << 20  #: of all files of a folder
KEPT_US = 3600_000_000  #: after the last look at a folder
_SECOND_US = 1_000_000  #: a cloud tells whole seconds; a file was written in one of them


class ListableBuckets(Protocol):
    """The buckets, as far as they are looked through here."""

    def cloud_of(self, bucket: str) -> str: ...

    def list(self, bucket: str, query: ListQuery) -> ObjectPage: ...

    def open(self, bucket: str, name: str) -> ObjectReader: ...


@dataclass(slots=True)
class _Look:
    """At one folder."""

    wanted_us: int  #: when somebody last asked for it
    next_us: int = 0  #: before this, it is not looked at again
    done_us: int = 0  #: the last one that found everything
    failed: bool = False  #: the last one of all
    lock: threading.Lock = field(default_factory=threading.Lock)


class Mirrors:
    """`root/BUCKET/NAME`, below a folder of the server's own. Threads may share it."""

    def __init__(self, root: Path, shelves: ListableBuckets, *, clock: Callable[[], int] = now_us) -> None:
        self.root = root
        self._shelves = shelves
        self._clock = clock
        self._guard = threading.Lock()
        self._looks: dict[tuple[str, ...], _Look] = {}

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
        now = self._clock()
        self._forget(now)
        with self._guard:
            look = self._looks.setdefault(folder, _Look(wanted_us=now))
        with look.lock:
            look.wanted_us = now
            late = ended_us is not None and look.done_us <= ended_us and not look.failed
            if now < look.next_us and not late:
                return
            look.next_us, look.failed = now + LOOK_US, False
            try:
                left = MAX_BYTES
                for info in self._found(folder):
                    left -= self._follow(info, left)
                look.done_us = now
            except (TrainshedError, OSError) as exc:
                look.next_us, look.failed = now + BACK_OFF_US, True
                LOG.warning("mirror.behind folder=gs://%s reason=%r", "/".join(folder), str(exc))

    def _forget(self, now: int) -> None:
        """Remove copies that nobody has looked at for long."""
        with self._guard:
            old = [
                folder
                for folder, look in self._looks.items()
                if look.wanted_us + KEPT_US < now and not look.lock.locked()
            ]
            for folder in old:
                del self._looks[folder]
        for folder in old:
            shutil.rmtree(self.root.joinpath(*folder), ignore_errors=True)

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

    def _follow(self, info: ObjectInfo, most: int) -> int:
        """Append what a file has more than its copy, and say how large that is then.

        One that is shorter than its copy is another one.
        """
        try:
            copy = self.root.joinpath(info.bucket, *components(info.name))
        except InvalidArgumentError:
            return 0  # a name that no file can have
        size = min(info.size, most)
        have = copy.stat().st_size if copy.is_file() else 0
        if have > size:
            copy.unlink()
            have = 0
        if have == size:
            return size
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._shelves.open(info.bucket, info.name) as reader, open(copy, "ab") as file:
            for offset in range(have, min(size, reader.info.size), PIECE):
                file.write(reader.read(offset, min(PIECE, size - offset)))
        written_us = info.created_us + _SECOND_US
        with suppress(FileNotFoundError):
            os.utime(copy, ns=(written_us * 1000, written_us * 1000))
        return size
