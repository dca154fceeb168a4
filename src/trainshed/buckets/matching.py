"""Objects by patterns, as batch prediction names its input: `*` is a part of a name, `**` may have folders in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from trainshed.domain.objects import ListQuery, Page

_WILD = re.compile(r"\*\*|\*|\?")
_MEANS = {"**": ".*", "*": "[^/]*", "?": "[^/]"}


class Lists(Protocol):
    def list(self, bucket: str, query: ListQuery) -> Page: ...


def matching(tree: Lists, bucket: str, pattern: str) -> Iterator[str]:
    """The names of a bucket's objects that match, in order. A pattern without wildcards is a name or a folder."""
    wild = _WILD.search(pattern)
    if wild is None and pattern.rstrip("/"):
        pattern = pattern.rstrip("/")
        yield from _named(tree, bucket, pattern, re.compile(rf"{re.escape(pattern)}(?:/[^/]+)?"))
    else:
        text = pattern if wild else "*"
        yield from _named(tree, bucket, text[: wild.start()] if wild else "", re.compile(_expression(text)))


def _expression(pattern: str) -> str:
    parts = re.split(rf"({_WILD.pattern})", pattern)
    return "".join(_MEANS.get(part) or re.escape(part) for part in parts)


def _named(tree: Lists, bucket: str, prefix: str, names: re.Pattern[str]) -> Iterator[str]:
    query = ListQuery(prefix=prefix, checksums=False)
    while True:
        page = tree.list(bucket, query)
        yield from (item.name for item in page.items if not item.name.endswith("/") and names.fullmatch(item.name))
        if not page.next:
            return
        query = replace(query, after=page.next)
