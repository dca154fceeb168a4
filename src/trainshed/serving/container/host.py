"""The host process of a version that is a container: starts the container and forwards requests to it."""

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

_REMOVE_TIMEOUT_S = 20.0
MAX_CONCURRENT_REQUESTS = 32  #: in-flight requests to a container
_FORWARDED = (
    FrameKind.PREDICT,
    FrameKind.RAW,
    FrameKind.TF_SERVING,
    FrameKind.MLFLOW,
)  #: kinds whose bodies go to the container unchanged
_NO_INFER = (
    "This version is a custom container, which gets no requests of the Open Inference Protocol. Send predict, or "
    "rawPredict with what the container understands."
)
_NO_EXPLANATIONS = (
    "This version is a custom container, and those have no explanations. Let the container answer them with its "
    "predictions."
)


def run_host(path: Path) -> int:
    """Like `process.run_host`, for a container. The container ends with this process, however this process ends."""
    output = redirect_stdout()
    share_arenas()
    exit_with_server()
    started_s = time.monotonic()
    container: HostContainer | None = None
    try:
        spec, container_spec = _read(path)
        stop = StopSignal()
        container = HostContainer(container_spec)
        container.await_health(stop)
    except ServingError as exc:
        traceback.print_exc()
        announce(output, {"event": "failed", "message": str(exc)})
        if container is not None:
            container.end()
        return 1
    endpoint = ContainerEndpoint(
        port=container_spec.port, path=container_spec.predict, timeout_s=container_spec.timeout_s
    )
    host = ContainerHost(endpoint, queue_limit=spec.queue_limit, body_limit=spec.body_limit)
    if not stop.received():
        listener = listen(spec)
        container.watch(lambda: host.busy)
        announce(output, _ready(container_spec, time.monotonic() - started_s))
        host.serve(listener, stop)
    container.end()
    return 0


def _read(path: Path) -> tuple[ServingSpec, HostContainerSpec]:
    try:
        spec = ServingSpec.read(path)
        return spec, HostContainerSpec.from_json(spec.container)
    except (OSError, ValueError, TypeError) as exc:
        raise LoaderError(f"The host can't read its spec: {exc}") from exc


def _ready(container_spec: HostContainerSpec, load_s: float) -> dict[str, object]:
    return {
        "event": "ready",
        "loader": "container",
        "detail": f"the container {container_spec.image}"[:200],
        "batching": False,
        "invariance": {
            "difference": None,
            "rows": 0,
            "message": "Requests are not batched: the container gets each as it came.",
        },
        "precision": None,
        "sample": None,
        "signatures": {},
        "load_s": round(load_s, 3),
    }


