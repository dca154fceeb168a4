"""The filter language: one parser for all dialects.

query  := either (["AND"] either)*          OR binds tighter than AND; a dialect may ask for parentheses instead
either := term ("OR" term)*
term   := ("NOT" | "-") term | "(" query ")" | path OP value | path OP "(" values ")" | text
path   := segment ("." segment)*            a segment may be quoted: labels."ml.googleapis.com/task_name"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from trainshed.domain.filters.terms import And, FilterNode, Not, Or, Path, Reading, TextTerm, TimeWindow
from trainshed.errors import InvalidArgumentError

MAX_DEPTH = 50

_BLANKS = re.compile(r"\s*")
_BLANKS_AND_COMMENTS = re.compile(r"(?:\s+|--[^\n]*)*")
_OPERATOR = re.compile(r"([=<>!:~]{1,2})\s*")
_WORD = re.compile(r"[^\s()\"'=<>!:~,]+")
_BARE_VALUE = re.compile(r"[^\s()\"']+")
_BARE_LIST_VALUE = re.compile(r"[^\s()\"',]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"' + r"|'((?:[^'\\]|\\.)*)'", re.DOTALL)
_INDEX = re.compile(r"([^\[\]]*)((?:\[-?\d{0,9}\])+)")
_KEYWORDS = ("AND", "OR", "NOT")


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter. An empty filter matches everything."""

    text: str
    root: FilterNode

    def matches(self, document: Mapping[str, Any]) -> bool:
        return self.root.matches(Reading(document))

    def window(self, *path: str) -> TimeWindow:
        """The bounds of `path` in microseconds, inclusive. A document outside of them cannot match."""
        return self.root.window(path)

    def required(self, *path: str) -> frozenset[str] | None:
        """The values of which `path` must have one in any match. Returns None if the filter does not constrain it."""
        return self.root.required(path)


def parse(text: str, dialect: Dialect) -> Filter:
    """Parse a filter. Raises `InvalidArgumentError`, which names the character and what was expected there."""
    if len(text) > dialect.max_characters:
        raise InvalidArgumentError(
            f"The filter has {len(text):,} characters; {dialect.max_characters:,} are allowed.", field="filter"
        )
    return Filter(text, _Parser(text, dialect).query())


