"""What a filter is made of, and what each part matches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self

from trainshed.domain.times import parse_rfc3339

Path = tuple[str, ...]

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
TIMES = frozenset({"timestamp", "receiveTimestamp", "createTime", "startTime", "endTime"})

_FRACTION = re.compile(r"\.\d{6}(\d{1,3})")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ZONE = re.compile(r"([+-]\d\d)(\d\d)$")  #: google-cloud-logging writes +0000 for +00:00
Predicate = Callable[[Any], bool]
_ORDERED: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}
MAX_PATTERN = 1000
Search = Callable[[str], bool]


class TimeWindow(NamedTuple):
    """An interval of microseconds, both ends included; None is open."""

    lower: int | None = None
    upper: int | None = None


class FilterNode(Protocol):
    """One part of a filter over JSON documents. `window` and `required` may say too little, never too much."""

    def matches(self, document: Mapping[str, Any]) -> bool: ...

    def window(self, path: Path) -> TimeWindow: ...

    def required(self, path: Path) -> frozenset[str] | None: ...


@dataclass(frozen=True, slots=True)
class And:
    """All of these. None of them: everything."""

    parts: tuple[FilterNode, ...]

    def matches(self, document: Mapping[str, Any]) -> bool:
        return all(part.matches(document) for part in self.parts)

    def window(self, path: Path) -> TimeWindow:
        windows = [part.window(path) for part in self.parts]
        lowers = [w.lower for w in windows if w.lower is not None]
        uppers = [w.upper for w in windows if w.upper is not None]
        return TimeWindow(max(lowers, default=None), min(uppers, default=None))

    def required(self, path: Path) -> frozenset[str] | None:
        named = [values for part in self.parts if (values := part.required(path)) is not None]
        return frozenset.intersection(*named) if named else None


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of these."""

    parts: tuple[FilterNode, ...]

    def matches(self, document: Mapping[str, Any]) -> bool:
        return any(part.matches(document) for part in self.parts)

    def window(self, path: Path) -> TimeWindow:
        windows = [part.window(path) for part in self.parts]
        lowers = [w.lower for w in windows if w.lower is not None]
        uppers = [w.upper for w in windows if w.upper is not None]
        return TimeWindow(
            min(lowers) if len(lowers) == len(windows) else None, max(uppers) if len(uppers) == len(windows) else None
        )

    def required(self, path: Path) -> frozenset[str] | None:
        named = [values for part in self.parts if (values := part.required(path)) is not None]
        return frozenset.union(*named) if len(named) == len(self.parts) else None


@dataclass(frozen=True, slots=True)
class Not:
    part: FilterNode

    def matches(self, document: Mapping[str, Any]) -> bool:
        return not self.part.matches(document)

    def window(self, path: Path) -> TimeWindow:
        return TimeWindow()

    def required(self, path: Path) -> frozenset[str] | None:
        return None


@dataclass(frozen=True, slots=True)
class TextTerm:
    """A word anywhere in a document's values, in either case. It is given in folded case."""

    folded: str

    def matches(self, document: Mapping[str, Any]) -> bool:
        return any(self.folded in _written(value).casefold() for value in _scalars(document))

    def window(self, path: Path) -> TimeWindow:
        return TimeWindow()

    def required(self, path: Path) -> frozenset[str] | None:
        return None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field against a value. A field that is not there matches nothing, `!=` and `!~` included."""

    path: Path
    operator: str
    value: str
    bare: bool  #: written without quotes, so that `*` at its ends stands for anything
    test: Predicate = field(compare=False)

    @classmethod
    def build(cls, path: Path, operator: str, value: str, *, bare: bool) -> Self:
        """`ValueError` with a sentence if the value can't be compared to that field."""
        return cls(path, operator, value, bare, _test(path, operator, value, bare))

    def matches(self, document: Mapping[str, Any]) -> bool:
        return any(map(self.test, _look_up(document, self.path)))

    def window(self, path: Path) -> TimeWindow:
        if path != self.path or not _is_time_field(path) or self.operator not in _ORDERED:
            return TimeWindow()
        at = _nanoseconds(self.value) // 1000
        return TimeWindow(
            at if self.operator in ("=", ">", ">=") else None, at if self.operator in ("=", "<", "<=") else None
        )

    def required(self, path: Path) -> frozenset[str] | None:
        if path != self.path or self.operator != "=" or (self.bare and "*" in self.value):
            return None
        return frozenset({self.value})


