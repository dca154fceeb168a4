"""A write over what was read, while others write too."""

from __future__ import annotations

import pytest

from trainshed.errors import AbortedError, WriteConflictError
from trainshed.store.database import MAX_ATTEMPTS, retry_on_conflict


class Row:
    """A number that others raise by ten, so many times, between reading and writing."""

    def __init__(self, others: int) -> None:
        self.value = 0
        self.others = others

    def add_one(self) -> int:
        read = self.value
        if self.others > 0:
            self.others -= 1
            self.value += 10
            raise WriteConflictError("someone was faster")
        self.value = read + 1
        return self.value


def test_what_others_wrote_is_read_again() -> None:
    assert retry_on_conflict(Row(others=3).add_one) == 31


def test_it_is_not_tried_for_ever() -> None:
    assert retry_on_conflict(Row(others=MAX_ATTEMPTS - 1).add_one) == 10 * (MAX_ATTEMPTS - 1) + 1
    with pytest.raises(WriteConflictError):
        retry_on_conflict(Row(others=MAX_ATTEMPTS).add_one)


def test_an_etag_that_is_not_the_current_one_is_refused_at_once() -> None:
    asked: list[str] = []

    def refuse() -> None:
        asked.append("with an old etag")
        raise AbortedError("not the current one")

    with pytest.raises(AbortedError):
        retry_on_conflict(refuse)
    assert len(asked) == 1
