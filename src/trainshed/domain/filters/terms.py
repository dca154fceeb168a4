"""The nodes of a filter that all dialects share, and how a node reads a document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from trainshed.domain.times import parse_rfc3339

Path = tuple[str | int, ...]  #: names, and indexes into lists

SEVERITIES: Mapping[str, int] = {
    "DEFAULT": 0,
    "DEBUG": 100,
    "INFO": 200,
    "NOTICE": 300,
    "WARNING": 400,
    "ERROR": 500,
    "CRITICAL": 600,
    "ALERT": 700,
    "EMERGENCY": 800,
}

_FRACTION = re.compile(r"\.\d{6}(\d{1,3})")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ZONE = re.compile(r"([+-]\d\d)(\d\d)$")  #: google-cloud-logging writes +0000 for +00:00
MAX_PATTERN_CHARACTERS = 1000
SEPARATOR = "\0"  #: between two texts; a term with it matches nothing
Search = Callable[[str], bool]


class TimeWindow(NamedTuple):
    """An interval of microseconds, both ends included. None means unbounded."""

    lower: int | None = None
    upper: int | None = None


class Reading:
    """One document while a filter is applied to it. Terms share what they read and case-fold of it."""

    __slots__ = ("_values", "_words", "document")

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._values: dict[Path, list[Any]] = {}
        self._words: dict[Path, str] = {}

    def values(self, path: Path) -> list[Any]:
        """The values at a path."""
        if (values := self._values.get(path)) is None:
            values = self._values[path] = values_at(self.document, path)
        return values

    def words(self, path: Path = ()) -> str:
        """The texts in the values at a path, or in all of the document, case-folded, with `SEPARATOR` between them."""
        if (words := self._words.get(path)) is None:
            texts = (to_text(scalar).casefold() for scalar in scalars(self.values(path) if path else self.document))
            words = self._words[path] = SEPARATOR.join(texts)
        return words


class FilterNode(Protocol):
    """One node of a filter over JSON documents. `window` and `required` may be too wide, never too narrow."""

    def matches(self, reading: Reading) -> bool: ...

    def window(self, path: Path) -> TimeWindow: ...

    def required(self, path: Path) -> frozenset[str] | None: ...


@dataclass(frozen=True, slots=True)
class And:
    """All parts match. Without parts it matches everything."""

    parts: tuple[FilterNode, ...]

    def matches(self, reading: Reading) -> bool:
        return all(part.matches(reading) for part in self.parts)

    def window(self, path: Path) -> TimeWindow:
        windows = [part.window(path) for part in self.parts]
        lowers = [w.lower for w in windows if w.lower is not None]
        uppers = [w.upper for w in windows if w.upper is not None]
        return TimeWindow(max(lowers, default=None), min(uppers, default=None))

    def required(self, path: Path) -> frozenset[str] | None:
        constraints = [values for part in self.parts if (values := part.required(path)) is not None]
        return frozenset.intersection(*constraints) if constraints else None


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part matches."""

    parts: tuple[FilterNode, ...]

    def matches(self, reading: Reading) -> bool:
        return any(part.matches(reading) for part in self.parts)

    def window(self, path: Path) -> TimeWindow:
        windows = [part.window(path) for part in self.parts]
        lowers = [w.lower for w in windows if w.lower is not None]
        uppers = [w.upper for w in windows if w.upper is not None]
        return TimeWindow(
            min(lowers) if len(lowers) == len(windows) else None, max(uppers) if len(uppers) == len(windows) else None
        )

    def required(self, path: Path) -> frozenset[str] | None:
        constraints = [values for part in self.parts if (values := part.required(path)) is not None]
        return frozenset.union(*constraints) if len(constraints) == len(self.parts) else None


@dataclass(frozen=True, slots=True)
class Not:
    part: FilterNode

    def matches(self, reading: Reading) -> bool:
        return not self.part.matches(reading)

    def window(self, path: Path) -> TimeWindow:
        return TimeWindow()

    def required(self, path: Path) -> frozenset[str] | None:
        return None


@dataclass(frozen=True, slots=True)
class TextTerm:
    """A word anywhere in a document's values, case-insensitive. The word is case-folded already."""

    folded: str

    def matches(self, reading: Reading) -> bool:
        return self.folded in reading.words() and SEPARATOR not in self.folded

    def window(self, path: Path) -> TimeWindow:
        return TimeWindow()

    def required(self, path: Path) -> frozenset[str] | None:
        return None


def values_at(document: Any, path: Path) -> list[Any]:
    """The values at a path: none, one, or one for each element of a list along the path."""
    for depth, name in enumerate(path):
        if isinstance(document, list | tuple):
            if isinstance(name, int):
                document = document[name] if -len(document) <= name < len(document) else None
                continue
            return [value for element in document for value in values_at(element, path[depth:])]
        if not isinstance(document, dict) or isinstance(name, int):
            return []
        if name in document:
            document = document[name]
        elif (joined := ".".join(map(str, path[depth:]))) in document:  # labels.ml.googleapis.com/task_name, unquoted
            return values_at(document[joined], ())
        elif (camel := _camel(name)) in document:
            document = document[camel]
        else:
            return []
    if isinstance(document, list | tuple):
        return [value for element in document for value in values_at(element, ())]
    return [] if document is None else [document]


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


def scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from scalars(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from scalars(inner)
    elif value is not None:
        yield value


def to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def compile_pattern(pattern: str) -> Search:
    """Compile a regular expression to a search function.

    Raises `ValueError` with a sentence if the pattern is invalid.
    """
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise ValueError(
            f"the regular expression has {len(pattern):,} characters; {MAX_PATTERN_CHARACTERS:,} are allowed"
        )
    return compile_any((pattern,))


def compile_any(patterns: Sequence[str]) -> Search:
    """Compile regular expressions to a function that searches for any of them in one pass.

    Raises `ValueError` with a sentence if they are invalid, or too large together.
    """
    import re2  # type: ignore[import-untyped]  # imported lazily: only searches pay for loading it

    pattern = patterns[0] if len(patterns) == 1 else "|".join(f"(?:{pattern})" for pattern in patterns)
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as exc:
        reason = exc.args[0]
        message = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"{pattern[:60]!r} is not a regular expression ({message})") from None
    return lambda text: compiled.search(text) is not None


def time_ns(text: str) -> int:
    """Parse a time or a date. Raises `ValueError` with a sentence if it is neither."""
    whole = f"{text}T00:00:00Z" if _DATE.fullmatch(text) else text
    try:
        microseconds = parse_rfc3339(_ZONE.sub(r"\1:\2", whole))
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is not a time like 2026-11-15T21:17:35Z") from None
    rest = _FRACTION.search(whole)
    return microseconds * 1000 + (int(rest[1].ljust(3, "0")) if rest else 0)