def _test(path: Path, operator: str, value: str, bare: bool) -> Predicate:
    if operator in ("=~", "!~"):
        return _pattern_test(value, wanted=operator == "=~")
    starred = bare and (value.startswith("*") or value.endswith("*"))
    if operator == ":":
        return _wildcard_test(value, wanted=True) if starred and value != "*" else _has_test(value, anything=starred)
    compare = _ORDERED[operator]
    if _is_time_field(path):
        moment = _nanoseconds(value)
        return lambda found: _is_time(found) and compare(_nanoseconds(found), moment)
    if path == ("severity",):
        rank = _rank(value)
        return lambda found: compare(_rank(str(found)), rank)
    if starred and operator in ("=", "!="):
        return _wildcard_test(value, wanted=operator == "=")
    return _plain_test(compare, value)


def _pattern_test(pattern: str, *, wanted: bool) -> Predicate:
    search: Search = compile_pattern(pattern)
    return lambda found: search(_written(found)) is wanted


def _has_test(value: str, *, anything: bool) -> Predicate:
    folded = value.casefold()

    def has(found: Any) -> bool:
        if anything:
            return True
        if isinstance(found, dict) and value in found:
            return True
        return any(folded in _written(scalar).casefold() for scalar in _scalars(found))

    return has


def _wildcard_test(value: str, *, wanted: bool) -> Predicate:
    core = value.strip("*")

    def like(found: Any) -> bool:
        text = _written(found)
        if value.startswith("*") and value.endswith("*"):
            return core in text
        return text.endswith(core) if value.startswith("*") else text.startswith(core)

    return lambda found: like(found) is wanted


def _plain_test(compare: Callable[[Any, Any], bool], value: str) -> Predicate:
    try:
        number: float | None = float(value)
    except ValueError:
        number = None

    def plain(found: Any) -> bool:
        if isinstance(found, str):
            return compare(found, value)
        if isinstance(found, int | float) and not isinstance(found, bool) and number is not None:
            return compare(found, number)
        return not isinstance(found, dict) and compare(_written(found), value)

    return plain


def _rank(name: str) -> int:
    rank = int(name) if name.isascii() and name.isdigit() and len(name) < 5 else SEVERITIES.get(name.upper())
    if rank is None:
        raise ValueError(f"{name[:40]!r} is not a severity; these are: {', '.join(SEVERITIES)}")
    return rank


def _nanoseconds(text: str) -> int:
    """`ValueError` with a sentence if it is neither a time nor a date."""
    whole = f"{text}T00:00:00Z" if _DATE.fullmatch(text) else text
    try:
        microseconds = parse_rfc3339(_ZONE.sub(r"\1:\2", whole))
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is not a time like 2026-11-15T21:17:35Z") from None
    rest = _FRACTION.search(whole)
    return microseconds * 1000 + (int(rest[1].ljust(3, "0")) if rest else 0)


def _is_time_field(path: Path) -> bool:
    return len(path) == 1 and path[0] in TIMES


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _look_up(document: Any, path: Path) -> list[Any]:
    """The values at a path: none, one, or one for each element of a list on the way."""
    for at, name in enumerate(path):
        if isinstance(document, list | tuple):
            return [found for element in document for found in _look_up(element, path[at:])]
        if not isinstance(document, dict):
            return []
        if name in document:
            document = document[name]
        elif (joined := ".".join(path[at:])) in document:  # labels.ml.googleapis.com/task_name, without quotes
            return _look_up(document[joined], ())
        elif (camel := _camel(name)) in document:
            document = document[camel]
        else:
            return []
    if isinstance(document, list | tuple):
        return [found for element in document for found in _look_up(element, ())]
    return [] if document is None else [document]


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


def _scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _scalars(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _scalars(inner)
    elif value is not None:
        yield value


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def compile_pattern(pattern: str) -> Search:
    """A function that says whether the pattern is somewhere in a text. `ValueError`, a sentence, if it is not one."""
    import re2  # type: ignore[import-untyped]  # only who searches pays for loading it

    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the regular expression has {len(pattern):,} characters; {MAX_PATTERN:,} are allowed")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as exc:
        reason = exc.args[0]
        said = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"{pattern[:60]!r} is not a regular expression ({said})") from None
    return lambda text: compiled.search(text) is not None
