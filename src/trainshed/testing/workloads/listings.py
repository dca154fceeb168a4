"""Expected listings for tests: all names, sorted as plain strings; and a walk through all pages of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from trainshed.domain.objects import ListQuery, ObjectPage

Names = tuple[list[str], list[str]]  #: names of objects, and prefixes


def expected(names: Iterable[str], query: ListQuery) -> Names:
    """Return the listing that sorting all names by their bytes gives."""
    items: list[str] = []
    prefixes: list[str] = []
    for name in sorted(names, key=str.encode):
        if not name.startswith(query.prefix) or name < query.start or (query.end and name >= query.end):
            continue
        at = name.find(query.delimiter, len(query.prefix)) if query.delimiter else -1
        prefix = name[: at + len(query.delimiter)] if at >= 0 else ""
        if prefix and prefix not in prefixes:
            prefixes.append(prefix)
        if not prefix or (query.delimiter_objects and prefix == name):
            items.append(name)
    return items, prefixes


def walked(list_page: Callable[[ListQuery], ObjectPage], query: ListQuery) -> Names:
    """Read all pages of a listing."""
    items: list[str] = []
    prefixes: list[str] = []
    while True:
        page = list_page(query)
        items += [item.name for item in page.items]
        prefixes += page.prefixes
        if not page.next:
            return items, prefixes
        query = replace(query, after=page.next)
