"""The server's dialect: the filters of list methods and log queries, a part of Google's list filter language.

OR binds tighter than AND. Comparisons mind the case of letters; `:` and words do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainshed.domain.filters.parser import Dialect
from trainshed.domain.filters.terms import (
    SEPARATOR,
    SEVERITIES,
    FilterNode,
    Path,
    Reading,
    Search,
    TimeWindow,
    compile_pattern,
    time_ns,
    to_text,
)

TIMES = frozenset({"timestamp", "receiveTimestamp", "createTime", "startTime", "endTime"})

Predicate = Callable[[Any], bool]
OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2}|[0-7]{3}|.)", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares a field with a value. A missing field matches nothing, not even `!=` and `!~`."""

    path: Path
    operator: str
    value: str
    bare: bool  #: unquoted, so a leading or trailing `*` is a wildcard
    test: Predicate = field(compare=False)

    def matches(self, reading: Reading) -> bool:
        return any(map(self.test, reading.values(self.path)))

    def window(self, path: Path) -> TimeWindow:
        if path != self.path or not _is_time_field(path) or self.operator not in OPERATORS:
            return TimeWindow()
        time_us = time_ns(self.value) // 1000
        return TimeWindow(
            time_us if self.operator in ("=", ">", ">=") else None,
            time_us if self.operator in ("=", "<", "<=") else None,
        )

    def required(self, path: Path) -> frozenset[str] | None:
        if path != self.path or self.operator != "=" or (self.bare and "*" in self.value):
            return None
        return frozenset({self.value})


@dataclass(frozen=True, slots=True)
class Contains:
    """A field's texts contain a value, case-insensitive, or its names are the value. `*` matches every field."""

    path: Path
    value: str
    folded: str
    anything: bool

    def matches(self, reading: Reading) -> bool:
        if self.folded in reading.words(self.path) and SEPARATOR not in self.folded:
            return bool(reading.values(self.path))
        for value in reading.values(self.path):
            if self.anything or (isinstance(value, dict) and self.value in value):
                return True
        return False

    def window(self, path: Path) -> TimeWindow:
        return TimeWindow()

    def required(self, path: Path) -> frozenset[str] | None:
        return None


def comparison(path: Path, operator: str, value: str, bare: bool) -> FilterNode:
    """Build a comparison. Raises `ValueError` with a sentence if the value cannot be compared with that field."""
    if operator == ":" and (value == "*" or not _is_wildcard(value, bare)):
        return Contains(path, value, value.casefold(), bare and value == "*")
    return Comparison(path, operator, value, bare, _predicate(path, operator, value, bare))


def _is_wildcard(value: str, bare: bool) -> bool:
    return bare and (value.startswith("*") or value.endswith("*"))


def _predicate(path: Path, operator: str, value: str, bare: bool) -> Predicate:
    if operator in ("=~", "!~"):
        return _pattern_predicate(value, expected=operator == "=~")
    if operator == ":":
        return _wildcard_predicate(value, expected=True)
    compare = OPERATORS[operator]
    if _is_time_field(path):
        bound_ns = time_ns(value)
        return lambda actual: _is_nonempty_string(actual) and compare(time_ns(actual), bound_ns)
    if path == ("severity",):
        rank = _rank(value)
        return lambda actual: compare(_rank(str(actual)), rank)
    if _is_wildcard(value, bare) and operator in ("=", "!="):
        return _wildcard_predicate(value, expected=operator == "=")
    return _plain_predicate(compare, value)


def _pattern_predicate(pattern: str, *, expected: bool) -> Predicate:
    search: Search = compile_pattern(pattern)
    return lambda actual: search(to_text(actual)) is expected


def _wildcard_predicate(value: str, *, expected: bool) -> Predicate:
    core = value.strip("*")

    def like(actual: Any) -> bool:
        text = to_text(actual)
        if value.startswith("*") and value.endswith("*"):
            return core in text
        return text.endswith(core) if value.startswith("*") else text.startswith(core)

    return lambda actual: like(actual) is expected


def _plain_predicate(compare: Callable[[Any, Any], bool], value: str) -> Predicate:
    try:
        number: float | None = float(value)
    except ValueError:
        number = None

    def plain(actual: Any) -> bool:
        if isinstance(actual, str):
            return compare(actual, value)
        if isinstance(actual, int | float) and not isinstance(actual, bool) and number is not None:
            return compare(actual, number)
        return not isinstance(actual, dict) and compare(to_text(actual), value)

    return plain


def _rank(name: str) -> int:
    rank = int(name) if name.isascii() and name.isdigit() and len(name) < 5 else SEVERITIES.get(name.upper())
    if rank is None:
        raise ValueError(f"{name[:40]!r} is not a severity; these are: {', '.join(SEVERITIES)}")
    return rank


def _is_time_field(path: Path) -> bool:
    return len(path) == 1 and path[0] in TIMES


def _is_nonempty_string(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "uUx" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else "\ufffd"
    if len(code) == 3:
        return chr(int(code, 8))
    return _PLAIN_ESCAPES.get(code, code)


SERVER = Dialect(
    operators=(*OPERATORS, ":", "=~", "!~"),
    comparison=comparison,
    unescape=_unescape,
    mixes_and_or=True,
    comments=True,
    value_expressions=True,
    list_operators=frozenset((*OPERATORS, ":", "=~", "!~")),
    indexes=False,
    max_characters=20_000,
    max_terms=64,
)
