"""The search process: a suggestion comes whether it runs, is killed, hangs or is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from trainshed.domain.tuning.search import Algorithm, MeasuredPoint, SearchRequest
from trainshed.domain.tuning.simple_search import simple_search
from trainshed.domain.tuning.space import ParameterKind, ParameterSpec, Space
from trainshed.engines.local.search_process import COMMAND, SearchProcess
from trainshed.testing.eventually import eventually

SPACE = Space(
    parameters=(
        ParameterSpec(name="x", kind=ParameterKind.DOUBLE, minimum=0.0, maximum=1.0),
        ParameterSpec(name="n", kind=ParameterKind.INTEGER, minimum=1, maximum=9),
    )
)
OBSERVATIONS = tuple(
    MeasuredPoint(point={"x": number / 8, "n": 1 + number}, values=(-((number - 5.0) ** 2),)) for number in range(8)
)
REQUEST = SearchRequest(space=SPACE, observations=OBSERVATIONS, count=2, seed="s", number=9)


@pytest.fixture
def searcher() -> Iterator[SearchProcess]:
    process = SearchProcess(timeout_s=120)
    yield process
    process.close()


def test_a_killed_process_is_replaced(searcher: SearchProcess) -> None:
    assert searcher.pid is None  # started at the first request alone
    first = searcher.suggest(REQUEST)
    assert first != simple_search(REQUEST) and len(first.points) == 2
    assert searcher.pid is not None
    os.kill(searcher.pid, signal.SIGKILL)
    assert searcher.suggest(REQUEST) == first  # of another process, and the same
    pid = searcher.pid
    searcher.close()
    assert not psutil.pid_exists(pid)
    assert searcher.suggest(REQUEST) == simple_search(REQUEST)


def test_processes_that_are_killed_while_they_search_are_replaced(searcher: SearchProcess, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    code = f"""
import os, signal, sys
with open({str(starts)!r}, "a+") as file:
    file.write("started\\n")
    file.seek(0)
    if len(file.readlines()) < 4:
        os.kill(os.getpid(), signal.SIGKILL)
os.execv(sys.executable, {[sys.executable, *COMMAND[1:]]!r})
"""
    killed = SearchProcess((sys.executable, "-c", code), timeout_s=120)
    try:
        assert killed.suggest(REQUEST) == searcher.suggest(REQUEST)
        assert starts.read_text().count("started") == 4
    finally:
        killed.close()


def test_searches_without_a_model_need_no_process(searcher: SearchProcess) -> None:
    request = SearchRequest(space=SPACE, algorithm=Algorithm.RANDOM, seed="s", number=1)
    assert searcher.suggest(request) == simple_search(request)
    assert searcher.pid is None


@pytest.mark.parametrize(
    ("code", "timeout_s"),
    [("import time; time.sleep(600)", 0.2), ("raise SystemExit(3)", 60), ('print(\'{"error": "odd"}\')', 60)],
    ids=["hangs", "ends", "fails"],
)
def test_a_suggestion_never_fails(code: str, timeout_s: float) -> None:
    searcher = SearchProcess((sys.executable, "-c", code), timeout_s=timeout_s)
    try:
        assert searcher.suggest(REQUEST) == simple_search(REQUEST)
    finally:
        searcher.close()


def test_an_idle_process_is_ended() -> None:
    searcher = SearchProcess(
        (sys.executable, "-c", 'input(); print(\'{"points": [], "exhausted": true}\'); input()'), idle_timeout_s=0.1
    )
    try:
        assert searcher.suggest(REQUEST).exhausted
        eventually(lambda: searcher.pid is None)
    finally:
        searcher.close()


def test_the_process_ends_with_its_server() -> None:
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.communicate()  # closes its stdin, as the kernel does when the server is killed
    assert process.returncode == 0
