"""A filter for log entries, compiled: what all entries of one replica and severity share is decided once.

What is left is tested on the message itself, case-folded once, and regular expressions of which one must match, or
none, are searched for in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from trainshed.domain.filters.parser import Filter
from trainshed.domain.filters.server import OPERATORS, Comparison, Contains
from trainshed.domain.filters.terms import (
    SEPARATOR,
    And,
    FilterNode,
    Not,
    Or,
    Reading,
    Search,
    TextTerm,
    compile_any,
    scalars,
    time_ns,
    to_text,
    values_at,
)
from trainshed.domain.logs import LogEntry

_MAX_SOURCES = 256  #: compiled filters that are kept
_TIME_CHARACTERS = frozenset("0123456789-:.tze+")  #: of all that differs between entries besides the message, folded


class _Varying(Enum):
    """The fields in which entries of one replica and severity differ."""

    MESSAGE = 0
    TIME = 1
    OTHER = 2


class _Line:
    """One entry while a filter is applied to it."""

    __slots__ = ("_folded", "_reading", "entry")

    def __init__(self, entry: LogEntry) -> None:
        self.entry = entry
        self._folded: str | None = None
        self._reading: Reading | None = None

    @property
    def folded(self) -> str:
        if self._folded is None:
            self._folded = self.entry.message.casefold()
        return self._folded

    @property
    def reading(self) -> Reading:
        if self._reading is None:
            self._reading = Reading(self.entry.body())
        return self._reading


Test = Callable[[_Line], bool]


@dataclass(frozen=True, slots=True)
class _Words:
    """The message has one of these words."""

    folded: tuple[str, ...]

    def __call__(self, line: _Line) -> bool:
        message = line.folded
        for word in self.folded:  # noqa: SIM110 - a generator takes twice as long, for every line of a log
            if word in message:
                return True
        return False


@dataclass(frozen=True, slots=True)
class _Patterns:
    """The message matches one of these regular expressions, or, if `negated`, none."""

    patterns: tuple[str, ...]
    search: Search
    negated: bool = False

    def __call__(self, line: _Line) -> bool:
        return self.search(line.entry.message) is not self.negated


class EntryFilter:
    """Applies a filter to entries. Not thread-safe."""

    def __init__(self, parsed: Filter) -> None:
        self._root = parsed.root
        self._tests: dict[tuple[str, str, int, str, str], Test | bool] = {}

    def matches(self, entry: LogEntry) -> bool:
        source = (entry.project, entry.job, entry.trial, entry.replica, entry.severity)
        test = self._tests.get(source)
        if test is None:
            if len(self._tests) >= _MAX_SOURCES:
                self._tests.clear()
            test = self._tests[source] = _compile(self._root, _template(entry))
        return test if isinstance(test, bool) else test(_Line(entry))


def _template(entry: LogEntry) -> dict[str, Any]:
    """The body of an entry with marks in the place of what varies."""
    body = entry.body()
    payload = body["jsonPayload"] | {"created": _Varying.OTHER, "message": _Varying.MESSAGE}
    times = {"timestamp": _Varying.TIME, "receiveTimestamp": _Varying.TIME}
    return body | {"insertId": _Varying.OTHER, "jsonPayload": payload} | times


def _compile(node: FilterNode, template: dict[str, Any]) -> Test | bool:
    match node:
        case And(parts):
            return _all(_compile(part, template) for part in parts)
        case Or(parts):
            return _any(_compile(part, template) for part in parts)
        case Not(part):
            return _negated(_compile(part, template))
        case TextTerm(folded):
            return _compile_text(node, folded, template)
        case Comparison() | Contains():
            return _compile_field(node, values_at(template, node.path), template)
    return partial(_matches_document, node)


def _compile_text(node: TextTerm, folded: str, template: dict[str, Any]) -> Test | bool:
    if SEPARATOR in folded:
        return False
    if any(folded in to_text(value).casefold() for value in scalars(template) if not isinstance(value, _Varying)):
        return True
    return partial(_matches_document, node) if _TIME_CHARACTERS.issuperset(folded) else _Words((folded,))


def _compile_field(node: Comparison | Contains, values: list[Any], template: dict[str, Any]) -> Test | bool:
    if not any(isinstance(value, _Varying) for value in scalars(values)):
        return node.matches(Reading(template))
    if values == [_Varying.MESSAGE]:
        return _compile_message(node)
    if values == [_Varying.TIME] and isinstance(node, Comparison) and node.operator in OPERATORS:
        compare, bound_ns = OPERATORS[node.operator], time_ns(node.value)
        return lambda line: compare(line.entry.time_us * 1000, bound_ns)
    return partial(_matches_document, node)


def _compile_message(node: Comparison | Contains) -> Test | bool:
    if isinstance(node, Contains):
        if node.anything:
            return True
        return False if SEPARATOR in node.folded else _Words((node.folded,))
    if node.operator in ("=~", "!~"):
        return _Patterns((node.value,), compile_any((node.value,)), node.operator == "!~")
    test = node.test
    return lambda line: test(line.entry.message)


def _matches_document(node: FilterNode, line: _Line) -> bool:
    return node.matches(line.reading)


def _all(tests: Iterable[Test | bool]) -> Test | bool:
    """One test for all of them. Several that exclude regular expressions are one search."""
    undecided = []
    for test in tests:
        if test is False:
            return False
        if test is not True:
            undecided.append(test)
    undecided = _joined(undecided, negated=True)
    if len(undecided) < 2:
        return undecided[0] if undecided else True

    def every(line: _Line) -> bool:
        for test in undecided:  # noqa: SIM110 - a generator takes twice as long, for every line of a log
            if not test(line):
                return False
        return True

    return every


def _any(tests: Iterable[Test | bool]) -> Test | bool:
    """One test for any of them. Several words are one test, and several regular expressions are one search."""
    undecided: list[Test] = []
    for test in tests:
        if test is True:
            return True
        if test is not False:
            undecided.append(test)
    words = tuple(word for test in undecided if isinstance(test, _Words) for word in test.folded)
    others = [test for test in undecided if not isinstance(test, _Words)]
    undecided = [*((_Words(words),) if words else ()), *_joined(others, negated=False)]
    if len(undecided) < 2:
        return undecided[0] if undecided else False

    def some(line: _Line) -> bool:
        for test in undecided:  # noqa: SIM110 - a generator takes twice as long, for every line of a log
            if test(line):
                return True
        return False

    return some


def _joined(tests: list[Test], *, negated: bool) -> list[Test]:
    """The tests with one search for all regular expressions of which one, or none, must match. It comes last."""
    apart = [test for test in tests if isinstance(test, _Patterns) and test.negated is negated]
    if len(apart) < 2:
        return tests
    patterns = tuple(pattern for test in apart for pattern in test.patterns)
    try:
        together = _Patterns(patterns, compile_any(patterns), negated)
    except ValueError:  # too large together
        return tests
    return [*(test for test in tests if test not in apart), together]


def _negated(test: Test | bool) -> Test | bool:
    if isinstance(test, bool):
        return not test
    if isinstance(test, _Patterns):
        return _Patterns(test.patterns, test.search, not test.negated)
    return lambda line: not test(line)
