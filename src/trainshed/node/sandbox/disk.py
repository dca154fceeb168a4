"""Counts what a cell has on the disk: files in its own folders, and files that it has removed but keeps open.

Folders are walked in short steps, so that whoever counts can do other work between them.
"""

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Optional

_STEP_S = 0.01  #: at most, without other work
_PAUSE_S = 0.05  #: between two steps
_FASTEST_BYTES_PER_S = 1e9  #: at which a disk is assumed to be filled
_MIN_INTERVAL_S, _MAX_INTERVAL_S = 0.5, 5.0  #: between two walks
_MOST_OF_TIME = 0.05  #: that walks take
_BLOCK_BYTES = 512  #: of `st_blocks`, on every file system


class DiskUse:
    """Walks folders again and again."""

    def __init__(self, folders: Iterable[str], limit: int) -> None:
        self._folders = tuple(folders)
        self._limit = limit
        self._walk: Optional[Iterator[int]] = None
        self._used = 0
        self._took_s = 0.0

    def look(self, pids: Iterable[int], now_s: float) -> tuple[Optional[int], float]:
        """Count on for a moment. Returns the bytes in use if they are more than the limit, and when the next look is
        due."""
        began = time.monotonic()
        if self._walk is None:
            self._walk, self._used, self._took_s = _sizes(self._folders, list(pids)), 0, 0.0
        for size in self._walk:
            self._used += size
            if self._used > self._limit:
                self._walk = None
                return self._used, now_s + _MIN_INTERVAL_S
            if time.monotonic() - began > _STEP_S:
                self._took_s += time.monotonic() - began
                return None, now_s + _PAUSE_S
        self._walk = None
        self._took_s += time.monotonic() - began
        wait_s = (self._limit - self._used) / _FASTEST_BYTES_PER_S / 2
        wait_s = max(_MIN_INTERVAL_S, self._took_s / _MOST_OF_TIME, min(wait_s, _MAX_INTERVAL_S))
        return None, now_s + wait_s


def _sizes(folders: tuple[str, ...], pids: list[int]) -> Iterator[int]:
    """The size of each file. 0 for what needs no counting, so that a walk of many of these can pause too."""
    linked: set[tuple[int, int]] = set()
    waiting = list(folders)
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    yield _size(entry, waiting, linked)
        except OSError:
            yield 0  # it was removed meanwhile, or its owner has closed it to all
    devices = {os.stat(folder).st_dev for folder in folders if os.path.isdir(folder)}
    for pid in pids:
        yield from _removed_files(pid, devices, linked)


def _size(entry: os.DirEntry[str], folders: list[str], linked: set[tuple[int, int]]) -> int:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:  # it was removed meanwhile
        return 0
    if stat.S_ISDIR(status.st_mode):
        folders.append(entry.path)
    return _bytes_once(status, linked)


def _removed_files(pid: int, devices: set[int], counted: set[tuple[int, int]]) -> Iterator[int]:
    """Files on these devices that a process has open, but that have no name any more."""
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:  # it has exited
        return
    for name in names:
        try:
            status = os.stat(os.path.join(folder, name))
        except OSError:
            continue  # it was closed
        on_disk = stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev in devices
        yield _bytes_once(status, counted) if on_disk else 0


def _bytes_once(status: os.stat_result, counted: set[tuple[int, int]]) -> int:
    """What a file takes. Nothing if it was counted under another name."""
    if status.st_nlink != 1 and not stat.S_ISDIR(status.st_mode):
        key = (status.st_dev, status.st_ino)
        if key in counted:
            return 0
        counted.add(key)
    return status.st_blocks * _BLOCK_BYTES