class _Parser:
    """A recursive descent parser without a tokenizer. `_position` is the next character to read."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self._text = text
        self._dialect = dialect
        self._skipped = _BLANKS_AND_COMMENTS if dialect.comments else _BLANKS
        self._position = 0
        self._depth = 0
        self._terms = 0

    def query(self) -> FilterNode:
        self._skip()
        if self._position == len(self._text):
            return And(())
        root = self._group(self._term)
        if self._position < len(self._text):
            self._expected("a comparison, a word or the end")
        return root

    def _group(self, term: Callable[[], FilterNode]) -> FilterNode:
        """Parse what parentheses hold, or the whole filter."""
        written: set[str] = set()
        parts = [self._disjunction(term, written)]
        while self._position < len(self._text) and self._text[self._position] != ")":
            self._connective("AND", written)
            parts.append(self._disjunction(term, written))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _disjunction(self, term: Callable[[], FilterNode], written: set[str]) -> FilterNode:
        parts = [self._nested_term(term)]
        while self._connective("OR", written):
            parts.append(self._nested_term(term))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _connective(self, word: str, written: set[str]) -> bool:
        """Parse AND or OR. `written` are those of the same group."""
        start = self._position
        if not self._keyword(word):
            return False
        written.add(word)
        if len(written) > 1 and not self._dialect.mixes_and_or:
            self._position = start
            self._fail(
                "parentheses are required when AND and OR are combined. "
                "Write (a OR b) AND c, or a OR (b AND c), whichever is meant"
            )
        return True

    def _nested_term(self, term: Callable[[], FilterNode]) -> FilterNode:
        """Parse one term with its negation or parentheses."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"it is nested more than {MAX_DEPTH} deep")
        if self._keyword("NOT") or self._symbol("-"):
            node: FilterNode = Not(self._nested_term(term))
        elif self._symbol("("):
            node = self._group(term)
            if not self._symbol(")"):
                self._expected("a closing parenthesis")
        else:
            self._terms += 1
            if self._terms > self._dialect.max_terms:
                self._fail(f"it has more than {self._dialect.max_terms:,} words and comparisons")
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
        operator = self._operator()
        if not operator:
            single = path[0] if len(path) == 1 else self._text[start:end]
            return TextTerm(str(single).casefold())
        if not all(path):
            self._position = start
            self._fail("a name in this field path is empty")
        return self._operand(self._indexed(path) if self._dialect.indexes else path, operator)

    def _operator(self) -> str:
        match = _OPERATOR.match(self._text, self._position)
        if match is None:
            return ""
        if match[1] not in self._dialect.operators:
            known = " ".join(self._dialect.operators)
            self._fail(f"{match[1]} is not an operator; these are: {known}. Put a value that begins with one in quotes")
        self._position = match.end()
        return match[1]

    def _operand(self, path: Path, operator: str) -> FilterNode:
        if self._text[self._position : self._position + 1] != "(":
            return self._comparison(path, operator, _BARE_VALUE)
        if operator not in self._dialect.list_operators:
            self._fail(f"{operator} takes one value; a list goes with = or :, after NOT to exclude all of it")
        if self._dialect.value_expressions:
            return self._nested_term(lambda: self._comparison(path, operator, _BARE_VALUE))
        self._symbol("(")
        values = [self._comparison(path, operator, _BARE_LIST_VALUE)]
        while not self._symbol(")"):
            if not self._symbol(","):
                self._keyword("OR")
            values.append(self._comparison(path, operator, _BARE_LIST_VALUE))
        return Or(tuple(values))

    def _path(self) -> tuple[str, ...]:
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

    @staticmethod
    def _indexed(path: tuple[str, ...]) -> Path:
        """Split `args[0]` into a name and an index. `args[]` is every element, as `args` is."""
        segments: list[str | int] = []
        for name in path:
            match = _INDEX.fullmatch(name)
            segments += [match[1]] if match and match[1] else [] if match else [name]
            segments += [int(index) for index in re.findall(r"-?\d+", match[2])] if match else []
        return tuple(segments)

    def _comparison(self, path: Path, operator: str, bare_value: re.Pattern[str]) -> FilterNode:
        start = self._position
        bare = False
        value = self._quoted()
        if value is None:
            word = bare_value.match(self._text, self._position)
            if word is None or word[0] in _KEYWORDS:
                self._expected(f"a value after {operator}")
            value, bare = word[0], True
            self._position = word.end()
        try:
            node = self._dialect.comparison(path, operator, value, bare)
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
        return self._dialect.unescape(match[1] if match[1] is not None else match[2])

    def _skip(self) -> None:
        match = self._skipped.match(self._text, self._position)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The rules of one dialect. Words, parentheses, NOT, quotation marks and a missing AND are the same in all.

    A missing AND binds less tightly than OR: `a b OR c` is `a AND (b OR c)`.
    """

    operators: tuple[str, ...]
    #: gives the node for a path, an operator, a value and whether the value is unquoted; raises `ValueError` with a
    #: sentence if they do not go together
    comparison: Callable[[Path, str, str, bool], FilterNode]
    unescape: Callable[[str], str]  #: what stands between quotation marks, without its escapes
    mixes_and_or: bool  #: OR binds tighter than AND; otherwise a group with both needs parentheses
    comments: bool  #: `-- words` to the end of a line
    value_expressions: bool  #: a list of values is an expression with AND, OR and NOT; otherwise any value will do
    list_operators: frozenset[str]  #: operators that take a list of values
    indexes: bool  #: `args[0]` is the first element of a list
    max_characters: int
    max_terms: int  #: words and comparisons; each costs time for every document
