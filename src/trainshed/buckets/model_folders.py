"""Folders in buckets that hold a model. Trainers write there, so a look has its limits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from trainshed.buckets.glob import Lister
from trainshed.domain.objects import MAX_PAGE, ListQuery
from trainshed.errors import NotFoundError

MAX_NAMES = 20_000  #: looked at in one look
MAX_DEPTH = 8
_UNFINISHED = ("temp-", ".", "__")  #: exports on their way, and what is nobody's model


class ModelFolder(NamedTuple):
    """A folder with a model in it, and when its newest file there was written."""

    parts: tuple[str, ...]
    files: tuple[str, ...]
    time_us: int


def model_folders(
    tree: Lister, parts: Sequence[str], *, holds_model: Callable[[Collection[str]], bool]
) -> Iterator[ModelFolder]:
    """Those at or below `parts`, a bucket and folders in it, shallow ones first. What is within a model's folder is a
    part of that model.

    Ends early where there is too much to look at.
    """
    waiting = deque([tuple(parts)])
    left = MAX_NAMES
    while waiting and left > 0:
        folder = waiting.popleft()
        names, inner, newest_us = _listed(tree, folder, left)
        left -= len(names) + len(inner) + 1
        if holds_model(names):
            yield ModelFolder(folder, tuple(sorted(names)), newest_us)
        elif len(folder) - len(parts) < MAX_DEPTH:
            waiting.extend((*folder, name) for name in sorted(inner) if not name.startswith(_UNFINISHED))


def _listed(tree: Lister, folder: Sequence[str], most: int) -> tuple[list[str], list[str], int]:
    """The objects and the folders in one, and when the newest of the objects was written."""
    bucket, prefix = folder[0], "".join(f"{part}/" for part in folder[1:])
    query = ListQuery(prefix=prefix, delimiter="/", checksums=False, limit=min(most, MAX_PAGE))
    names: list[str] = []
    inner: list[str] = []
    newest_us = 0
    while len(names) + len(inner) < most:
        try:
            page = tree.list(bucket, query)
        except NotFoundError:
            break
        files = [item for item in page.items if item.name != prefix]
        names += [item.name.removeprefix(prefix) for item in files]
        inner += [name.removeprefix(prefix).removesuffix("/") for name in page.prefixes]
        newest_us = max([newest_us, *(item.created_us for item in files)])
        if not page.next:
            break
        query = replace(query, after=page.next)
    return names, inner, newest_us
