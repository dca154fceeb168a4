"""How the command line reads a log: by the server's clock, and to the end of what is there."""

from __future__ import annotations

from typing import Any, cast

from trainshed.cli.jobs.logs import Moment
from trainshed.cli.toolkit.options import CommandContext
from trainshed.client.job_reader import entries


def entry(number: int) -> dict[str, Any]:
    """Of a server whose clock is years ahead."""
    return {"time": "2999-01-01T00:00:00Z", "message": f"{number}"}


class Pages:
    """A session and its client in one: answers with pages that were made before, and keeps what it was asked."""

    project = "shed"

    def __init__(self, *pages: dict[str, Any]) -> None:
        self.client = self
        self._pages = list(pages)
        self.asked: list[dict[str, Any]] = []

    def call(self, method: str, path: str, *, query: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(dict(query))
        return self._pages.pop(0)


def page(*numbers: int, more: bool, at: str) -> dict[str, Any]:
    moment = "2998-12-31T23:50:00Z"
    return {"entries": [entry(n) for n in numbers], "cursor": at, "more": more, "ended": False, "since": moment}


def test_it_reads_on_while_there_is_more_and_then_stops() -> None:
    pages = Pages(page(more=True, at="2~1"), page(1, 2, more=True, at="2"), page(3, more=False, at="3"))
    found = list(entries(cast(CommandContext, pages), "job", query={"since": "10m", "tail": 3}, follow=False))
    assert [each["message"] for each in found] == ["1", "2", "3"]
    assert [(asked["cursor"], asked["tail"]) for asked in pages.asked] == [(None, 3), ("2~1", None), ("2", None)]


def test_a_duration_counts_back_from_the_first_question_by_the_servers_clock() -> None:
    pages = Pages(page(1, more=True, at="1"), page(2, more=False, at="2"))
    since = Moment().convert("10m", None, None)
    list(entries(cast(CommandContext, pages), "job", query={"since": since}, follow=False))
    assert [asked["since"] for asked in pages.asked] == ["10m", "2998-12-31T23:50:00Z"]


def test_without_follow_it_ends_at_what_was_there_when_it_began() -> None:
    pages = Pages(page(1, more=True, at="1") | {"end": "9"}, page(2, more=True, at="2"), page(3, more=False, at="3"))
    list(entries(cast(CommandContext, pages), "job", follow=False))
    assert [asked.get("until") for asked in pages.asked] == [None, "9", "9"]


def test_with_follow_it_goes_on_past_it() -> None:
    last = page(2, more=False, at="2") | {"ended": True}
    pages = Pages(page(1, more=True, at="1") | {"end": "9"}, last)
    list(entries(cast(CommandContext, pages), "job", follow=True))
    assert [asked.get("until") for asked in pages.asked] == [None, None]
