"""The search process, seen from the server: started at the first request, ended with the server or when it is idle.

It runs no user code and starts no process, so it needs no reaper: it ends when its stdin does, also if the server is
killed. The server itself never imports NumPy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from trainshed.domain.tuning.documents import read_result
from trainshed.domain.tuning.search import Algorithm, SearchRequest, SearchResult
from trainshed.domain.tuning.simple_search import simple_search
from trainshed.errors import EngineUnavailableError
from trainshed.node.process.environment import inherited_environment

LOG = logging.getLogger("trainshed.engines.local.search_process")

COMMAND = (sys.executable, "-m", "trainshed.search")
RESPONSE_TIMEOUT_S = 20.0  #: then the process is killed and low-discrepancy points are returned
IDLE_TIMEOUT_S = 600.0  #: then the process is ended, which frees its memory
_END_TIMEOUT_S = 2.0
_CHUNK_BYTES = 1 << 16
_MAX_ATTEMPTS = 5  #: with a new process each: what kills them may kill more than one
#: one thread: the machine is for trainers, and a result does not depend on the number of cores
_VARIABLES = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class SearchProcess:
    """Finds the next points of searches. Implements `Suggester`. Thread-safe: requests wait for each other."""

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        *,
        timeout_s: float = RESPONSE_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._idle: threading.Timer | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The pid of the process. Returns None if there is none."""
        process = self._process
        return None if process is None else process.pid

    def suggest(self, request: SearchRequest) -> SearchResult:
        """Return the next points. Blocks for `timeout_s` at most, and for the requests before this one.

        Never fails: returns the next low-discrepancy points if the process ends or is slow.
        """
        if request.algorithm is not Algorithm.BAYESIAN:
            return simple_search(request)
        line = orjson.dumps(request) + b"\n"
        try:
            with self._lock:
                return read_result(self._ask(line))
        except (EngineUnavailableError, OSError) as exc:
            LOG.warning("search.failed seed=%s number=%d reason=%s", request.seed, request.number, exc)
            return simple_search(request)

    def close(self) -> None:
        """End the process. From now on no other one is started."""
        with self._lock:
            self._closed = True
            self._end()

    def _ask(self, line: bytes) -> Mapping[str, Any]:
        """Return the response. A process that ends is replaced, in the time that there is and a few times at most."""
        deadline_s = time.monotonic() + self._timeout_s
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            process = self._running()
            try:
                response = _exchange(process, line, deadline_s)
                break
            except (EngineUnavailableError, OSError):
                self._end()
                if attempt == _MAX_ATTEMPTS or time.monotonic() >= deadline_s:
                    raise
        self._end_when_idle()
        if "error" in response:
            raise EngineUnavailableError(str(response["error"]))
        return response

    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise EngineUnavailableError("The server is being stopped.")
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env={**inherited_environment(), **_VARIABLES},
            )
            LOG.info("search.started pid=%d", self._process.pid)
        return self._process

    def _end_when_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = threading.Timer(self._idle_timeout_s, self._end_if_idle, [time.monotonic()])
        self._idle.daemon = True
        self._idle.start()

    def _end_if_idle(self, since_s: float) -> None:
        with self._lock:
            if self._idle is not None and self._idle.args == [since_s]:  # no request came since
                self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if process is None:
            return
        process.kill()  # it has nothing to save
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        process.wait(_END_TIMEOUT_S)


def _exchange(process: subprocess.Popen[bytes], line: bytes, deadline_s: float) -> Mapping[str, Any]:
    """Send a line and return the response. Raises `EngineUnavailableError` if there is none in time."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    process.stdin.flush()
    received, output = b"", process.stdout.fileno()
    while not received.endswith(b"\n"):
        ready, _, _ = select.select([output], [], [], max(0.0, deadline_s - time.monotonic()))
        if not ready:
            raise EngineUnavailableError("The search process did not respond in time.")
        chunk = os.read(output, _CHUNK_BYTES)
        if not chunk:
            raise EngineUnavailableError("The search process has ended.")
        received += chunk
    response: dict[str, Any] = orjson.loads(received)
    return response
