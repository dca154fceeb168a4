"""The filter language of the list methods and of log queries: one parser, one evaluator.

query  := either (["AND"] either)*          OR binds tighter than AND, as in Google's language
either := term ("OR" term)*
term   := ("NOT" | "-") term | "(" query ")" | path OP value | path OP "(" values ")" | text
OP     := = != < <= > >= : =~ !~
path   := segment ("." segment)*            a segment may be quoted: labels."ml.googleapis.com/task_name"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from trainshed.domain.filters.terms import And, Comparison, FilterNode, Not, Or, Path, TextTerm, TimeWindow
from trainshed.errors import InvalidArgumentError

MAX_CHARACTERS = 20_000
MAX_DEPTH = 50
MAX_TERMS = 64  #: words and comparisons; each costs time for every log entry

_SKIP = re.compile(r"(?:\s+|--[^\n]*)*")
_OPERATOR = re.compile(r"(=~|!~|!=|<=|>=|[=<>:])\s*")
_WORD = re.compile(r"[^\s()\"'=<>!:~,]+")
_BARE_VALUE = re.compile(r"[^\s()\"']+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"' + r"|'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2}|[0-7]{3}|.)", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
_KEYWORDS = ("AND", "OR", "NOT")


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter. An empty filter matches everything."""

    text: str
    _root: FilterNode

    def matches(self, document: Mapping[str, Any]) -> bool:
        return self._root.matches(document)

    def window(self, *path: str) -> TimeWindow:
        """The bounds of `path` in microseconds, inclusive. A document outside of them cannot match."""
        return self._root.window(path)

    def required(self, *path: str) -> frozenset[str] | None:
        """The values of which `path` must have one in any match. Returns None if the filter does not constrain it."""
        return self._root.required(path)


def parse(text: str) -> Filter:
    """Parse a filter. Raises `InvalidArgumentError`, which names the character and what was expected there."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidArgumentError(
            f"The filter has {len(text):,} characters; {MAX_CHARACTERS:,} are allowed.", field="filter"
        )
    return Filter(text, _Parser(text).query())


class _Parser:
    """A recursive descent parser without a tokenizer. `_position` is the next character to read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._terms = 0

    def query(self) -> FilterNode:
        self._skip()
        if self._position == len(self._text):
            return And(())
        root = self._conjunction(self._term)
        if self._position < len(self._text):
            self._expected("a comparison, a word or the end")
        return root

    def _conjunction(self, term: Callable[[], FilterNode]) -> FilterNode:
        parts = [self._disjunction(term)]
        while self._position < len(self._text) and self._text[self._position] != ")":
            self._keyword("AND")
            parts.append(self._disjunction(term))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _disjunction(self, term: Callable[[], FilterNode]) -> FilterNode:
        parts = [self._nested_term(term)]
        while self._keyword("OR"):
            parts.append(self._nested_term(term))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _nested_term(self, term: Callable[[], FilterNode]) -> FilterNode:
        """Parse one term with its negation or parentheses."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"it is nested more than {MAX_DEPTH} deep")
        if self._keyword("NOT") or self._symbol("-"):
            node: FilterNode = Not(self._nested_term(term))
        elif self._symbol("("):
            node = self._conjunction(term)
            if not self._symbol(")"):
                self._expected("a closing parenthesis")
        else:
            self._terms += 1
            if self._terms > MAX_TERMS:
                self._fail(f"it has more than {MAX_TERMS} words and comparisons")
            node = term()
        self._depth -= 1
        return node

    def _term(self) -> FilterNode:
        if any(self._peek_keyword(word) for word in ("AND", "OR")):
            self._expected("a comparison or a word")
        start = self._position
        path = self._path()
        if self._text[self._position : self._position + 1] == "(" and self._text[start] not in "\"'":
            self._position = start
            self._fail(f"the function {self._text[start : start + 20].partition('(')[0]}() is not known here")
        end = self._position
        self._skip()
        operator = _OPERATOR.match(self._text, self._position)
        if operator is None:
            single = path[0] if len(path) == 1 else self._text[start:end]
            return TextTerm(single.casefold())
        if not all(path):
            self._position = start
            self._fail("a name in this field path is empty")
        self._position = operator.end()
        if self._text[self._position : self._position + 1] == "(":
            return self._nested_term(lambda: self._comparison(path, operator[1]))
        return self._comparison(path, operator[1])

    def _path(self) -> Path:
        """Parse `a.b."c.d"`. Names are split at dots; quoted names are not."""
        segments: list[str] = []
        while True:
            if (quoted := self._quoted()) is not None:
                segments.append(quoted)
                if self._text[self._position : self._position + 1] != ".":
                    break
                self._position += 1
                continue
            word = _WORD.match(self._text, self._position)
            if word is None:
                self._expected("a field, a word or an opening parenthesis")
            self._position = word.end()
            if not (word[0].endswith(".") and self._text[self._position : self._position + 1] in ("'", '"')):
                segments += word[0].split(".")
                break
            segments += word[0].removesuffix(".").split(".")
        return tuple(segments)

    def _comparison(self, path: Path, operator: str) -> FilterNode:
        start = self._position
        bare = False
        value = self._quoted()
        if value is None:
            word = _BARE_VALUE.match(self._text, self._position)
            if word is None or word[0] in _KEYWORDS:
                self._expected(f"a value after {operator}")
            value, bare = word[0], True
            self._position = word.end()
        try:
            node = Comparison.build(path, operator, value, bare=bare)
        except ValueError as exc:
            self._position = start
            self._fail(str(exc))
        self._skip()
        return node

    def _quoted(self) -> str | None:
        if self._text[self._position : self._position + 1] not in ("'", '"'):
            return None
        match = _QUOTED.match(self._text, self._position)
        if match is None:
            self._fail("the quotation that begins here does not end")
        self._position = match.end()
        return _ESCAPE.sub(_unescape, match[1] if match[1] is not None else match[2])

    def _skip(self) -> None:
        match = _SKIP.match(self._text, self._position)
        assert match is not None  # matches the empty string too
        self._position = match.end()

    def _symbol(self, symbol: str) -> bool:
        if not self._text.startswith(symbol, self._position):
            return False
        self._position += len(symbol)
        self._skip()
        return True

    def _peek_keyword(self, word: str) -> bool:
        end = self._position + len(word)
        return self._text.startswith(word, self._position) and not re.match(r"[\w.:=<>!~]", self._text[end : end + 1])

    def _keyword(self, word: str) -> bool:
        return self._peek_keyword(word) and self._symbol(word)

    def _expected(self, what: str) -> NoReturn:
        actual = repr(self._text[self._position]) if self._position < len(self._text) else "the end"
        self._fail(f"expected {what}, found {actual}")

    def _fail(self, what: str) -> NoReturn:
        raise InvalidArgumentError(
            f"The filter can't be read at character {self._position + 1}: {what}.", field="filter"
        )


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "uUx" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else "\ufffd"
    if len(code) == 3:
        return chr(int(code, 8))
    return _PLAIN_ESCAPES.get(code, code)
