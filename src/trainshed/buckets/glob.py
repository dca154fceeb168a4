"""Objects by glob pattern, as batch prediction names its input. `*` matches within a folder, `**` across folders."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Protocol

from trainshed.domain.objects import ListQuery, ObjectPage
from trainshed.domain.work_budget import WorkBudget, unlimited
from trainshed.errors import InvalidArgumentError

_WILDCARD = re.compile(r"[*?]")
_PART = re.compile(r"\*+|.", re.DOTALL)
_PART_OR_CLASS = re.compile(r"\*+|\[[!^]?[^\]]+\]|.", re.DOTALL)
_SPAN = re.compile(r"(.)(?:-(.))?", re.DOTALL)  #: of a class: a character, or the first and last of several
_ALTERNATIVES = re.compile(r"\{([^{}]*)\}")
_SPECIAL = re.compile(r"[*?\[{]")
_MAX_ALTERNATIVES = 100


class Lister(Protocol):
    def list(self, bucket: str, query: ListQuery, budget: WorkBudget | None = None) -> ObjectPage: ...


def glob_objects(lister: Lister, bucket: str, pattern: str, budget: WorkBudget | None = None) -> Iterator[str]:
    """The names of matching objects in order. A pattern without wildcards is an object or a folder.

    Raises what `WorkBudget.check` raises.
    """
    pages = partial(_list_matching, lister, bucket, budget=budget or unlimited())
    wildcard = _WILDCARD.search(pattern)
    if wildcard is not None:
        start = wildcard.start()
        yield from pages(pattern[:start], GlobPattern(pattern[start:]).matches)
    elif folder := pattern.rstrip("/"):
        yield from pages(folder, lambda rest: not rest or (rest[0] == "/" and "/" not in rest[1:]))
    else:
        yield from pages("", GlobPattern("*").matches)


class GlobPattern:
    """A pattern with wildcards. With `classes`, `[a-z]` is one character of several, and `[!a-z]` one of all others.

    Matching takes time proportional to pattern length times name length, without backtracking.
    """

    def __init__(self, text: str, *, classes: bool = False) -> None:
        parts = (_PART_OR_CLASS if classes else _PART).findall(text)
        self._end = 1 << len(parts)
        self._any = _bits(part == "?" for part in parts)
        self._stars = _bits(part[0] == "*" for part in parts)
        self._double = _bits(part.startswith("**") for part in parts)
        self._classes = [(1 << at, _class(part)) for at, part in enumerate(parts) if len(part) > 1 and part[0] == "["]
        self._plain = {char: _bits(part == char for part in parts) for char in set(parts)}

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole name."""
        states = self._skip_stars(1)  # bit N: the text so far can match the first N parts
        for char in name:
            advance = self._plain.get(char, 0) if char not in "*?" else 0
            stay = self._double
            for bit, one_of in self._classes:
                if char != "/" and one_of(char):
                    advance |= bit
            if char != "/":
                advance, stay = advance | self._any, self._stars
            states = self._skip_stars((states & advance) << 1 | states & stay)
            if not states:
                return False
        return bool(states & self._end)

    def _skip_stars(self, states: int) -> int:
        """A star can match nothing. No two stars are adjacent."""
        return states | (states & self._stars) << 1


def _class(text: str) -> Callable[[str], bool]:
    """Whether a character is one of a class such as `[abx-z]`."""
    inner, negated = (text[2:-1], True) if text[1] in "!^" else (text[1:-1], False)
    spans = [(match[1], match[2] or match[1]) for match in _SPAN.finditer(inner)]
    return lambda char: any(first <= char <= last for first, last in spans) != negated


def match_names(pattern: str) -> tuple[str, Callable[[str], bool]]:
    """Return the literal start of a `matchGlob` of Cloud Storage, and whether a whole name matches it.

    It has `[...]` and `{a,b}` besides the other wildcards. Raises `InvalidArgumentError` for too many alternatives.
    """
    alternatives = list(islice(_expand(pattern), _MAX_ALTERNATIVES + 1))
    if len(alternatives) > _MAX_ALTERNATIVES:
        raise InvalidArgumentError(f"A glob has at most {_MAX_ALTERNATIVES} alternatives.", field="matchGlob")
    patterns = [GlobPattern(each, classes=True) for text in alternatives for each in _in_any_folder(text)]
    special = _SPECIAL.search(pattern)
    return pattern[: special.start()] if special else pattern, lambda name: any(p.matches(name) for p in patterns)


def _in_any_folder(pattern: str) -> tuple[str, ...]:
    """The patterns of one that begins with `**/`, which stands for no folder too."""
    return (pattern, pattern[3:]) if pattern.startswith("**/") else (pattern,)


def _expand(pattern: str) -> Iterator[str]:
    """The patterns without `{a,b}` that a pattern stands for."""
    found = _ALTERNATIVES.search(pattern)
    if found is None:
        yield pattern
        return
    for choice in found[1].split(","):
        yield from _expand(pattern[: found.start()] + choice + pattern[found.end() :])


def _bits(flags: Iterable[bool]) -> int:
    return sum(1 << number for number, flag in enumerate(flags) if flag)


def _list_matching(
    lister: Lister, bucket: str, prefix: str, matches: Callable[[str], bool], *, budget: WorkBudget
) -> Iterator[str]:
    """Objects that start with the prefix and whose remainder matches."""
    query = ListQuery(prefix=prefix, checksums=False)
    while True:
        page = lister.list(bucket, query, budget)
        budget.check(0)
        names = (item.name for item in page.items if not item.name.endswith("/"))
        yield from (name for name in names if matches(name.removeprefix(prefix)))
        if not page.next:
            return
        query = replace(query, after=page.next)
