"""The way to a cloud that answers late, or never."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from trainshed.buckets.cloud import circuit_breaker
from trainshed.buckets.cloud.circuit_breaker import CircuitBreaker
from trainshed.errors import UnavailableError

LONG_S = 60.0


class Cloud:
    """Answers, or does not, as it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.silent = False
        self.error: Exception | None = None

    async def answer(self) -> str:
        self.asked += 1
        if self.silent:
            await asyncio.sleep(LONG_S)
        if self.error is not None:
            raise self.error
        return "yes"


@pytest.fixture
def way() -> Iterator[CircuitBreaker]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield CircuitBreaker("kept", "s3://lab-data", loop, failures=(KeyError,))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_one_at_a_time_waits_for_a_cloud_that_does_not_answer(
    way: CircuitBreaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "TRIP_AFTER_S", 0.01)
    monkeypatch.setattr(circuit_breaker, "OPEN_S", 3600)
    cloud = Cloud()
    assert way.call(LONG_S, cloud.answer) == "yes"
    cloud.silent = True
    with pytest.raises(
        UnavailableError, match=r"s3://lab-data, where gs://kept is kept, can't .* did not answer within"
    ):
        way.call(0.05, cloud.answer)
    cloud.silent = False
    with pytest.raises(UnavailableError, match="did not answer within"):
        way.call(LONG_S, cloud.answer)
    assert cloud.asked == 2


def test_after_the_pause_somebody_tries_and_the_others_are_told_until_then(
    way: CircuitBreaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "TRIP_AFTER_S", 0.01)
    monkeypatch.setattr(circuit_breaker, "OPEN_S", 0)
    cloud = Cloud()
    cloud.silent = True
    with pytest.raises(UnavailableError):
        way.call(0.05, cloud.answer)
    told = []

    async def meanwhile() -> str:
        def another() -> None:
            with pytest.raises(UnavailableError):
                way.call(LONG_S, cloud.answer)
            told.append(cloud.asked)

        await asyncio.to_thread(another)
        return "back"

    cloud.silent = False
    assert way.call(LONG_S, meanwhile) == "back"
    assert told == [1]
    assert way.call(LONG_S, cloud.answer) == "yes"


def test_what_fails_at_once_holds_up_nobody(way: CircuitBreaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuit_breaker, "TRIP_AFTER_S", LONG_S)  # a busy machine may hold up what fails at once
    cloud = Cloud()
    for error, sentence in (
        (KeyError("odd.\n  words."), r"can't be used now: 'odd\.\\n words\.'\. If that does not pass"),
        (PermissionError("no entry."), r"does not let this server in: no entry\. Look at the credentials"),
        (OSError(5, "broken"), r"can't be used now: \[Errno 5\] broken\."),
    ):
        cloud.error = error
        with pytest.raises(UnavailableError, match=sentence):
            way.call(LONG_S, cloud.answer)
    for answer in (FileNotFoundError, FileExistsError):
        cloud.error = answer()
        with pytest.raises(answer):
            way.call(LONG_S, cloud.answer)
    assert cloud.asked == 5
