"""Clients that do the same at the same moment."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.submitter import Submitter

CLIENTS = 100
PROJECT = "races"


def at_once(call: Callable[[], tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Call from all clients at the same moment. Returns the answers."""
    barrier = threading.Barrier(CLIENTS)

    def wait_and_call(_: int) -> tuple[int, Any]:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(CLIENTS) as threads:
        return list(threads.map(wait_and_call, range(CLIENTS)))


@pytest.mark.fault("F11")
def test_one_of_a_hundred_creates_of_one_name_succeeds(server: RunningServer, tmp_path: Path) -> None:
    jobs = Submitter(server, PROJECT, tmp_path)
    jobs.submit("first", "print('ran')")
    assert jobs.wait("first")["state"] == "SUCCEEDED"
    training = jobs.get("first")["trainingInput"]
    creates: dict[str, dict[str, Any]] = {
        f"/v1/projects/{PROJECT}/jobs": {"jobId": "again", "trainingInput": training},
        f"/v1/projects/{PROJECT}/models": {"name": "m"},
        f"/storage/v1/b?project={PROJECT}": {"name": "races-second-bucket"},
    }
    caller = Caller(server.url)
    for path, body in creates.items():
        answers = at_once(lambda: caller("POST", path, token=server.token, body=body))  # noqa: B023 - called at once
        assert Counter(status for status, _ in answers) == {200: 1, 409: CLIENTS - 1}, path
        assert {answer["error"]["status"] for status, answer in answers if status == 409} == {"ALREADY_EXISTS"}
    assert jobs.wait("again")["state"] == "SUCCEEDED"
    assert jobs.lines("again").count("ran") == 1
