"""Directory operations relative to a descriptor, one path component at a time, without following symbolic links."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from trainshed.buckets.xattrs import has_mark
from trainshed.domain.work_budget import WorkBudget, unlimited
from trainshed.errors import DiskFullError, FailedPreconditionError, UnavailableError

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # non-blocking, because a FIFO would block

#: errors of an open where there is no file or folder
NOT_FOUND_ERRNOS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})


@contextmanager
def disk_errors() -> Iterator[None]:
    """Translate a full disk and missing permissions to `trainshed.errors`."""
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
    """A descriptor of the folder `parts` below `root`, closed on exit.

    Raises OSError with an errno in NOT_FOUND_ERRNOS.
    """
    fd = os.open(root, _FOLDER_FLAGS)
    try:
        for part in parts:
            child = os.open(part, _FOLDER_FLAGS, dir_fd=fd)
            os.close(fd)
            fd = child
        yield fd
    finally:
        os.close(fd)


def open_file(part: str, *, folder: int) -> int:
    """A descriptor for reading an entry of any type. The caller closes it."""
    return os.open(part, _FILE_FLAGS, dir_fd=folder)


def open_folder(part: str, *, folder: int) -> int:
    return os.open(part, _FOLDER_FLAGS, dir_fd=folder)


@contextmanager
def make_directories(root: Path, parts: Sequence[str]) -> Iterator[int]:
    """Like `open_directory`, but creates missing folders durably.

    Raises `FailedPreconditionError` if an object is in the way.
    """
    fd = os.open(root, _FOLDER_FLAGS)
    try:
        for depth, part in enumerate(parts):
            child = _open_or_make(part, folder=fd, path="/".join(parts[1 : depth + 1]))
            os.close(fd)
            fd = child
        yield fd
    finally:
        os.close(fd)


def _open_or_make(part: str, *, folder: int, path: str) -> int:
    for _ in range(100):  # the writer that deletes a folder's last object removes the folder
        with suppress(FileNotFoundError):
            try:
                return open_folder(part, folder=folder)
            except NotADirectoryError:
                raise FailedPreconditionError(
                    f"{path} is an object, so nothing can be stored below {path}/: objects are files here, and their "
                    f"folders can't have the name of a file. Delete it first, or choose another name."
                ) from None
        with suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=folder)
            os.fsync(folder)
    raise FailedPreconditionError(f"The folder {path} is deleted concurrently. Try again.")


def prune(root: Path, parts: Sequence[str], *, keep: int) -> None:
    """Remove the folder `parts` and its parents while they are empty and unmarked.

    The first `keep` parts always stay.
    """
    while len(parts) > keep:
        try:
            with open_directory(root, parts[:-1]) as parent:
                child = open_folder(parts[-1], folder=parent)
                try:
                    marked = has_mark(child)
                finally:
                    os.close(child)
                if marked:
                    return
                os.rmdir(parts[-1], dir_fd=parent)
        except OSError as exc:
            if exc.errno in (errno.ENOTEMPTY, errno.EEXIST) or exc.errno in NOT_FOUND_ERRNOS:
                return
            raise
        parts = parts[:-1]


def prune_below(folder: int, *, lock: AbstractContextManager[object], check: Callable[[], object]) -> None:
    """Remove all folders below an open one that are empty and unmarked. Others may write there meanwhile.

    `lock` is held while one is removed; code that marks a folder holds it too. `check` is called for each, and may
    raise.
    """
    with DirectoryWalk(folder) as walk:
        levels = [_subfolders(walk.fd)]
        while True:
            check()
            if levels[-1]:
                try:
                    walk.down(levels[-1].pop())
                except OSError as exc:
                    if exc.errno not in NOT_FOUND_ERRNOS:
                        raise
                    continue  # removed since the folder was read
                levels.append(_subfolders(walk.fd))
                continue
            levels.pop()
            if not levels:
                return
            with lock:
                is_kept = has_mark(walk.fd)
                name = walk.up()
                if not is_kept:
                    with suppress(OSError):  # it is not empty, or gone
                        os.rmdir(name, dir_fd=walk.fd)


def _subfolders(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


class DirectoryWalk:
    """Walks a folder tree of any depth with one descriptor and without recursion.

    `up` returns to the folder it came from, or raises `UnavailableError` if the tree was moved meanwhile.
    """

    def __init__(self, folder: int) -> None:
        """Starts at `folder`. The caller keeps its descriptor."""
        self.fd = os.dup(folder)
        self._parents: list[tuple[str, os.stat_result]] = []

    def down(self, name: str) -> None:
        """Enter a folder. Raises OSError with an errno in NOT_FOUND_ERRNOS, without a move, if it does not exist."""
        child = open_folder(name, folder=self.fd)
        self._parents.append((name, os.fstat(self.fd)))
        self._replace_fd(child)

    def up(self) -> str:
        """Go to the parent. Returns the name of the folder that was left."""
        name, status = self._parents.pop()
        with suppress(FileNotFoundError):
            self._replace_fd(open_folder("..", folder=self.fd))
            if os.path.samestat(os.fstat(self.fd), status):
                return name
        raise UnavailableError(f"The folder {name} was moved while it was looked through. Try again.")

    def _replace_fd(self, fd: int) -> None:
        os.close(self.fd)
        self.fd = fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        os.close(self.fd)


def clear_empty(part: str, *, folder: int) -> bool:
    """Remove a folder that holds only empty folders. Returns False, and leaves the rest, if it holds anything else."""

    def folders_only(fd: int) -> list[str] | None:
        with os.scandir(fd) as entries:
            children = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        return (
            None if has_mark(fd) or not all(is_folder for _, is_folder in children) else [name for name, _ in children]
        )

    return _remove(part, folder=folder, list_folders=folders_only)


def remove_tree(part: str, *, folder: int) -> None:
    """Remove a folder tree of any depth. Raises OSError, with a part of it left, if an entry cannot be removed."""

    def unlink_files(fd: int) -> list[str]:
        with os.scandir(fd) as entries:
            children = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_folder in children:
            if not is_folder:
                os.unlink(name, dir_fd=fd)
        return [name for name, is_folder in children if is_folder]

    _remove(part, folder=folder, list_folders=unlink_files)


def _remove(part: str, *, folder: int, list_folders: Callable[[int], list[str] | None]) -> bool:
    """Remove a tree bottom-up. `list_folders` returns the subfolders of a folder, or None to stop."""
    with DirectoryWalk(folder) as walk:
        levels = [[part]]
        while True:
            if levels[-1]:
                walk.down(levels[-1].pop())
                folders = list_folders(walk.fd)
                if folders is None:
                    return False
                levels.append(folders)
                continue
            levels.pop()
            os.rmdir(walk.up(), dir_fd=walk.fd)
            if len(levels) == 1:
                return True


def stored_bytes(root: Path, bucket: str, budget: WorkBudget | None = None) -> int:
    """Return the bytes of all files of a bucket. 0 if it has no folder.

    Symbolic links are not followed. A file with several names counts for each. Raises what `WorkBudget.check` raises,
    and `UnavailableError` if a folder is moved meanwhile.
    """
    budget, total = budget or unlimited(), 0
    try:
        with open_directory(root, (bucket,)) as folder, DirectoryWalk(folder) as walk:
            total, folders = _entries(walk.fd)
            levels = [folders]
            while levels:
                budget.check(0)
                if not levels[-1]:
                    levels.pop()
                    if levels:
                        walk.up()
                    continue
                if _entered(walk, levels[-1].pop()):
                    size, folders = _entries(walk.fd)
                    total += size
                    levels.append(folders)
    except OSError as exc:
        if exc.errno not in NOT_FOUND_ERRNOS:
            raise
    return total


def _entered(walk: DirectoryWalk, name: str) -> bool:
    try:
        walk.down(name)
    except OSError as exc:  # it was removed meanwhile
        if exc.errno not in NOT_FOUND_ERRNOS:
            raise
        return False
    return True


def _entries(folder: int) -> tuple[int, list[str]]:
    """Return the bytes of a folder's files, and its folders."""
    size, folders = 0, []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                size += status.st_size
    return size, folders
