"""Trials of a hyperparameter study are jobs of their own: each is counted once, and never too many run at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.cache import link_runtimes
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "trials"
SLOTS = 3

#: Arguments: a file of stamps, and the number of the trial. Every tenth trial dies.
TRIAL = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
number = int(sys.argv[2])
os.write(fd, b"[%d, 1, %r]\\n" % (number, time.monotonic()))
time.sleep(0.02)
os.write(fd, b"[%d, -1, %r]\\n" % (number, time.monotonic()))
if number % 10 == 3:
    raise SystemExit(7)
print("loss", 1 / (number + 1))
"""


@pytest.fixture
def small_server(tmp_path: Path) -> Iterator[RunningServer]:
    running = RunningServer(link_runtimes(tmp_path / "home"), {"slots": SLOTS}).start()
    yield running
    running.kill()
    running.end_jobs()


def run_trials(server: RunningServer, scratch: Path, count: int) -> None:
    jobs = Submitter(server, PROJECT, scratch)
    stamps = scratch / "stamps"
    first = jobs.submit("trial_0", TRIAL, args=[str(stamps), "0"])["trainingInput"]
    for number in range(1, count):
        body = {"jobId": f"trial_{number}", "trainingInput": {**first, "args": [str(stamps), str(number)]}}
        server.call("POST", f"/v1/projects/{PROJECT}/jobs", body)
    states = eventually(
        lambda: all_states(server),
        lambda states: len(states) == count and set(states.values()) <= {"SUCCEEDED", "FAILED"},
        within_s=600,
    )
    died = {f"trial_{number}" for number in range(count) if number % 10 == 3}
    assert {name for name, state in states.items() if state == "FAILED"} == died
    lines = sorted((json.loads(line) for line in stamps.read_text().splitlines()), key=lambda line: line[2])
    assert sorted(number for number, step, _ in lines if step == 1) == list(range(count)), "each trial ran once"
    running = most = 0
    for _, step, _ in lines:
        running += step
        most = max(most, running)
    assert most <= SLOTS


def all_states(server: RunningServer) -> dict[str, str]:
    """The state of each trial, by its name, from all pages of the list. None may be there twice."""
    found: list[tuple[str, str]] = []
    token = ""
    while True:
        page = server.call("GET", f"/v1/projects/{PROJECT}/jobs?pageSize=20&pageToken={token}")
        found += [(job["jobId"], job["state"]) for job in page.get("jobs", ())]
        token = page.get("nextPageToken", "")
        if not token:
            assert len(dict(found)) == len(found)
            return dict(found)


@pytest.mark.fault("F39")
def test_every_trial_is_counted_once_and_never_too_many_run(small_server: RunningServer, tmp_path: Path) -> None:
    run_trials(small_server, tmp_path, 8)


@pytest.mark.soak  # eight trials are in every run
@pytest.mark.fault("F39")
def test_a_hundred_trials_of_which_ten_die(small_server: RunningServer, tmp_path: Path) -> None:
    run_trials(small_server, tmp_path, 100)
