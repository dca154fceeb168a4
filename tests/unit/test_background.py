"""The background loop: how it ends, how it is woken, and what it does about passes that fail."""

from __future__ import annotations

import logging
import threading

import pytest

from trainshed.background import BackgroundLoop
from trainshed.errors import UnavailableError

NEVER_S = 3600.0
SOON_S = 60.0  #: how long a test waits at most


class Passes:
    """A step that counts its calls. `fail` makes each raise, `hold` blocks each until it is set."""

    def __init__(self, pause_s: float = NEVER_S) -> None:
        self.pause_s = pause_s
        self.count = 0
        self.fail: Exception | None = None
        self.hold = threading.Event()
        self.hold.set()
        self._more = threading.Condition()

    def __call__(self) -> float:
        with self._more:
            self.count += 1
            self._more.notify_all()
        self.hold.wait(SOON_S)
        if self.fail is not None:
            raise self.fail
        return self.pause_s

    def await_count(self, count: int) -> None:
        with self._more:
            assert self._more.wait_for(lambda: self.count >= count, timeout=SOON_S), self.count


def test_it_ends_after_the_pass_that_runs_and_starts_no_other() -> None:
    passes = Passes(pause_s=0.0)
    loop = BackgroundLoop("test", passes)
    passes.hold.clear()
    loop.start()
    passes.await_count(1)
    loop.stop()
    loop.stop()
    assert not loop.join(timeout_s=0.01)
    passes.hold.set()
    assert loop.join()
    assert (passes.count, loop.stopping.is_set()) == (1, True)


def test_a_stop_ends_the_pause() -> None:
    passes = Passes(pause_s=NEVER_S)
    loop = BackgroundLoop("test", passes)
    loop.start()
    passes.await_count(1)
    loop.stop()
    assert loop.join(SOON_S)


def test_one_that_was_never_started_has_ended() -> None:
    loop = BackgroundLoop("test", Passes())
    loop.stop()
    assert loop.join()


def test_one_that_was_stopped_before_its_start_runs_no_pass() -> None:
    passes = Passes()
    loop = BackgroundLoop("test", passes)
    loop.stop()
    loop.start()
    assert loop.join(SOON_S)
    assert passes.count == 0


def test_a_pass_may_end_the_loop() -> None:
    def step() -> float:
        loop.stop()
        return 0.0

    loop = BackgroundLoop("test", step)
    loop.start()
    assert loop.join(SOON_S)


def test_one_that_does_not_end_in_time_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    passes = Passes()
    passes.hold.clear()
    loop = BackgroundLoop("stuck", passes)
    loop.start()
    passes.await_count(1)
    loop.stop()
    with caplog.at_level(logging.WARNING, "trainshed.background"):
        assert not loop.join(timeout_s=0.01)
    assert "loop.not_ended name=stuck" in caplog.text
    passes.hold.set()
    assert loop.join(SOON_S)


def test_a_wakeup_starts_the_next_pass_also_if_it_comes_during_one() -> None:
    passes = Passes(pause_s=NEVER_S)
    loop = BackgroundLoop("test", passes)
    loop.start()
    passes.await_count(1)
    loop.wake()
    passes.await_count(2)
    passes.hold.clear()
    loop.wake()
    passes.await_count(3)
    loop.wake()
    passes.hold.set()
    passes.await_count(4)
    loop.stop()
    assert loop.join(SOON_S)


def test_a_pause_inside_of_a_pass_is_cut_short() -> None:
    cuts: list[bool] = []
    paused = threading.Event()

    def step() -> float:
        cuts.append(loop.pause(0.0))
        paused.set()
        cuts.append(loop.pause(NEVER_S))
        loop.stop()
        return 0.0

    loop = BackgroundLoop("test", step)
    loop.start()
    assert paused.wait(SOON_S)
    loop.wake()
    assert loop.join(SOON_S)
    assert cuts == [False, True]


@pytest.mark.parametrize(
    ("error", "traceback"), [(UnavailableError("The disk is gone."), False), (ZeroDivisionError("a bug"), True)]
)
def test_a_pass_that_fails_is_logged_and_followed_by_others(
    error: Exception, traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    passes = Passes(pause_s=NEVER_S)
    passes.fail = error
    loop = BackgroundLoop("failing", passes)
    with caplog.at_level(logging.WARNING, "trainshed.background"):
        loop.start()
        passes.await_count(3)
        passes.fail = None
        loop.stop()
        assert loop.join(SOON_S)
    records = [record for record in caplog.records if record.name == "trainshed.background"]
    assert len(records) >= 2
    assert all("loop.step_failed name=failing" in record.getMessage() for record in records)
    assert {record.exc_info is not None for record in records} == {traceback}
