"""Folders in buckets that contain a model. Trainers write there, so each search is bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from trainshed.buckets.glob import Lister
from trainshed.domain.objects import MAX_PAGE, ListQuery
from trainshed.errors import NotFoundError

MAX_NAMES = 20_000  #: per search
MAX_DEPTH = 8
_IGNORED_PREFIXES = ("temp-", ".", "__")  #: incomplete exports, and folders that are not models


class ModelFolder(NamedTuple):
    """A folder that contains a model, and the time of its newest file."""

    parts: tuple[str, ...]
    files: tuple[str, ...]
    time_us: int


def model_folders(
    lister: Lister, parts: Sequence[str], *, holds_model: Callable[[Collection[str]], bool]
) -> Iterator[ModelFolder]:
    """Model folders at or below `parts`, a bucket and folders in it, breadth-first.

    Folders inside a model's folder belong to that model. The search ends early after MAX_NAMES names.
    """
    queue = deque([tuple(parts)])
    budget = MAX_NAMES
    while queue and budget > 0:
        folder = queue.popleft()
        names, subfolders, newest_us = _list_folder(lister, folder, budget)
        budget -= len(names) + len(subfolders) + 1
        if holds_model(names):
            yield ModelFolder(folder, tuple(sorted(names)), newest_us)
        elif len(folder) - len(parts) < MAX_DEPTH:
            queue.extend((*folder, name) for name in sorted(subfolders) if not name.startswith(_IGNORED_PREFIXES))


def _list_folder(lister: Lister, folder: Sequence[str], limit: int) -> tuple[list[str], list[str], int]:
    """The objects and the subfolders of a folder, and the time of its newest object."""
    bucket, prefix = folder[0], "".join(f"{part}/" for part in folder[1:])
    query = ListQuery(prefix=prefix, delimiter="/", checksums=False, limit=min(limit, MAX_PAGE))
    names: list[str] = []
    subfolders: list[str] = []
    newest_us = 0
    while len(names) + len(subfolders) < limit:
        try:
            page = lister.list(bucket, query)
        except NotFoundError:
            break
        files = [item for item in page.items if item.name != prefix]
        names += [item.name.removeprefix(prefix) for item in files]
        subfolders += [name.removeprefix(prefix).removesuffix("/") for name in page.prefixes]
        newest_us = max([newest_us, *(item.created_us for item in files)])
        if not page.next:
            break
        query = replace(query, after=page.next)
    return names, subfolders, newest_us
