"""The process of a host whose version is a container: it starts that below itself and passes requests on to it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ..codec.json_documents import error_body
from ..codec.responses import QUEUE_FULL, Answer, error_answer
from ..errors import InvalidInputsError, LoaderError, ServingError
from ..frames import BadFrameError, FrameKind, unpack_raw
from ..host.batcher import BatcherStats
from ..host.lifecycle import StopSignal, announce, exit_with_server, listen, redirect_stdout
from ..host.listener import ConnectionListener, FrameConnection
from ..memory import MemoryTrimmer, share_arenas
from ..spec import ServingSpec
from .container import HostContainer, HostContainerSpec
from .upstream import JSON, UPSTREAM_ERRORS, Upstream, as_answer

_CLEAR_S = 20.0
AT_ONCE = 32  #: requests that a container is asked before it has answered
_NO_EXPLANATIONS = (
    "This version is a custom container, and those have no explanations. Let the container answer them with its "
    "predictions."
)


def run_host(path: Path) -> int:
    """As `process.run_host`, for a container. It ends with this process, however that ends."""
    output = redirect_stdout()
    share_arenas()
    exit_with_server()
    began = time.monotonic()
    container: HostContainer | None = None
    try:
        spec, order = _read(path)
        ending = StopSignal()
        container = HostContainer(order)
        container.await_health(ending)
    except ServingError as exc:
        traceback.print_exc()
        announce(output, {"event": "failed", "message": str(exc)})
        if container is not None:
            container.end()
        return 1
    way = ContainerEndpoint(port=order.port, path=order.predict, timeout_s=order.timeout_s)
    host = ContainerHost(way, queue_limit=spec.queue_limit, body_limit=spec.body_limit)
    if not ending.received():
        listener = listen(spec)
        container.watch(lambda: host.busy)
        announce(output, _ready(order, time.monotonic() - began))
        host.serve(listener, ending)
    container.end()
    return 0


def _read(path: Path) -> tuple[ServingSpec, HostContainerSpec]:
    try:
        spec = ServingSpec.read(path)
        return spec, HostContainerSpec.from_json(spec.container)
    except (OSError, ValueError, TypeError) as exc:
        raise LoaderError(f"The host can't read what it was told: {exc}") from exc


def _ready(order: HostContainerSpec, load_s: float) -> dict[str, object]:
    return {
        "event": "ready",
        "loader": "container",
        "detail": f"the container {order.image}"[:200],
        "batching": False,
        "sample": None,
        "signatures": {},
        "load_s": round(load_s, 3),
    }


def remove_container(path: str) -> None:
    """End and remove what is left of the container of a host that has ended, however it did. What can't be is left to
    the server."""
    try:
        _, order = _read(Path(path))
        subprocess.run(order.end, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CLEAR_S, check=False)
    except (ServingError, OSError, subprocess.TimeoutExpired) as exc:
        sys.stderr.write(f"{exc}\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEndpoint:
    """Where requests go."""

    port: int  #: of loopback
    path: str
    timeout_s: float  #: that an answer may take


@dataclass(eq=False, slots=True)
class _Request:
    connection: FrameConnection
    id: int
    raw: bool
    content_type: str
    body: bytes


class ContainerHost:
    """Those who ask a container, and who passes their requests on."""

    def __init__(self, way: ContainerEndpoint, *, queue_limit: int, body_limit: int, at_once: int = AT_ONCE) -> None:
        self._way = way
        self._queue_limit = queue_limit
        self._counts = BatcherStats()
        self._waiting: deque[_Request] = deque()
        self._running: dict[_Request, float] = {}  #: since when, by the monotonic clock
        self._changed = threading.Condition()
        self._closed = False
        self._trimming = MemoryTrimmer()
        self._reception = ConnectionListener(self._take, self._forget, body_limit=body_limit)
        self._workers = [threading.Thread(target=self._work, name="pass", daemon=True) for _ in range(at_once)]

    def serve(self, listener: socket.socket, ending: StopSignal) -> None:
        """Take connections until the end comes; then read no more, answer what was read, and return."""
        for worker in self._workers:
            worker.start()
        self._reception.serve(listener, ending)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()

    @property
    def busy(self) -> bool:
        """Whether the container has something to do."""
        return bool(self._running)

    def stats(self) -> dict[str, Any]:
        with self._changed:
            since = min(self._running.values(), default=None)
            running_s = time.monotonic() - since if since is not None else 0.0
            return {"waiting": len(self._waiting), "running_s": running_s, **self._counts.as_json()}

    def _take(self, connection: FrameConnection, request_id: int, kind: int, body: bytes) -> None:
        self._trimming.add(len(body))
        if kind == FrameKind.CANCEL:
            self._forget(connection, request_id)
        elif kind == FrameKind.STATS:
            connection.send([(request_id, (200, orjson.dumps(self.stats())))])
        elif refusal := self._offer(connection, request_id, kind, body):
            connection.send([(request_id, refusal)])

    def _offer(self, connection: FrameConnection, request_id: int, kind: int, body: bytes) -> Answer | None:
        """Let a request wait for its turn, or say why it does not."""
        if kind == FrameKind.EXPLAIN:
            return error_answer(InvalidInputsError(_NO_EXPLANATIONS))
        if kind not in (FrameKind.PREDICT, FrameKind.RAW):
            return error_answer(InvalidInputsError(f"There are no requests of kind {kind} to a container."))
        content_type = JSON
        if kind == FrameKind.RAW:
            try:
                content_type, body = unpack_raw(body)
            except BadFrameError as exc:
                return error_answer(InvalidInputsError(str(exc)))
        with self._changed:
            if len(self._waiting) >= self._queue_limit:
                self._counts.refused += 1
                return QUEUE_FULL
            self._waiting.append(_Request(connection, request_id, kind == FrameKind.RAW, content_type, body))
            self._changed.notify()
        return None

    def _forget(self, connection: FrameConnection, request_id: int | None = None) -> None:
        """Forget a request, or all requests, of a connection, unless they have begun."""
        with self._changed:
            kept = [r for r in self._waiting if r.connection is not connection or request_id not in (None, r.id)]
            self._counts.cancelled += len(self._waiting) - len(kept)
            self._waiting = deque(kept)

    def _work(self) -> None:
        """Pass requests on, one after the other, until the end."""
        upstream = Upstream(self._way.port, timeout_s=self._way.timeout_s)
        while (request := self._next()) is not None:
            answer = self._answer(upstream, request)
            with self._changed:
                del self._running[request]
                self._counts.requests += 1
                self._counts.instances += 1
                self._counts.batches += 1
                self._counts.failed += answer[0] != 200
                idle = not self._running and not self._waiting
            request.connection.send([(request.id, answer)])
            if idle:
                self._trimming.idle()
        upstream.close()

    def _next(self) -> _Request | None:
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            request = self._waiting.popleft()
            self._running[request] = time.monotonic()
            return request

    def _answer(self, upstream: Upstream, request: _Request) -> Answer:
        try:
            reply = upstream.post(self._way.path, request.body, request.content_type)
        except TimeoutError:
            return 504, error_body(504, f"The container did not answer within {self._way.timeout_s:g} s.")
        except UPSTREAM_ERRORS as exc:  # most likely it has ended, and there will be a new one
            return 503, error_body(503, f"The container did not answer: {exc or type(exc).__name__}")
        except Exception as exc:  # noqa: BLE001 - one request must not end the thread that others wait for
            return error_answer(exc)
        return as_answer(reply, raw=request.raw)
