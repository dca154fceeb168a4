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
MAX_TERMS = 64  #: words and comparisons; each costs time for every line that is looked at

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
    """A query that has been understood. The empty one matches everything."""

    text: str
    _root: FilterNode

    def matches(self, document: Mapping[str, Any]) -> bool:
        return self._root.matches(document)

    def window(self, *path: str) -> TimeWindow:
        """The times, in microseconds and both ends included, outside of which no document's `path` can match."""
        return self._root.window(path)

    def required(self, *path: str) -> frozenset[str] | None:
        """The values that `path` must have one of in any match, or None if the filter does not say."""
        return self._root.required(path)


def parse(text: str) -> Filter:
    """Read a filter. `InvalidArgumentError` says at which character it goes wrong and what was expected there."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidArgumentError(
            f"The filter has {len(text):,} characters; {MAX_CHARACTERS:,} are allowed.", field="filter"
        )
    return Filter(text, _Parser(text).query())


class _Parser:
    """Recursive descent over the text itself; `_at` is the next character to read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._terms = 0

    def query(self) -> FilterNode:
        self._skip()
        if self._at == len(self._text):
            return And(())
        root = self._all_of(self._term)
        if self._at < len(self._text):
            self._expected("a comparison, a word or the end")
        return root

    def _all_of(self, term: Callable[[], FilterNode]) -> FilterNode:
        parts = [self._either_of(term)]
        while self._at < len(self._text) and self._text[self._at] != ")":
            self._keyword("AND")
            parts.append(self._either_of(term))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _either_of(self, term: Callable[[], FilterNode]) -> FilterNode:
        parts = [self._deeper(term)]
        while self._keyword("OR"):
            parts.append(self._deeper(term))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _deeper(self, term: Callable[[], FilterNode]) -> FilterNode:
        """One term with what negates it or the parentheses around it."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._wrong(f"it is nested more than {MAX_DEPTH} deep")
        if self._keyword("NOT") or self._symbol("-"):
            node: FilterNode = Not(self._deeper(term))
        elif self._symbol("("):
            node = self._all_of(term)
            if not self._symbol(")"):
                self._expected("a closing parenthesis")
        else:
            self._terms += 1
            if self._terms > MAX_TERMS:
                self._wrong(f"it has more than {MAX_TERMS} words and comparisons")
            node = term()
        self._depth -= 1
        return node

    def _term(self) -> FilterNode:
        if any(self._peek_keyword(word) for word in ("AND", "OR")):
            self._expected("a comparison or a word")
        start = self._at
        path = self._path()
        if self._text[self._at : self._at + 1] == "(" and self._text[start] not in "\"'":
            self._at = start
            self._wrong(f"the function {self._text[start : start + 20].partition('(')[0]}() is not known here")
        end = self._at
        self._skip()
        operator = _OPERATOR.match(self._text, self._at)
        if operator is None:
            single = path[0] if len(path) == 1 else self._text[start:end]
            return TextTerm(single.casefold())
        if not all(path):
            self._at = start
            self._wrong("a name in this field path is empty")
        self._at = operator.end()
        if self._text[self._at : self._at + 1] == "(":
            return self._deeper(lambda: self._comparison(path, operator[1]))
        return self._comparison(path, operator[1])

    def _path(self) -> Path:
        """`a.b."c.d"`: names are cut at dots, quoted ones are not."""
        segments: list[str] = []
        while True:
            if (quoted := self._quoted()) is not None:
                segments.append(quoted)
                if self._text[self._at : self._at + 1] != ".":
                    break
                self._at += 1
                continue
            word = _WORD.match(self._text, self._at)
            if word is None:
                self._expected("a field, a word or an opening parenthesis")
            self._at = word.end()
            if not (word[0].endswith(".") and self._text[self._at : self._at + 1] in ("'", '"')):
                segments += word[0].split(".")
                break
            segments += word[0].removesuffix(".").split(".")
        return tuple(segments)

    def _comparison(self, path: Path, operator: str) -> FilterNode:
        start = self._at
        bare = False
        value = self._quoted()
        if value is None:
            word = _BARE_VALUE.match(self._text, self._at)
            if word is None or word[0] in _KEYWORDS:
                self._expected(f"a value after {operator}")
            value, bare = word[0], True
            self._at = word.end()
        try:
            node = Comparison.build(path, operator, value, bare=bare)
        except ValueError as exc:
            self._at = start
            self._wrong(str(exc))
        self._skip()
        return node

    def _quoted(self) -> str | None:
        if self._text[self._at : self._at + 1] not in ("'", '"'):
            return None
        match = _QUOTED.match(self._text, self._at)
        if match is None:
            self._wrong("the quotation that begins here does not end")
        self._at = match.end()
        return _ESCAPE.sub(_unescaped, match[1] if match[1] is not None else match[2])

    def _skip(self) -> None:
        match = _SKIP.match(self._text, self._at)
        assert match is not None  # it may be empty
        self._at = match.end()

    def _symbol(self, symbol: str) -> bool:
        if not self._text.startswith(symbol, self._at):
            return False
        self._at += len(symbol)
        self._skip()
        return True

    def _peek_keyword(self, word: str) -> bool:
        end = self._at + len(word)
        return self._text.startswith(word, self._at) and not re.match(r"[\w.:=<>!~]", self._text[end : end + 1])

    def _keyword(self, word: str) -> bool:
        return self._peek_keyword(word) and self._symbol(word)

    def _expected(self, what: str) -> NoReturn:
        found = repr(self._text[self._at]) if self._at < len(self._text) else "the end"
        self._wrong(f"expected {what}, found {found}")

    def _wrong(self, what: str) -> NoReturn:
        raise InvalidArgumentError(f"The filter can't be read at character {self._at + 1}: {what}.", field="filter")


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "uUx" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else "\ufffd"
    if len(code) == 3:
        return chr(int(code, 8))
    return _PLAIN_ESCAPES.get(code, code)
