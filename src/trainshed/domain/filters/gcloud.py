"""gcloud's dialect: the filters of list commands, applied to a list by the client.

AND and OR in one group need parentheses. Comparisons do not mind the case of letters. Numbers are compared as numbers
and times as times wherever both sides are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from trainshed.domain.filters.parser import Dialect
from trainshed.domain.filters.terms import Path, Reading, TimeWindow, scalars, time_ns, to_text

_ESCAPE = re.compile(r"""\\(["'\\])""")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:")
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


@dataclass(frozen=True, slots=True)
class ResourceComparison:
    """Compares a field of a listed resource with a value. A missing field matches `!=`, `!~`, and the empty value."""

    path: Path
    operator: str
    value: str
    test: Callable[[Any], bool] = field(compare=False)

    @classmethod
    def build(cls, path: Path, operator: str, value: str, _bare: bool) -> Self:
        """Build a comparison. Raises `ValueError` with a sentence if the value is no pattern."""
        return cls(path, operator, value, _predicate(operator, value))

    def matches(self, reading: Reading) -> bool:
        return any(map(self.test, reading.values(self.path) or (None,)))

    def window(self, path: Path) -> TimeWindow:
        return TimeWindow()

    def required(self, path: Path) -> frozenset[str] | None:
        return None


def _predicate(operator: str, operand: str) -> Callable[[Any], bool]:
    if operator in ("~", "!~"):
        search = _compile(operand).search
        return lambda value: (search(_text(value)) is not None) is (operator == "~")
    if operator == ":":
        return _has(operand)
    if operator in ("=", "!="):
        return lambda value: _same(value, operand) is (operator == "=")
    order = _ORDERS[operator]
    return lambda value: value is not None and order(*_comparable(value, operand))


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as exc:
        raise ValueError(f"{pattern[:60]!r} is not a regular expression ({exc})") from None


def _has(operand: str) -> Callable[[Any], bool]:
    """Implement `:`: contains, ignoring case; `a*`, `*b` and `a*b` are beginning and end; `*` is any value."""
    if operand == "*":
        return lambda value: value not in (None, "", [], {})
    head, star, tail = operand.casefold().partition("*")
    if "*" in tail:
        raise ValueError(f"{operand[:60]!r} has more than one *; write one at most")

    def like(text: str) -> bool:
        if not star:
            return head in text
        return text.startswith(head) and text.endswith(tail) and len(text) >= len(head) + len(tail)

    return lambda value: any(like(_text(part).casefold()) for part in _parts(value))


def _same(value: Any, operand: str) -> bool:
    for part in _parts(value):
        left, right = _comparable(part, operand)
        if left == right or _text(part).casefold() == operand.casefold():
            return True
    return False


def _parts(value: Any) -> list[Any]:
    """The value; the names and values of a mapping."""
    return [*value, *scalars(value)] if isinstance(value, Mapping) else [value]


def _comparable(value: Any, operand: str) -> tuple[Any, Any]:
    """Both sides as numbers or as times where both are such, otherwise as text."""
    left, right = _number(value), _number(operand)
    if left is not None and right is not None:
        return left, right
    text = _text(value)
    if _TIME.match(text):
        try:
            return time_ns(text), time_ns(operand)
        except ValueError:  # one of them is no time, so both are text
            pass
    return text, operand


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def _text(value: Any) -> str:
    return "" if value is None else to_text(value)


GCLOUD = Dialect(
    operators=("=", "!=", "<", "<=", ">", ">=", ":", "~", "!~"),
    comparison=ResourceComparison.build,
    unescape=lambda text: _ESCAPE.sub(r"\1", text),
    mixes_and_or=False,
    comments=False,
    value_expressions=False,
    list_operators=frozenset(("=", ":")),
    indexes=True,
    max_characters=200_000,
    max_terms=10_000,
)
