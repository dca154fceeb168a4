"""Objects by patterns, as batch prediction names its input: `*` is a part of a name, `**` may have folders in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from trainshed.domain.objects import ListQuery, ObjectPage

_WILD = re.compile(r"[*?]")
_PART = re.compile(r"\*+|.", re.DOTALL)


class Lister(Protocol):
    def list(self, bucket: str, query: ListQuery) -> ObjectPage: ...


def glob_objects(tree: Lister, bucket: str, pattern: str) -> Iterator[str]:
    """The names of a bucket's objects that match, in order. A pattern without wildcards is a name or a folder."""
    wild = _WILD.search(pattern)
    if wild is not None:
        start = wild.start()
        yield from _named(tree, bucket, pattern[:start], GlobPattern(pattern[start:]).matches)
    elif folder := pattern.rstrip("/"):
        yield from _named(tree, bucket, folder, lambda rest: not rest or (rest[0] == "/" and "/" not in rest[1:]))
    else:
        yield from _named(tree, bucket, "", GlobPattern("*").matches)


class GlobPattern:
    """A pattern with wildcards. The time to match grows with the lengths of pattern and name, whatever is in them."""

    def __init__(self, text: str) -> None:
        parts = _PART.findall(text)
        self._end = 1 << len(parts)
        self._any = _bits(part == "?" for part in parts)
        self._stars = _bits(part[0] == "*" for part in parts)
        self._double = _bits(part.startswith("**") for part in parts)
        self._plain = {char: _bits(part == char for part in parts) for char in set(parts)}

    def matches(self, name: str) -> bool:
        """Whether it is the whole name."""
        at = self._onward(1)  # bit N: what was read may be what the first N parts stand for
        for char in name:
            one = self._plain.get(char, 0) if char not in "*?" else 0
            same = self._double
            if char != "/":
                one, same = one | self._any, self._stars
            at = self._onward((at & one) << 1 | at & same)
            if not at:
                return False
        return bool(at & self._end)

    def _onward(self, at: int) -> int:
        """Stars may stand for nothing; no two of them follow each other."""
        return at | (at & self._stars) << 1


def _bits(flags: Iterable[bool]) -> int:
    return sum(1 << number for number, flag in enumerate(flags) if flag)


def _named(tree: Lister, bucket: str, prefix: str, fits: Callable[[str], bool]) -> Iterator[str]:
    """Objects that begin with the prefix and whose rest fits."""
    query = ListQuery(prefix=prefix, checksums=False)
    while True:
        page = tree.list(bucket, query)
        names = (item.name for item in page.items if not item.name.endswith("/"))
        yield from (name for name in names if fits(name.removeprefix(prefix)))
        if not page.next:
            return
        query = replace(query, after=page.next)
