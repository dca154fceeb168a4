"""Folders in buckets that hold a model. Trainers write there, so links are not followed and a look has its limits."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trainshed.buckets.folders import ABSENT, opened

MAX_NAMES = 20_000  #: looked at in one look
MAX_DEPTH = 8
_UNFINISHED = ("temp-", ".", "__")  #: exports on their way, and what is nobody's model


class ModelFolder(NamedTuple):
    """A folder with a model in it, and when its newest file there was written."""

    parts: tuple[str, ...]
    files: tuple[str, ...]
    time_us: int


def model_folders(
    root: Path, parts: Sequence[str], *, holds_model: Callable[[Collection[str]], bool]
) -> Iterator[ModelFolder]:
    """Those at or below `parts`, shallow ones first. What is within a model's folder is a part of that model.

    `root` is trusted, the names below it are not. Ends early where there is too much to look at.
    """
    waiting = deque([tuple(parts)])
    left = MAX_NAMES
    while waiting and left > 0:
        folder = waiting.popleft()
        names, inner, newest_us = _listed(root, folder, left)
        left -= len(names) + len(inner) + 1
        if holds_model(names):
            yield ModelFolder(folder, tuple(sorted(names)), newest_us)
        elif len(folder) - len(parts) < MAX_DEPTH:
            waiting.extend((*folder, name) for name in sorted(inner) if not name.startswith(_UNFINISHED))


def _listed(root: Path, folder: Sequence[str], most: int) -> tuple[list[str], list[str], int]:
    """The plain files and the folders in one, and when the newest of the files was written."""
    names: list[str] = []
    inner: list[str] = []
    newest_us = 0
    try:
        with opened(root, folder) as fd, os.scandir(fd) as entries:
            for _, entry in zip(range(most), entries, strict=False):
                if entry.is_dir(follow_symlinks=False):
                    inner.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    names.append(entry.name)
                    newest_us = max(newest_us, entry.stat(follow_symlinks=False).st_mtime_ns // 1000)
    except OSError as exc:
        if exc.errno not in ABSENT:
            raise
    return names, inner, newest_us
