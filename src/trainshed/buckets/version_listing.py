"""One page of all versions of a bucket's objects: live and noncurrent ones, by name and generation."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from trainshed.domain.objects import MAX_PAGE, ListQuery, ObjectInfo, ObjectPage
from trainshed.domain.work_budget import WorkBudget, unlimited

VERSION_SEPARATOR = "\0"  #: in `ListQuery.after`, between a name and a generation; no name holds it


def list_versions(
    list_live: Callable[[ListQuery], ObjectPage],
    noncurrent: Iterable[ObjectInfo],
    query: ListQuery,
    budget: WorkBudget | None = None,
) -> ObjectPage:
    """The page that the query selects. `noncurrent` is in order, from the name in `query.after` on.

    A version that an interrupted write left as a noncurrent one and as the live one is listed once, as live.
    """
    budget = budget or unlimited()
    name, separator, generation = query.after.partition(VERSION_SEPARATOR)
    passed = (name, int(generation)) if separator else None
    items: list[ObjectInfo] = []
    prefixes: list[str] = []
    skip = name if name and not separator else ""  #: common prefix that the previous page ended with
    last = ""
    for info in _without_duplicates(heapq.merge(_live(list_live, query, name), noncurrent, key=_order)):
        if query.end and info.name >= query.end:
            break
        if (passed is not None and _order(info)[:2] <= passed) or (skip and info.name.startswith(skip)):
            continue
        if len(items) + len(prefixes) >= query.limit or (last and budget.exhausted):
            return ObjectPage(items=tuple(items), prefixes=tuple(prefixes), next=last)
        if prefix := _prefix_of(info.name, query):
            prefixes.append(prefix)
            last = skip = prefix
            if not (query.delimiter_objects and info.name == prefix):
                continue
        items.append(info)
        last = last if prefix else f"{info.name}{VERSION_SEPARATOR}{info.generation}"
    return ObjectPage(items=tuple(items), prefixes=tuple(prefixes))


def _order(info: ObjectInfo) -> tuple[str, int, bool]:
    return info.name, info.generation, info.deleted_us > 0


def _without_duplicates(infos: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
    previous = None
    for info in infos:
        if (key := _order(info)[:2]) != previous:
            yield info
        previous = key


def _live(list_live: Callable[[ListQuery], ObjectPage], query: ListQuery, name: str) -> Iterator[ObjectInfo]:
    live = replace(query, versions=False, delimiter="", glob="", after="", start=max(query.start, name), limit=MAX_PAGE)
    while True:
        page = list_live(live)
        yield from page.items
        if not page.next:
            return
        live = replace(live, after=page.next)


def _prefix_of(name: str, query: ListQuery) -> str:
    """The common prefix of a name: up to the first delimiter after the query's prefix. Empty if there is none."""
    if not query.delimiter:
        return ""
    index = name.find(query.delimiter, len(query.prefix))
    return name[: index + len(query.delimiter)] if index >= 0 else ""
