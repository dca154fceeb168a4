"""A write over what was read, while others write too."""

from __future__ import annotations

import pytest

from trainshed.errors import Aborted, Overtaken
from trainshed.store.conflicts import TRIES, until_first


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
            raise Overtaken("someone was faster")
        self.value = read + 1
        return self.value


def test_what_others_wrote_is_read_again() -> None:
    assert until_first(Row(others=3).add_one) == 31


def test_it_is_not_tried_for_ever() -> None:
    assert until_first(Row(others=TRIES - 1).add_one) == 10 * (TRIES - 1) + 1
    with pytest.raises(Overtaken):
        until_first(Row(others=TRIES).add_one)


def test_an_etag_that_is_not_the_current_one_is_refused_at_once() -> None:
    asked: list[str] = []

    def refuse() -> None:
        asked.append("with an old etag")
        raise Aborted("not the current one")

    with pytest.raises(Aborted):
        until_first(refuse)
    assert len(asked) == 1
