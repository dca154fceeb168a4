"""--filter, --sort-by and --limit, applied to a list response, by gcloud's rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

from trainshed.cli.toolkit.output import field_of, text_of

Item = Mapping[str, Any]
Test = Callable[[Item], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<punctuation>[()])|(?P<operator>!=|!~|>=|<=|=~|[=:<>~])|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)'"""
    r"""|(?P<word>[^\s()=:<>~!"']+))"""
)


def select(
    items: Iterable[Item], *, filter: str | None = None, sort_by: str | None = None, limit: int | None = None
) -> list[Item]:
    """Return the matching items, sorted, at most `limit` of them."""
    test = parse_filter(filter) if filter and filter.strip() else None
    matches = (item for item in items if test is None or test(item))
    if sort_by is None:
        return [item for _, item in zip(range(limit), matches, strict=False)] if limit else list(matches)
    result = list(matches)
    for key in reversed([key.strip() for key in sort_by.split(",") if key.strip()]):
        name = key.lstrip("~")
        result.sort(key=lambda item, name=name: _sortable(field_of(item, name)), reverse=key.startswith("~"))  # type: ignore[misc]
    return result[:limit]


def _sortable(value: Any) -> tuple[int, Any]:
    """Return a sort key: None first, then numbers, then strings."""
    if value is None:
        return (0, "")
    number = _number(value)
    return (2, text_of(value)) if number is None else (1, number)


def _number(value: Any) -> float | None:
    try:
        return float(value) if not isinstance(value, bool) else None
    except (TypeError, ValueError):
        return None


def parse_filter(text: str) -> Test:
    """Compile `state=FAILED AND NOT labels.team:(vision audio)` to a test. Raises a usage error if it is invalid."""
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise click.UsageError(f"The filter [{text}] makes no sense at [{text[position:].strip()}].")
        tokens.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    parser = _Parser(text, tokens)
    test = parser.disjunction()
    parser.expect_end()
    return test


class _Parser:
    """A recursive-descent parser. AND binds closer than OR, and may be omitted."""

    def __init__(self, text: str, tokens: Sequence[tuple[str, str]]) -> None:
        self._text = text
        self._tokens = tokens
        self._position = 0

    def disjunction(self) -> Test:
        tests = [self._conjunction()]
        while self._take("word", "OR"):
            tests.append(self._conjunction())
        return lambda item: any(test(item) for test in tests)

    def expect_end(self) -> None:
        if self._position < len(self._tokens):
            raise self._error()

    def _conjunction(self) -> Test:
        tests = [self._single()]
        while (upcoming := self._peek()) is not None and upcoming not in (("word", "OR"), ("punctuation", ")")):
            self._take("word", "AND")
            tests.append(self._single())
        return lambda item: all(test(item) for test in tests)

    def _single(self) -> Test:
        if self._take("word", "NOT"):
            test = self._single()
            return lambda item: not test(item)
        if self._take("punctuation", "("):
            test = self.disjunction()
            if not self._take("punctuation", ")"):
                raise self._error()
            return test
        return self._comparison()

    def _comparison(self) -> Test:
        kind, key = self._next()
        negated = kind == "word" and key.startswith("-")
        operator = self._next() if kind == "word" else ("", "")
        if operator[0] != "operator":
            raise self._error()
        values = self._values()
        name = key.lstrip("-")
        compare = _OPERATORS[operator[1]]
        if operator[1].startswith("!"):
            return lambda item: not any(compare(field_of(item, name), value) for value in values)
        return lambda item: negated != any(compare(field_of(item, name), value) for value in values)

    def _values(self) -> list[str]:
        if not self._take("punctuation", "("):
            return [self._value()]
        values = []
        while not self._take("punctuation", ")"):
            if not self._take("word", "OR"):
                values.append(self._value())
        return values

    def _value(self) -> str:
        """Read one value. A word may contain colons, as times do."""
        kind, value = self._next()
        if kind in ("punctuation", "operator"):
            raise self._error()
        if kind == "word" and re.fullmatch(r"\d{4}-\d\d-\d\d[Tt]\d\d", value):
            while self._peek() == ("operator", ":"):
                self._position += 1
                value += ":" + self._next()[1]
        return value

    def _peek(self) -> tuple[str, str] | None:
        return self._tokens[self._position] if self._position < len(self._tokens) else None

    def _next(self) -> tuple[str, str]:
        if (token := self._peek()) is None:
            raise self._error()
        self._position += 1
        return token

    def _take(self, kind: str, value: str) -> bool:
        if self._peek() != (kind, value):
            return False
        self._position += 1
        return True

    def _error(self) -> click.UsageError:
        location = " ".join(value for _, value in self._tokens[max(0, self._position - 1) :]) or "its end"
        return click.UsageError(f"The filter [{self._text}] makes no sense at [{location}].")


def _same(value: Any, operand: str) -> bool:
    left, right = _number(value), _number(operand)
    if left is not None and right is not None:
        return left == right
    return text_of(value).casefold() == operand.casefold()


def _has(value: Any, operand: str) -> bool:
    """Implement `:`: a whole word, a prefix with *, or any value with * alone."""
    if operand == "*":
        return value not in (None, "", [], {})
    if isinstance(value, Mapping):
        return operand in value or any(_has(part, operand) for part in value.values())
    if isinstance(value, list):
        return any(_has(part, operand) for part in value)
    text = text_of(value).casefold()
    if operand.endswith("*"):
        return re.search(rf"(?<!\w){re.escape(operand[:-1].casefold())}", text) is not None
    return operand.casefold() in text


def _ordered(value: Any, operand: str, test: Callable[[Any, Any], bool]) -> bool:
    if value is None:
        return False
    left, right = _number(value), _number(operand)
    if left is not None and right is not None:
        return test(left, right)
    return test(text_of(value), operand)


def _matches(value: Any, pattern: str) -> bool:
    try:
        return re.search(pattern, text_of(value)) is not None
    except re.error as exc:
        raise click.UsageError(f"[{pattern}] is not a regular expression: {exc}.") from exc


_OPERATORS: Mapping[str, Callable[[Any, str], bool]] = {
    "=": _same,
    "!=": _same,
    ":": _has,
    "~": _matches,
    "=~": _matches,
    "!~": _matches,
    "<": lambda value, wanted: _ordered(value, wanted, lambda a, b: bool(a < b)),
    ">": lambda value, wanted: _ordered(value, wanted, lambda a, b: bool(a > b)),
    "<=": lambda value, wanted: _ordered(value, wanted, lambda a, b: bool(a <= b)),
    ">=": lambda value, wanted: _ordered(value, wanted, lambda a, b: bool(a >= b)),
}
