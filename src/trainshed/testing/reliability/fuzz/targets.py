"""A parser of what strangers send, with good inputs and the errors with which it may refuse others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserTarget:
    """One parser. `parse` raises nothing but the errors of `refusals`, whatever the bytes are."""

    name: str
    parse: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    seeds: Sequence[bytes]
    words: Sequence[bytes] = ()  #: of the format
    broken: Sequence[bytes] = ()  #: inputs that once raised another error
    max_bytes: int = 16_384


class UnexpectedParserError(AssertionError):
    """A parser raised another error than those with which it refuses input."""


def run_target(target: ParserTarget, data: bytes) -> bool:
    """Give bytes to a parser. Returns whether it accepts them. Raises `UnexpectedParserError`, with the input."""
    try:
        target.parse(data)
    except target.refusals:
        return False
    except Exception as exc:
        raise UnexpectedParserError(f"{target.name}: {exc!r} for {data[:2000]!r}") from exc
    return True
