"""Atomic files: a reader finds the old content or the new one, never a part. And holes of files."""

from __future__ import annotations

import contextlib
import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO, Union

    StrPath = Union[str, os.PathLike[str]]

DRAFT_PREFIX = ".new-"  #: of the names of drafts, which a killed process leaves


@contextlib.contextmanager
def atomic_file(path: StrPath, mode: int = 0o600, durable: bool = False) -> Iterator[BinaryIO]:
    """A new file that takes its name when the block succeeds, and is removed if the block raises.

    With `durable`, the file is on disk when the block is left. Thread-safe.
    """
    folder = os.path.dirname(os.fspath(path))
    draft = os.path.join(folder, DRAFT_PREFIX + os.urandom(16).hex())  # containers can have the same pids
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(fd, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(fd)
        os.rename(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
    if durable:
        sync_folder(folder)


def write_file(path: StrPath, content: bytes, mode: int = 0o600, durable: bool = False) -> None:
    """Replace a file atomically, as `atomic_file` does."""
    with atomic_file(path, mode, durable) as file:
        file.write(content)


def sync_folder(folder: StrPath) -> None:
    """Blocks until the names in a folder are on disk."""
    fd = os.open(folder or os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def next_data(fd: int, offset: int) -> int:
    """The first offset, `offset` or later, that is not in a hole. Returns the size if only a hole follows."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as exc:
        if exc.errno != errno.ENXIO:
            raise
        return os.fstat(fd).st_size
