"""Atomic files: a reader finds the old content or the new one, never a part. And holes of files."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Union

    StrPath = Union[str, os.PathLike[str]]

DRAFT_PREFIX = ".new-"  #: of the names of drafts, which a killed process leaves


class atomic_file:  # no `contextlib.contextmanager`: its import would take 1 ms of the start of every supervisor
    """A new file that takes its name when the block succeeds, and is removed if the block raises.

    With `durable`, the file is on disk when the block is left. Thread-safe.
    """

    def __init__(self, path: StrPath, mode: int = 0o600, durable: bool = False) -> None:
        self._path = path
        self._folder = os.path.dirname(os.fspath(path))
        self._draft = os.path.join(self._folder, DRAFT_PREFIX + os.urandom(16).hex())  # containers share pids
        self._mode = mode
        self._durable = durable

    def __enter__(self) -> BinaryIO:
        fd = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self._mode)
        self._file = open(fd, "wb")
        return self._file

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            with self._file:
                if kind is None:
                    self._file.flush()
                    if self._durable:
                        os.fsync(self._file.fileno())
            if kind is None:
                os.rename(self._draft, self._path)
        except BaseException:
            os.unlink(self._draft)
            raise
        if kind is not None:
            os.unlink(self._draft)
        elif self._durable:
            sync_folder(self._folder)


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


def remove_folder(path: str) -> None:
    """Remove a folder and its contents. What can't be removed stays; a missing folder is no error."""
    if os.path.isdir(path):
        import shutil  # late: most jobs have nothing to remove

        shutil.rmtree(path, ignore_errors=True)
