"""Directories, one component at a time from a descriptor, never through a symbolic link."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from trainshed.buckets.attributes import has_mark
from trainshed.errors import FailedPrecondition, OutOfSpace

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
            raise OutOfSpace(
                "The disk that holds the buckets is full; nothing was stored. Free some space and try again."
            ) from exc
        if exc.errno in (errno.EACCES, errno.EPERM):
            raise FailedPrecondition(
                "A file or folder behind this object has permissions that keep the server out. Change them with chmod."
            ) from exc
        raise


@contextmanager
def opened(root: Path, parts: Sequence[str]) -> Iterator[int]:
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
def made(root: Path, parts: Sequence[str]) -> Iterator[int]:
    """Like `opened`, and makes what is missing, durably. `FailedPrecondition` where an object is in the way."""
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
                raise FailedPrecondition(
                    f"{shown} is an object, so nothing can be stored below {shown}/: objects are files here, and their "
                    f"folders can't have the name of a file. Delete it first, or choose another name."
                ) from None
        with suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=folder)
            os.fsync(folder)
    raise FailedPrecondition(f"The folder {shown} is deleted as fast as it is made. Try again.")


def prune(root: Path, parts: Sequence[str], *, keep: int) -> None:
    """Remove the folder at `parts` and those above it as far as they are empty and have no mark. `keep` always stay."""
    while len(parts) > keep:
        try:
            with opened(root, parts[:-1]) as above:
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


def clear_empty(part: str, *, folder: int) -> bool:
    """Remove a folder that holds nothing but empty folders. False, with the rest left, if there is more in it."""
    below = open_folder(part, folder=folder)
    try:
        if has_mark(below):
            return False
        with os.scandir(below) as entries:
            names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        if not all(is_folder and clear_empty(name, folder=below) for name, is_folder in names):
            return False
    finally:
        os.close(below)
    os.rmdir(part, dir_fd=folder)
    return True
