"""What waits is put together, nothing waits for company, and company changes no answer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.serving.codec.predictors import predict, predictor
from trainshed.serving.codec.responses import Answer
from trainshed.serving.errors import InvalidInputsError
from trainshed.serving.host import batcher as batcher_module
from trainshed.serving.host.batcher import Batcher, PendingRequest
from trainshed.serving.loaders.base import Model
from trainshed.testing.fakes.models import Scorer, Shouter, Weighing


class Mailbox:
    """Keeps what is sent, and how it came together."""

    def __init__(self) -> None:
        self.sent: list[list[tuple[int, Answer]]] = []

    def send(self, answers: Sequence[tuple[int, Answer]]) -> None:
        self.sent.append(list(answers))

    @property
    def answers(self) -> dict[int, Answer]:
        return dict(answer for sent in self.sent for answer in sent)


class Recorder:
    """Runs requests that are words, and keeps what it was given at once."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []

    def __call__(self, requests: list[Any]) -> list[Answer]:
        self.batches.append([request.word for request in requests])
        if any(request.word == "bad" for request in requests):
            raise ValueError("bad word")
        return [(200, request.word.encode()) for request in requests]


class Word:
    def __init__(self, word: str, key: object = "k") -> None:
        self.word = word
        self.key = key


def worked(batcher: Batcher) -> None:
    batcher.close()
    batcher.work()


def made(**given: Any) -> Batcher:
    return Batcher(**{"max_batch": 4, "queue_limit": 100, "merges": True} | given)


def test_what_waits_goes_together_up_to_the_greatest_batch() -> None:
    batcher, run, box = made(), Recorder(), Mailbox()
    for at, word in enumerate("abcdef"):
        batcher.enqueue(PendingRequest(box, at, run, Word(word)))
    worked(batcher)
    assert run.batches == [["a", "b", "c", "d"], ["e", "f"]]
    assert [len(sent) for sent in box.sent] == [4, 2]  # a batch's answers are sent at once
    assert box.answers == {at: (200, word.encode()) for at, word in enumerate("abcdef")}
    assert (batcher.counts.requests, batcher.counts.instances, batcher.counts.batches) == (6, 6, 2)


def test_only_requests_of_one_key_share_a_batch_and_none_starves() -> None:
    batcher, run, box = made(), Recorder(), Mailbox()
    for at, (word, key) in enumerate([("a", 1), ("b", 2), ("c", 1), ("d", None), ("e", 2), ("f", None)]):
        batcher.enqueue(PendingRequest(box, at, run, Word(word, key)))
    worked(batcher)
    assert run.batches == [["a", "c"], ["b", "e"], ["d"], ["f"]]


def test_a_batch_counts_instances_not_requests() -> None:
    batcher, run, box = made(), Recorder(), Mailbox()
    for at, (word, count) in enumerate([("a", 3), ("b", 2), ("c", 1), ("d", 9)]):
        batcher.enqueue(PendingRequest(box, at, run, Word(word), count))
    worked(batcher)
    assert run.batches == [["a", "c"], ["b"], ["d"]]
    assert batcher.counts.instances == 15


def test_nothing_is_put_together_for_a_model_whose_answers_depend_on_company() -> None:
    batcher, run = made(merges=False), Recorder()
    for at, word in enumerate("abc"):
        batcher.enqueue(PendingRequest(Mailbox(), at, run, Word(word)))
    worked(batcher)
    assert run.batches == [["a"], ["b"], ["c"]]


@pytest.mark.fault("F55")
def test_only_the_bad_one_of_a_batch_fails() -> None:
    batcher, run, box = made(), Recorder(), Mailbox()
    for at, word in enumerate(["a", "bad", "c"]):
        batcher.enqueue(PendingRequest(box, at, run, Word(word)))
    worked(batcher)
    assert run.batches == [["a", "bad", "c"], ["a"], ["bad"], ["c"]]
    assert box.answers[0] == (200, b"a")
    assert box.answers[2] == (200, b"c")
    status, body = box.answers[1]
    assert status == 500
    assert "bad word" in orjson.loads(body)["error"]["message"]
    assert batcher.counts.failed == 1


