"""Jobs that take what they can get, beside a model that answers: how long its answers take, and how the jobs end."""

from __future__ import annotations

import http.client
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainshed.domain.jobs.states import TERMINAL_STATES
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads import hogs
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "beside-hogs"
#: Small enough that each hog reaches its own within seconds.
SETTINGS: Mapping[str, Any] = {
    "memory_limit_gb": 1.0,
    "process_limit": 512,
    "open_file_limit": 1024,
    "file_size_limit_gb": 0.3,
    "disk_limit_gb": 0.5,
    "log_limit_mb": 8,
}
#: What each hog is, its code, and a part of the error of its job.
HOGS: Mapping[str, tuple[str, str]] = {
    "memory hog": (hogs.MEMORY, "out of memory: "),
    "fork bomb": (hogs.FORK_BOMB, "too many processes: "),
    "descriptor hog": (hogs.DESCRIPTORS, "too many open files: "),
    "one large file": (hogs.DISK, "file too large: the limit is 300 MB"),
    "many files": (hogs.MANY_FILES, "too much on the disk: "),
    "log flood": (hogs.LOG, "the flood is over"),
}
_PERIOD_S = 0.01  #: between two requests
_REQUESTS = 300  #: of a window, at least
_LOOK_INTERVAL_S = 0.25  #: each look is a request to the same server
_JOBS = 2  #: hogs of a window, at least, one after the other


@dataclass
class AnswerTimes:
    """Seconds that answers took, without hogs and beside them."""

    quiet: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    jobs: int = 0

    @property
    def ratio(self) -> float:
        """Of the 99th percentiles."""
        return p99(self.beside) / p99(self.quiet)


def p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100, method="inclusive")[98]


class Neighbourhood:
    """A server with one model, and jobs of another project."""

    def __init__(self, server: RunningServer, scratch: Path) -> None:
        self._server = server
        self._jobs = Submitter(server, PROJECT, scratch / "hogs")
        deployer = Deployer(server, f"{PROJECT}-model", scratch / "model")
        deployer.deploy_routine("v1")
        self._path = f"{deployer.path}/versions/v1:predict"
        self._count = 0
        parts = urlsplit(server.url)
        self._connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        self._answers_until(lambda: True)  # the first ones warm it up

    def measure(self, hog: str, *, rounds: int) -> AnswerTimes:
        """Measure in turn without and beside this hog. Raises `AssertionError` if a job ends for another reason."""
        answers = AnswerTimes()
        for _ in range(rounds):
            answers.quiet += self._answers_until(lambda: True)
            row = _Row(self, hog)
            answers.beside += self._answers_until(row.is_done)
            answers.jobs += row.ended
        return answers

    def submit(self, hog: str) -> str:
        self._count += 1
        name = f"hog_{self._count}"
        self._jobs.submit(name, HOGS[hog][0])
        return name

    def reason(self, job: str) -> str | None:
        """Why a job failed. None while it has not ended."""
        body = self._jobs.get(job)
        if body["state"] not in TERMINAL_STATES:
            return None
        assert body["state"] == "FAILED", body
        return str(body["errorMessage"])

    def _answers_until(self, is_done: Callable[[], bool]) -> list[float]:
        body = json.dumps({"instances": [1]})
        headers = {"Authorization": f"Bearer {self._server.token}", "Content-Type": "application/json"}
        found: list[float] = []
        due = time.perf_counter()
        while len(found) < _REQUESTS or not is_done():
            due = max(due + _PERIOD_S, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))
            began = time.perf_counter()
            self._connection.request("POST", self._path, body, headers)
            response = self._connection.getresponse()
            answer = json.load(response)
            found.append(time.perf_counter() - began)
            assert (response.status, answer) == (200, {"predictions": [1]})
        return found


class _Row:
    """Hogs of one kind, one after the other."""

    def __init__(self, neighbourhood: Neighbourhood, hog: str) -> None:
        self._neighbourhood = neighbourhood
        self._hog = hog
        self._job = neighbourhood.submit(hog)
        self._looked = time.monotonic()
        self.ended = 0

    def is_done(self) -> bool:
        """Look at the job that runs, and start the next one when it has ended."""
        if time.monotonic() - self._looked < _LOOK_INTERVAL_S:
            return False
        self._looked = time.monotonic()
        reason = self._neighbourhood.reason(self._job)
        if reason is None:
            return False
        assert HOGS[self._hog][1] in reason, reason
        self.ended += 1
        if self.ended < _JOBS:
            self._job = self._neighbourhood.submit(self._hog)
        return self.ended >= _JOBS
