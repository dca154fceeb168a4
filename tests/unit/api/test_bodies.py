"""Limits before parsing."""

from __future__ import annotations

import time
from collections.abc import Callable

import orjson
import pytest

from trainshed.api.http.bodies import MAX_DEPTH, parse_json
from trainshed.errors import InvalidArgumentError


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_depth_is_bounded() -> None:
    assert parse_json(nested(MAX_DEPTH)) is not None
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(InvalidArgumentError, match="nested"):
            parse_json(nested(depth))


def test_brackets_in_strings_do_not_count() -> None:
    text = "[" * 1000
    assert parse_json(f'{{"a": "{text}", "b": "\\"{text}"}}'.encode()) == {"a": text, "b": f'"{text}'}


@pytest.mark.parametrize(
    "body",
    [b'{"filter":"' + b"a" * 2_000_000 + b'"}', b"[" + b"[]," * 500_000 + b"1]", b"[" + b'"",' * 500_000 + b"1]"],
    ids=["long", "wide", "many"],
)
def test_a_large_body_is_read_in_about_the_time_of_its_parsing(body: bytes) -> None:
    assert quickest(parse_json, body) < 100 * quickest(orjson.loads, body)


def quickest(parse: Callable[[bytes], object], body: bytes) -> float:
    """Seconds of a processor, the best of three, so that a busy machine does not count."""
    seconds = []
    for _ in range(3):
        began = time.thread_time()
        parse(body)
        seconds.append(time.thread_time() - began)
    return min(seconds)


def test_brackets_that_do_not_match_are_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        parse_json(b"[}" * 100)


@pytest.mark.parametrize(
    "body", [b"NaN", b"[Infinity]", b'"\\ud800"', b"{", b"", b"\x00", b"{'a': 1}", b"[1,]", b'"\xff"']
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="not JSON"):
        parse_json(body)
