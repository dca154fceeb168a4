"""Waiting for a condition: what is returned, and what a failure says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trainshed.testing.eventually import eventually


def test_the_first_good_value_is_returned() -> None:
    values: Iterator[int] = iter(range(100))
    assert eventually(lambda: next(values), lambda value: value > 2) == 3
    assert next(values) == 4


def test_a_failure_says_what_was_seen_last() -> None:
    with pytest.raises(AssertionError, match=r"^still 'cold' after 0 s\nthe log$"):
        eventually(lambda: "cold", lambda value: value == "warm", within_s=0, describe=lambda: "the log")


def test_errors_are_tried_again_only_if_they_are_named() -> None:
    def fail() -> bool:
        raise ConnectionError("nobody listens")

    with pytest.raises(AssertionError, match=r"^still ConnectionError: nobody listens after 0 s$"):
        eventually(fail, within_s=0, retry_on=OSError)
    with pytest.raises(ConnectionError):
        eventually(fail, within_s=60)
