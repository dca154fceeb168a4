"""Crash points: nothing unless one is armed, and then what it was armed for, once."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.node import crashpoints
from trainshed.node.crashpoints import CrashpointError, crashpoint
from trainshed.testing.reliability.crash.points import point_names


@pytest.fixture(autouse=True)
def disarmed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    monkeypatch.undo()
    crashpoints.arm()


def arm(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(crashpoints.VARIABLE, text)
    crashpoints.arm()


def test_nothing_happens_unless_one_is_armed() -> None:
    crashpoint("a.point")
    assert crashpoints.variables() == {}


def test_it_acts_at_the_pass_that_was_asked_for_and_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(crashpoints.HITS_VARIABLE, str(tmp_path / "hits"))
    arm(monkeypatch, "a.point:fail:2")
    crashpoint("another.point")
    crashpoint("a.point")
    with pytest.raises(CrashpointError, match=r"a\.point"):
        crashpoint("a.point")
    crashpoint("a.point")
    assert (tmp_path / "hits").read_text() == "a.point\n"
    assert set(crashpoints.variables()) == {crashpoints.VARIABLE, crashpoints.HITS_VARIABLE}


@pytest.mark.parametrize(("action", "number"), [("enospc", errno.ENOSPC), ("eio", errno.EIO)])
def test_errors_of_a_disk(monkeypatch: pytest.MonkeyPatch, action: str, number: int) -> None:
    arm(monkeypatch, f"a.point:{action}")
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        crashpoint("a.point")
    assert caught.value.errno == number


def test_a_delay_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    arm(monkeypatch, "a.point:delay")
    crashpoint("a.point")
    assert waits == [crashpoints.DELAY_S]


def test_a_kill_is_the_default_and_the_environment_of_a_new_process_arms_it() -> None:
    code = "from trainshed.node.crashpoints import crashpoint; crashpoint('a.point'); print('alive')"
    env = os.environ | {crashpoints.VARIABLE: "a.point"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


def test_an_unknown_action_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="explode"):
        arm(monkeypatch, "a.point:explode")


@pytest.mark.parametrize("text", ["crashpoint(name)", "crashpoint('a')\ncrashpoint('a')", "crashpoint()"])
def test_a_name_is_plain_and_of_one_place(tmp_path: Path, text: str) -> None:
    (tmp_path / "module.py").write_text(text)
    with pytest.raises(ValueError, match=r"module\.py"):
        point_names(tmp_path)