def test_answers_go_to_who_asked() -> None:
    batcher, run, boxes = made(), Recorder(), [Mailbox(), Mailbox()]
    for at, word in enumerate("abc"):
        batcher.enqueue(PendingRequest(boxes[at % 2], 7, run, Word(word)))
    worked(batcher)
    assert run.batches == [["a", "b", "c"]]
    assert [sent for (sent,) in boxes[0].sent] == [(7, (200, b"a")), (7, (200, b"c"))]
    assert boxes[1].answers == {7: (200, b"b")}


def test_cancelled_requests_are_not_run() -> None:
    batcher, run, box, other = made(), Recorder(), Mailbox(), Mailbox()
    for at, word in enumerate("abc"):
        batcher.enqueue(PendingRequest(box, at, run, Word(word)))
        batcher.enqueue(PendingRequest(other, at, run, Word(word.upper())))
    batcher.cancel(box, 1)
    batcher.cancel(other)
    batcher.cancel(box, 9)
    worked(batcher)
    assert run.batches == [["a", "c"]]
    assert (batcher.counts.cancelled, other.sent) == (4, [])


def test_a_full_queue_says_so_while_the_model_hangs() -> None:
    batcher, box, released, begun = made(queue_limit=2), Mailbox(), threading.Event(), threading.Event()

    def hang(requests: list[Any]) -> list[Answer]:
        begun.set()
        assert released.wait(90)
        return [(200, b"") for _ in requests]

    worker = threading.Thread(target=batcher.work)
    worker.start()
    batcher.enqueue(PendingRequest(box, 0, hang, Word("a", None)))
    assert begun.wait(90)
    for at in (1, 2):
        assert not batcher.full()
        batcher.enqueue(PendingRequest(box, at, hang, Word("a", None)))
    assert batcher.full()
    assert batcher.running_s() > 0
    assert batcher.waiting() == 2
    released.set()
    batcher.close()
    worker.join(90)
    assert not worker.is_alive()
    assert sorted(box.answers) == [0, 1, 2]
    assert (batcher.counts.refused, batcher.running_s()) == (1, 0.0)


def test_a_worker_that_sleeps_wakes_up_for_each_request() -> None:
    batcher, run, box = made(), Recorder(), Mailbox()
    worker = threading.Thread(target=batcher.work)
    worker.start()
    for at in range(200):
        batcher.enqueue(PendingRequest(box, at, run, Word("a")))
        if at % 7 == 0:
            while len(box.answers) <= at:
                assert worker.is_alive()
    batcher.close()
    worker.join(90)
    assert len(box.answers) == 200


ROWS = st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), max_size=3)
TEXTS = st.lists(st.text(max_size=3) | st.just("é"), max_size=3)


@pytest.mark.fault("F55")
@pytest.mark.parametrize(
    "model, instances", [(Scorer(), ROWS), (Shouter(), TEXTS), (Weighing(), ROWS)], ids=["tensors", "strings", "table"]
)
@given(data=st.data())
def test_company_changes_no_byte_of_an_answer(data: st.DataObject, model: Model, instances: Any) -> None:
    asked = predictor(model)
    bodies = [orjson.dumps({"instances": given}) for given in data.draw(st.lists(instances, min_size=2, max_size=6))]
    alone = {at: predict(asked, body) for at, body in enumerate(bodies)}
    batcher, box = made(max_batch=8), Mailbox()

    def run(requests: list[Any]) -> list[Answer]:
        return [(200, answer) for answer in asked.run(requests)]

    for at, body in enumerate(bodies):
        with contextlib.suppress(InvalidInputsError):  # which never gets here
            request = asked.read(body)
            batcher.enqueue(PendingRequest(box, at, run, request, request.count))
    worked(batcher)
    assert box.answers == {at: answer for at, answer in alone.items() if at in box.answers}
    assert len(box.answers) >= sum(status == 200 for status, _ in alone.values())


def test_it_tells_once_when_there_is_nothing_to_do_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher_module, "TRIM_IDLE_TIMEOUT_S", 0.01)
    idle, told = threading.Event(), []

    def tell() -> None:
        told.append(1)
        idle.set()

    batcher, run, box = made(idle=tell), Recorder(), Mailbox()
    worker = threading.Thread(target=batcher.work)
    worker.start()
    for at, word in enumerate("ab"):
        assert idle.wait(90)
        idle.clear()
        batcher.enqueue(PendingRequest(box, at, run, Word(word)))
    assert idle.wait(90)
    batcher.close()
    worker.join(90)
    assert not worker.is_alive()
    assert len(told) == 3
    assert set(box.answers) == {0, 1}
