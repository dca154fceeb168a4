"""Directories, one component at a time from a descriptor, never through a symbolic link."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from trainshed.buckets.xattrs import has_mark
from trainshed.errors import DiskFullError, FailedPreconditionError, UnavailableError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not keep us waiting

#: what opening beneath a directory says where there is nothing that we would open
ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})


@contextmanager
def disk_errors() -> Iterator[None]:
    """A full disk, and a file that its owner closed to everyone, in the words of `errors`."""
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                "The disk that holds the buckets is full; nothing was stored. Free some space and try again."
            ) from exc
        if exc.errno in (errno.EACCES, errno.EPERM):
            raise FailedPreconditionError(
                "A file or folder behind this object has permissions that keep the server out. Change them with chmod."
            ) from exc
        raise


@contextmanager
def open_directory(root: Path, parts: Sequence[str]) -> Iterator[int]:
    """A descriptor of the folder at `parts` below `root`, closed at the end. OSError with an errno in ABSENT."""
    fd = os.open(root, _FOLDER)
    try:
        for part in parts:
            below = os.open(part, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def open_file(part: str, *, folder: int) -> int:
    """A descriptor for reading what lies there, whatever it is. The caller closes it."""
    return os.open(part, _FILE, dir_fd=folder)


def open_folder(part: str, *, folder: int) -> int:
    return os.open(part, _FOLDER, dir_fd=folder)


@contextmanager
def make_directories(root: Path, parts: Sequence[str]) -> Iterator[int]:
    """Like `open_directory`, and makes what is missing, durably.

    `FailedPreconditionError` where an object is in the way.
    """
    fd = os.open(root, _FOLDER)
    try:
        for depth, part in enumerate(parts):
            below = _enter(part, folder=fd, shown="/".join(parts[1 : depth + 1]))
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def _enter(part: str, *, folder: int, shown: str) -> int:
    for _ in range(100):  # whoever deletes the last object of a folder removes the folder
        with suppress(FileNotFoundError):
            try:
                return open_folder(part, folder=folder)
            except NotADirectoryError:
                raise FailedPreconditionError(
                    f"{shown} is an object, so nothing can be stored below {shown}/: objects are files here, and their "
                    f"folders can't have the name of a file. Delete it first, or choose another name."
                ) from None
        with suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=folder)
            os.fsync(folder)
    raise FailedPreconditionError(f"The folder {shown} is deleted as fast as it is made. Try again.")


def prune(root: Path, parts: Sequence[str], *, keep: int) -> None:
    """Remove the folder at `parts` and those above it as far as they are empty and have no mark. `keep` always stay."""
    while len(parts) > keep:
        try:
            with open_directory(root, parts[:-1]) as above:
                below = open_folder(parts[-1], folder=above)
                try:
                    marked = has_mark(below)
                finally:
                    os.close(below)
                if marked:
                    return
                os.rmdir(parts[-1], dir_fd=above)
        except OSError as exc:
            if exc.errno in (errno.ENOTEMPTY, errno.EEXIST) or exc.errno in ABSENT:
                return
            raise
        parts = parts[:-1]


class DirectoryWalk:
    """Goes down and up in a tree of folders however deep it is, with one descriptor and without recursion.

    Going up leads to the folder one came from, or raises `UnavailableError` if the tree was moved about meanwhile.
    """

    def __init__(self, folder: int) -> None:
        """Begins at `folder`, which stays the caller's."""
        self.fd = os.dup(folder)
        self._above: list[tuple[str, os.stat_result]] = []

    def down(self, name: str) -> None:
        """OSError with an errno in ABSENT, without having moved, if there is no such folder."""
        below = open_folder(name, folder=self.fd)
        self._above.append((name, os.fstat(self.fd)))
        self._hold(below)

    def up(self) -> str:
        """The name, in the folder where one is now, of the folder that was left."""
        name, status = self._above.pop()
        with suppress(FileNotFoundError):
            self._hold(open_folder("..", folder=self.fd))
            if os.path.samestat(os.fstat(self.fd), status):
                return name
        raise UnavailableError(f"The folder {name} was moved while it was looked through. Try again.")

    def _hold(self, fd: int) -> None:
        os.close(self.fd)
        self.fd = fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        os.close(self.fd)


def clear_empty(part: str, *, folder: int) -> bool:
    """Remove a folder that holds nothing but empty folders. False, with the rest left, if there is more in it."""

    def folders_only(place: int) -> list[str] | None:
        with os.scandir(place) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        return None if has_mark(place) or not all(is_folder for _, is_folder in found) else [name for name, _ in found]

    return _remove(part, folder=folder, look=folders_only)


def remove_tree(part: str, *, folder: int) -> None:
    """Remove a folder and all that is in it, however deep. OSError, with some of it left, where that can't be done."""

    def emptied(place: int) -> list[str]:
        with os.scandir(place) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_folder in found:
            if not is_folder:
                os.unlink(name, dir_fd=place)
        return [name for name, is_folder in found if is_folder]

    _remove(part, folder=folder, look=emptied)


def _remove(part: str, *, folder: int, look: Callable[[int], list[str] | None]) -> bool:
    """Remove a tree from its leaves on. `look` gives the folders in a folder, or None to stop there."""
    with DirectoryWalk(folder) as place:
        levels = [[part]]
        while True:
            if levels[-1]:
                place.down(levels[-1].pop())
                below = look(place.fd)
                if below is None:
                    return False
                levels.append(below)
                continue
            levels.pop()
            os.rmdir(place.up(), dir_fd=place.fd)
            if len(levels) == 1:
                return True
