"""Checksums of large files that other programs wrote, computed one by one in a thread that nobody waits for."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from trainshed.buckets.checksums import checksums_of
from trainshed.domain.objects import ObjectInfo

LOG = logging.getLogger("trainshed.buckets")

MAX_QUEUED = 1024  #: files; a further one is left out, and the next read of it tries again
MAX_REMEMBERED = 256  #: files whose checksums could not be stored on the file
MAX_MD5_BYTES = 64 << 30  #: MD5 takes a core some two minutes for these; a larger file has a CRC32C alone
MAX_MD5_HOLE_BYTES = 1 << 30  #: a file with larger holes has a CRC32C alone, which need not read them
_STABLE_AFTER_S = 1.1  #: a file that was written just now may be written to again, with the same time
_NICE = 10  #: the priority of the thread: below requests

Key = tuple[str, str, int, int]  #: bucket, name, generation and size
Sums = tuple[str, str]  #: MD5 and CRC32C


class _FileChanged(Exception):  # noqa: N818 - a signal, not an error
    """The file was written to, so the checksums would be of no use."""


class BackgroundChecksums:
    """A queue of files and the thread that reads them. Thread-safe.

    The thread is a daemon that ends with the queue: a server that stops does not wait for it.
    """

    def __init__(
        self, open_file: Callable[[str, str], tuple[int, ObjectInfo]], store: Callable[[int, ObjectInfo, Sums], bool]
    ) -> None:
        """`open_file` opens a file, and `store` returns whether it wrote the checksums to the file. Both may raise."""
        self._open_file = open_file
        self._store = store
        self._lock = threading.Lock()
        self._queue: OrderedDict[Key, None] = OrderedDict()
        self._remembered: OrderedDict[Key, Sums] = OrderedDict()
        self._current: Key | None = None
        self._running = False

    def request(self, info: ObjectInfo) -> Sums | None:
        """Return the checksums if they are known. Otherwise, queue the file."""
        key = (info.bucket, info.name, info.generation, info.size)
        with self._lock:
            if key in self._remembered:
                self._remembered.move_to_end(key)
                return self._remembered[key]
            if key != self._current and key not in self._queue and len(self._queue) < MAX_QUEUED:
                self._queue[key] = None
                if not self._running:
                    self._running = True
                    threading.Thread(target=self._run, name="checksums", daemon=True).start()
        return None

    def _run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while True:
            with self._lock:
                self._current = self._queue.popitem(last=False)[0] if self._queue else None
                if self._current is None:
                    self._running = False
                    return
                key = self._current
            try:
                self._read(key)
            except _FileChanged:
                pass  # the next read of its metadata queues it again
            except Exception as exc:  # noqa: BLE001  one file must not keep the others from their checksums
                LOG.warning("buckets.no_checksums bucket=%s name=%r reason=%r", key[0], key[1], str(exc))

    def _read(self, key: Key) -> None:
        fd, info = self._open_file(key[0], key[1])
        try:
            if (info.generation, info.size) != key[2:] or info.crc32c:
                return
            status = os.fstat(fd)
            time.sleep(min(max(status.st_mtime + _STABLE_AFTER_S - time.time(), 0), _STABLE_AFTER_S))

            def check(size: int) -> None:
                if os.fstat(fd).st_mtime_ns != status.st_mtime_ns:
                    raise _FileChanged

            holes = info.size - status.st_blocks * 512
            with_md5 = info.size <= MAX_MD5_BYTES and holes <= MAX_MD5_HOLE_BYTES
            check(0)
            sums = checksums_of(fd, size=info.size, with_md5=with_md5, on_read=check)
            if not self._store(fd, info, (sums.md5, sums.crc32c)):
                with self._lock:
                    self._remembered[key] = (sums.md5, sums.crc32c)
                    if len(self._remembered) > MAX_REMEMBERED:
                        self._remembered.popitem(last=False)
        finally:
            os.close(fd)
