"""Requests for predictions of a model, one after the other on each of some connections, and what came back."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from trainshed.testing.eventually import eventually
from trainshed.testing.workloads.deployer import Deployer

_REQUEST = b'{"instances": [1]}'
_WAIT_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class PredictionSeen:
    """One response, with the times of its request by the monotonic clock."""

    began_s: float
    ended_s: float
    status: int  #: 0 if the connection was lost
    text: str  #: the prediction, or the error


class PredictionLoad:
    """Clients of a model's default version. `seen` has every response; read it when the load has ended."""

    def __init__(self, deployer: Deployer, *, threads: int) -> None:
        self.seen: list[PredictionSeen] = []
        self.threads = threads
        self._deployer = deployer
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]

    @contextmanager
    def going(self) -> Iterator[PredictionLoad]:
        """Send requests while the block runs."""
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            for thread in self._threads:
                thread.join()

    def _run(self) -> None:
        server = self._deployer.server
        path, headers = f"{self._deployer.path}:predict", {"authorization": f"Bearer {server.token}"}
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
        while not self._ended.is_set():
            began_s = time.monotonic()
            try:
                connection.request("POST", path, _REQUEST, headers)
                response = connection.getresponse()
                status, body = response.status, response.read()
            except (OSError, http.client.HTTPException) as exc:
                status, body = 0, repr(exc).encode()
                connection.close()
            text = str(json.loads(body)["predictions"][0]) if status == 200 else body.decode()
            self.seen.append(PredictionSeen(began_s, time.monotonic(), status, text))
        connection.close()

    @property
    def counts(self) -> Counter[tuple[int, str]]:
        """The number of responses by status and text."""
        return Counter((each.status, each.text) for each in list(self.seen))

    def wait_for_more(self, number: int = 0) -> None:
        """Wait for so many more responses. Without a number: for two of each client."""
        wanted = len(self.seen) + (number or 2 * self.threads)
        eventually(
            lambda: len(self.seen),
            lambda count: count >= wanted,
            within_s=_WAIT_TIMEOUT_S,
            describe=lambda: self.counts,
        )
