"""Clients that ask one study at the same time are answered together, each with its own answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import pytest

from trainshed.domain.tuning.study import StudyKey
from trainshed.errors import UnavailableError
from trainshed.services.tuning.asks import Answer, Ask, StudyQueue, StudyQueues
from trainshed.testing.eventually import eventually


class Answers:
    """Holds the first group until `go` is set, and keeps the clients of all groups."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.groups: list[list[str]] = []

    def __call__(self, asks: Sequence[Ask]) -> list[Answer]:
        self.groups.append([ask.client for ask in asks])
        if len(self.groups) == 1:
            assert self.go.wait(60)
        return [_answer(ask) for ask in asks]


def _answer(ask: Ask) -> Answer:
    return UnavailableError(f"nothing for {ask.client}") if ask.client == "unlucky" else {"client": ask.client}


def ask_all(asks: Sequence[tuple[str, int]]) -> tuple[list[object], list[list[str]]]:
    """Ask once, and while that is answered, in order, for all others. Returns their answers and the groups."""
    queue, answers = StudyQueue(), Answers()
    results: list[object] = [None] * len(asks)

    def ask(place: int, client: str, count: int) -> None:
        try:
            results[place] = queue.answer(Ask(client=client, count=count), answers)
        except (UnavailableError, ValueError) as exc:
            results[place] = str(exc)

    def waits(count: int) -> bool:
        return queue.waiting == count

    threads = []
    for place, (client, count) in enumerate(asks):
        threads.append(threading.Thread(target=ask, args=(place, client, count)))
        threads[-1].start()
        if place == 0:
            eventually(lambda: answers.groups, bool)
        else:
            eventually(partial(waits, place), bool)
    answers.go.set()
    for thread in threads:
        thread.join(60)
    return results, answers.groups


def test_those_that_come_meanwhile_are_answered_together() -> None:
    results, groups = ask_all([("a", 1), ("b", 1), ("unlucky", 2), ("c", 1)])
    assert groups == [["a"], ["b", "unlucky", "c"]]
    assert results == [{"client": "a"}, {"client": "b"}, "nothing for unlucky", {"client": "c"}]


def test_two_asks_of_one_client_are_not_in_one_group() -> None:
    _, groups = ask_all([("a", 1), ("b", 1), ("b", 1), ("c", 1)])
    assert groups == [["a"], ["b", "c"], ["b"]]


def test_a_group_asks_for_no_more_than_one_request_may() -> None:
    _, groups = ask_all([("a", 1), ("b", 60), ("c", 60), ("d", 40)])
    assert groups == [["a"], ["b", "d"], ["c"]]


def test_an_error_is_for_all_of_the_group_and_the_next_one_is_answered() -> None:
    queue = StudyQueue()

    def fail(asks: Sequence[Ask]) -> list[Answer]:
        raise ValueError(f"{len(asks)} asks")

    with pytest.raises(ValueError, match="1 asks"):
        queue.answer(Ask(client="a", count=1), fail)
    assert queue.answer(Ask(client="a", count=1), lambda asks: [_answer(ask) for ask in asks]) == {"client": "a"}


def test_an_interrupted_thread_leaves_no_other_one_waiting() -> None:
    queue = StudyQueue()

    def interrupt(asks: Sequence[Ask]) -> list[Answer]:
        raise KeyboardInterrupt

    ask = Ask(client="a", count=1)
    with pytest.raises(KeyboardInterrupt):
        queue.answer(ask, interrupt)
    assert isinstance(ask.answer, UnavailableError)


def test_each_study_has_a_queue_of_its_own() -> None:
    queues, key = StudyQueues(), StudyKey(project="p", location="l", id="s")
    assert queues.of(key) is queues.of(key)
    assert queues.of(key) is not queues.of(StudyKey(project="p", location="l", id="t"))
