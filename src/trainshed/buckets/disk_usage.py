"""Bytes of the files in a bucket's folder, as listings would add them up, without reading attributes or checksums."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trainshed.buckets.dirfd import NOT_FOUND_ERRNOS, DirectoryWalk, open_directory
from trainshed.domain.work_budget import WorkBudget, unlimited


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