def remove_container(path: str) -> None:
    """Remove the container of a host that has exited, in whatever way. Errors are logged; the server retries."""
    try:
        _, container_spec = _read(Path(path))
        subprocess.run(
            container_spec.end, stdin=subprocess.DEVNULL, capture_output=True, timeout=_REMOVE_TIMEOUT_S, check=False
        )
    except (ServingError, OSError, subprocess.TimeoutExpired) as exc:
        sys.stderr.write(f"{exc}\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEndpoint:
    """Where requests are forwarded to."""

    port: int  #: on loopback
    path: str
    timeout_s: float  #: for a response


@dataclass(eq=False, slots=True)
class _Request:
    connection: FrameConnection
    id: int
    raw: bool
    content_type: str
    body: bytes


class ContainerHost:
    """Forwards requests to a container, from a queue, with a pool of threads."""

    def __init__(
        self,
        endpoint: ContainerEndpoint,
        *,
        queue_limit: int,
        body_limit: int,
        max_concurrent: int = MAX_CONCURRENT_REQUESTS,
    ) -> None:
        self._endpoint = endpoint
        self._queue_limit = queue_limit
        self._stats = BatcherStats()
        self._queue: deque[_Request] = deque()
        self._in_flight: dict[_Request, float] = {}  #: start times by the monotonic clock
        self._condition = threading.Condition()
        self._closed = False
        self._memory_trimmer = MemoryTrimmer()
        self._listener = ConnectionListener(self._handle_frame, self._cancel, body_limit=body_limit)
        self._workers = [
            threading.Thread(target=self._forward_requests, name="forward", daemon=True) for _ in range(max_concurrent)
        ]

    def serve(self, listener: socket.socket, stop: StopSignal) -> None:
        """Accept connections until a stop signal arrives.

        Then stop reading, answer all received requests, and return.
        """
        for worker in self._workers:
            worker.start()
        self._listener.serve(listener, stop)
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        for worker in self._workers:
            worker.join()

    @property
    def busy(self) -> bool:
        """Whether the container has in-flight requests."""
        return bool(self._in_flight)

    def stats(self) -> dict[str, Any]:
        with self._condition:
            oldest_s = min(self._in_flight.values(), default=None)
            running_s = time.monotonic() - oldest_s if oldest_s is not None else 0.0
            return {"waiting": len(self._queue), "runningSeconds": running_s, **self._stats.as_json()}

    def _handle_frame(self, connection: FrameConnection, request_id: int, kind: int, body: bytes) -> None:
        self._memory_trimmer.add(len(body))
        if kind == FrameKind.CANCEL:
            self._cancel(connection, request_id)
        elif kind == FrameKind.STATS:
            connection.send([(request_id, (200, orjson.dumps(self.stats())))])
        elif refusal := self._enqueue(connection, request_id, kind, body):
            connection.send([(request_id, refusal)])

    def _enqueue(self, connection: FrameConnection, request_id: int, kind: int, body: bytes) -> Answer | None:
        """Enqueue a request. Returns an error response if it is rejected."""
        if kind == FrameKind.EXPLAIN:
            return error_answer(InvalidInputsError(_NO_EXPLANATIONS))
        if kind == FrameKind.INFER:
            return error_answer(InvalidInputsError(_NO_INFER))
        if kind not in _FORWARDED:
            return error_answer(InvalidInputsError(f"There are no requests of kind {kind} to a container."))
        content_type = JSON
        if kind == FrameKind.RAW:
            try:
                content_type, body = unpack_raw(body)
            except BadFrameError as exc:
                return error_answer(InvalidInputsError(str(exc)))
        with self._condition:
            if len(self._queue) >= self._queue_limit:
                self._stats.refused += 1
                return QUEUE_FULL
            self._queue.append(_Request(connection, request_id, kind == FrameKind.RAW, content_type, body))
            self._condition.notify()
        return None

    def _cancel(self, connection: FrameConnection, request_id: int | None = None) -> None:
        """Cancel one or all requests of a connection, unless they are in flight."""
        with self._condition:
            remaining = [r for r in self._queue if r.connection is not connection or request_id not in (None, r.id)]
            self._stats.cancelled += len(self._queue) - len(remaining)
            self._queue = deque(remaining)

    def _forward_requests(self) -> None:
        """Forward requests one by one until the host stops."""
        upstream = Upstream(self._endpoint.port, timeout_s=self._endpoint.timeout_s)
        while (request := self._next()) is not None:
            answer = self._forward(upstream, request)
            with self._condition:
                del self._in_flight[request]
                self._stats.requests += 1
                self._stats.instances += 1
                self._stats.batches += 1
                self._stats.failed += answer[0] != 200
                idle = not self._in_flight and not self._queue
            request.connection.send([(request.id, answer)])
            if idle:
                self._memory_trimmer.idle()
        upstream.close()

    def _next(self) -> _Request | None:
        with self._condition:
            while not self._queue:
                if self._closed:
                    return None
                self._condition.wait()
            request = self._queue.popleft()
            self._in_flight[request] = time.monotonic()
            return request

    def _forward(self, upstream: Upstream, request: _Request) -> Answer:
        try:
            response = upstream.post(self._endpoint.path, request.body, request.content_type)
        except TimeoutError:
            return 504, error_body(504, f"The container did not answer within {self._endpoint.timeout_s:g} s.")
        except UPSTREAM_ERRORS as exc:  # most likely it has exited, and a new one will follow
            return 503, error_body(503, f"The container did not answer: {exc or type(exc).__name__}")
        except Exception as exc:  # noqa: BLE001 - one request must not kill the thread that others wait for
            return error_answer(exc)
        return as_answer(response, raw=request.raw)
