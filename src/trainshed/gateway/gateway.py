"""The prediction gateway: picks a version and a host for each request, and bounds the wait for the response."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from asyncio import Future
from collections.abc import Callable, Collection
from time import monotonic, sleep  # uvloop's clock has a resolution of milliseconds
from typing import Protocol

from trainshed.domain.models.hosting import ServingState
from trainshed.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    NotFoundError,
    ResourceExhaustedError,
    TrainshedError,
    UnavailableError,
)
from trainshed.gateway.connection_pool import HostConnectionPool, sharing_processes
from trainshed.gateway.host_connection import Answer, Body, FutureSink, HostConnection, HostLostError, ResponseSink
from trainshed.gateway.metrics import VersionMetrics
from trainshed.gateway.open_metrics import Histogram
from trainshed.gateway.protocols.wire_forms import LOGGED_PROTOCOLS
from trainshed.gateway.request_log import LoggedExchange, RequestLog
from trainshed.gateway.routes import ControlPlane, ModelRoute, PredictTarget, RequestLogTarget, Routes, VersionRoute
from trainshed.gateway.shadow import ShadowTraffic
from trainshed.serving.frames import FrameKind, pack_raw, unpack_infer, unpack_raw

__all__ = [
    "Answer",
    "FrameKind",
    "InFlightRequest",
    "PredictionGateway",
    "RequestClient",
    "pack_raw",
    "unpack_infer",
    "unpack_raw",
]  # what callers of the gateway handle

LOG = logging.getLogger("trainshed.predict")

MAX_HELD_REQUESTS = 256  #: requests that may wait for versions to activate
LAG_EDGES_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  #: of the histogram of the event loop's lag
SWEEP_INTERVAL_S = 0.25  #: between two checks for expired requests
UNHEALTHY_RETRY_AFTER_S = 30  #: the Retry-After of responses for an unhealthy version
MAX_HOST_LOSSES = 2  #: hosts that one request may lose; a request that kills hosts must not reach them all
_DRAIN_POLL_INTERVAL_S = 0.01  #: between two checks whether hosts have in-flight requests


class RequestClient(Protocol):
    """The client connection of a request. When it is lost it sets `gone`, and sets the result of `waiter` to None."""

    waiter: Future[Answer | None] | None

    @property
    def gone(self) -> bool: ...


class OtherGateways(Protocol):
    """Other processes that send requests to the same hosts. Thread-safe."""

    def in_flight(self, keys: Collection[str]) -> int:
        """Return the number of their in-flight requests to these hosts. Blocks until all have said theirs."""


class InFlightRequest:
    """A request that was sent to a host. Counts and logs its response and passes it to its sink."""

    __slots__ = (
        "_abandoned",
        "_asker",
        "_began",
        "_body",
        "_connection",
        "_losses",
        "_number",
        "_predictions",
        "_repeats",
        "_route",
        "_target",
    )

    def __init__(self, gateway: PredictionGateway, target: PredictTarget, body: Body, sink: ResponseSink) -> None:
        self._predictions = gateway
        self._target = target
        self._body = body
        self._asker = sink
        self._losses = 0
        self._abandoned = False

    def send(self, route: VersionRoute, connection: HostConnection, *, began: float) -> None:
        """Send the request to this host. Raises `ResourceExhaustedError` if the host has too many in flight."""
        self._route = route
        self._connection = connection
        self._began = began
        try:
            self._number = connection.send(self._target.kind, self._body, self, began=began)
        except ResourceExhaustedError:
            self._predictions.count(route, began, ResourceExhaustedError.__name__, ok=False)
            raise
        self._repeats = route.retries_elsewhere
        if route.log is None and route.shadow is None and not route.retries_elsewhere:
            self._body = ()  # frees memory: a body may be large, and nothing needs it again

    def abandon(self) -> None:
        """Cancel the request because its client is gone. Does nothing if the response has arrived."""
        self._abandoned = True
        self._connection.cancel(self._number)

    def answered(self, status: int, body: bytes) -> None:
        seconds = self._predictions.count(self._route, self._began, status, ok=status < 400)
        log = self._route.log
        if log is not None and status == 200 and (kind := self._target.kind) in LOGGED_PROTOCOLS:
            self._predictions.log(self._route, log, LoggedExchange(b"".join(self._body), body, seconds, kind))
        self._asker.answered(status, body)
        if self._route.shadow is not None and status == 200 and not self._target.version:
            self._predictions.shadows.mirror(self._route, self._target.kind, self._body, body)

    def failed(self, exc: TrainshedError) -> None:
        if isinstance(exc, HostLostError) and self._repeats and self._losses < MAX_HOST_LOSSES and not self._abandoned:
            self._losses += 1
            self._retry(exc)
        else:
            self._fail(exc)

    def _fail(self, exc: TrainshedError) -> None:
        self._predictions.count(self._route, self._began, type(exc).__name__, ok=False)
        self._asker.failed(exc)

    def _retry(self, exc: HostLostError) -> None:
        """Resend to another host of the version, if it has one. The model may process the request twice."""
        route = self._predictions.current(self._route)
        if route is None:
            self._fail(exc)
        elif (connection := self._predictions.connected(route)) is not None:
            self._resend(route, connection)
        else:
            self._predictions.resend_when_connected(self, route)

    def _resend(self, route: VersionRoute, connection: HostConnection) -> None:
        try:
            self.send(route, connection, began=self._began)
        except ResourceExhaustedError as exc:  # `send` has counted it
            self._asker.failed(exc)

    async def resend(self, route: VersionRoute, hosts: HostConnectionPool) -> None:
        """Resend the request when a host of the version is connected. Fails it if none can be reached."""
        try:
            await hosts.connect_any(route.hosts)
        except UnavailableError as exc:
            self._fail(exc)
            return
        if self._abandoned:
            return
        if (connection := hosts.least_loaded(route.hosts)) is None:
            self.failed(HostLostError())
        else:
            self._resend(route, connection)


class PredictionGateway:
    """Routes all requests to all hosts. Event loop only, except `replay` and the methods of `Traffic`."""

    def __init__(
        self,
        routes: Routes,
        logs: RequestLog,
        *,
        timeout_s: float,
        draw: Callable[[], float] = random.random,
        gateways: int = 1,
        mirrors: bool = True,
    ) -> None:
        """`draw` returns random numbers in [0, 1), for splits and for request-log sampling.

        With several `gateways`, their processes and the server share the limits of requests in flight,
        and only the server `mirrors` requests to shadows.
        """
        self.metrics = VersionMetrics()
        self.logs = logs
        self._routes = routes
        self._hosts = HostConnectionPool(timeout_s=timeout_s, processes=sharing_processes(gateways))
        self._timeout_s = timeout_s
        self._draw = draw
        self.shadows = ShadowTraffic(routes, self._hosts, draw, is_here=mirrors)
        self.loop_lag = Histogram(LAG_EDGES_S)  #: how late the sweep timer runs
        self.others: OtherGateways | None = None
        self._held_requests = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._control_plane: ControlPlane
        self._changed: Future[None]
        self._sweep_timer: asyncio.TimerHandle
        self._sweep_due_s = 0.0

    def begin(self, control_plane: ControlPlane) -> None:
        """Start serving on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._control_plane = self.shadows.control_plane = control_plane
        self._changed = self._loop.create_future()
        self._schedule_sweep(self._loop)
        self._routes.listen(self._on_routes_changed)
        self._sync_routes()
        self.logs.start()

    def close(self) -> None:
        """Stop serving. Call it after the last request. Blocks until the request log is written."""
        self._loop = None
        self._sweep_timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        self._hosts.close()
        self.shadows.close()
        self.logs.stop()

    def try_send(self, target: PredictTarget, body: Body, sink: ResponseSink) -> InFlightRequest | None:
        """Send a request immediately. Returns None if no host is connected: `send` may wait for one.

        Also returns None if another process has to send it, which mirrors it.
        """
        began = monotonic()
        route = self._find(target)
        connection = self._hosts.least_loaded(route.hosts) if route.state is ServingState.READY else None
        if connection is None or self.shadows.is_elsewhere(route, target):
            return None
        request = InFlightRequest(self, target, body, sink)
        request.send(route, connection, began=began)
        return request

    async def send(self, target: PredictTarget, body: bytes, client: RequestClient | None = None) -> Answer | None:
        """Send a request and return the host's response. Returns None if the client disconnects first.

        Raises `NotFoundError` or `FailedPreconditionError` if no version matches. Raises `UnavailableError` or
        `ResourceExhaustedError` if no host took the request or its host exited. Raises `DeadlineExceededError` if no
        response arrives in time.
        """
        began = monotonic()
        route, connection = await self._connected_route(target, began)
        if client is not None and client.gone:
            return None
        future: Future[Answer | None] = asyncio.get_running_loop().create_future()
        request = InFlightRequest(self, target, (body,), FutureSink(future))
        request.send(route, connection, began=began)
        if client is not None:
            client.waiter = future
        try:
            answer = await future
        except asyncio.CancelledError:
            request.abandon()
            raise
        finally:
            if client is not None:
                client.waiter = None
        if answer is None:
            request.abandon()
        return answer

    def current(self, route: VersionRoute) -> VersionRoute | None:
        """Return the current route of a version. Returns None if it is gone or not ready."""
        model = self._routes.models.get((route.project, route.model))
        current = model.versions.get(route.version) if model is not None else None
        return current if current is not None and current.state is ServingState.READY else None

    def connected(self, route: VersionRoute) -> HostConnection | None:
        return self._hosts.least_loaded(route.hosts)

    def resend_when_connected(self, request: InFlightRequest, route: VersionRoute) -> None:
        """Resend a request that lost its host, as soon as another host is connected."""
        task = asyncio.ensure_future(request.resend(route, self._hosts))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def replay(self, target: PredictTarget, body: bytes) -> tuple[int, bytes, float]:
        """Like `send`, for other threads, neither counted nor logged. Returns status, body and seconds."""
        if (loop := self._loop) is None:
            raise UnavailableError("The server is stopping.")
        return asyncio.run_coroutine_threadsafe(self._send_replay(target, body), loop).result(self._timeout_s + 5)

    async def _send_replay(self, target: PredictTarget, body: bytes) -> tuple[int, bytes, float]:
        began = monotonic()
        _, connection = await self._connected_route(target, began)
        future: Future[Answer | None] = asyncio.get_running_loop().create_future()
        connection.send(target.kind, (body,), FutureSink(future), began=began)
        try:
            answer = await future
        except DeadlineExceededError as exc:
            answer = 504, str(exc).encode()
        assert answer is not None  # no client can disconnect
        return *answer, monotonic() - began

    async def _connected_route(self, target: PredictTarget, began: float) -> tuple[VersionRoute, HostConnection]:
        """Wait for a ready version and a connection to it.

        Callers must use both before they await anything else: withdrawn routes get no more requests.
        """
        while True:
            route = self._find(target)
            connection = self._hosts.least_loaded(route.hosts) if route.state is ServingState.READY else None
            if connection is not None:
                return route, connection
            try:
                await self._wait_for_change(route, began)
            except TrainshedError as exc:
                self.count(route, began, type(exc).__name__, ok=False)
                raise

    def model(self, project: str, model: str) -> ModelRoute:
        """Return the route of a model. Raises `NotFoundError` if it has none."""
        route = self._routes.models.get((project, model))
        if route is None:
            raise NotFoundError(f"There is no model {model} in project {project}.")
        return route

    def version(self, project: str, model: str, version: str = "") -> VersionRoute:
        """Return the route of a version, without a name of the default one. Raises as `send` does if none matches."""
        found = self.model(project, model)
        route = found.versions.get(version or found.default)
        if route is None:
            raise _no_version_error(found, version)
        return route

    def _find(self, target: PredictTarget) -> VersionRoute:
        model = self.model(target.project, target.model)
        route = model.versions.get(target.version) if target.version else model.pick(self._draw())
        if route is None:
            raise _no_version_error(model, target.version)
        return route

    async def _wait_for_change(self, route: VersionRoute, began: float) -> None:
        """Wait until the routes or connections may have changed. Raises `UnavailableError` if waiting is pointless."""
        match route.state:
            case ServingState.READY if route.hosts:
                await self._hosts.connect_any(route.hosts)
            case ServingState.READY | ServingState.STARTING:
                raise UnavailableError(
                    route.reason or f"Version {route.version} of model {route.model} is not ready yet."
                )
            case ServingState.UNHEALTHY:
                reason = route.reason or "its processes keep failing."
                message = f"Version {route.version} of model {route.model} is unhealthy: {reason}"
                raise UnavailableError(message, retry_after_s=UNHEALTHY_RETRY_AFTER_S)
            case ServingState.SLEEPING | ServingState.WAKING:
                await self._hold(route, began)

    async def _hold(self, route: VersionRoute, began: float) -> None:
        """Activate the version and wait until the routes change."""
        if self._held_requests >= MAX_HELD_REQUESTS:
            raise ResourceExhaustedError(
                f"Version {route.version} of model {route.model} is waking up, and many wait for it already."
            )
        self._control_plane.activate(route.project, route.model, route.version)
        self._held_requests += 1
        try:
            async with asyncio.timeout(max(0.0, began + self._timeout_s - monotonic())):
                await asyncio.shield(self._changed)
        except TimeoutError:
            message = f"Version {route.version} of model {route.model} did not wake up in {self._timeout_s:g} seconds."
            raise UnavailableError(message) from None
        finally:
            self._held_requests -= 1

    def count(self, route: VersionRoute, began: float, outcome: object, *, ok: bool) -> float:
        """Record the outcome of a request in the metrics. Returns the seconds that it took."""
        seconds = monotonic() - began
        self.metrics.of((route.project, route.model, route.version)).add(seconds, ok=ok)
        if route.access_log:
            LOG.info("predict version=%s outcome=%s ms=%.1f", route.name, outcome, seconds * 1000)
        return seconds

    def log(self, route: VersionRoute, log: RequestLogTarget, exchange: LoggedExchange) -> None:
        """Add a request to the request log, with the probability `log.share`."""
        if self._draw() < log.share:
            self.logs.add(route, log, exchange)

    def drained(self, keys: Collection[str], *, timeout_s: float) -> bool:
        """See `Traffic`. Returns True immediately if the gateway is not serving."""
        deadline = monotonic() + timeout_s
        passed = threading.Event()
        if (loop := self._loop) is not None:
            loop.call_soon_threadsafe(passed.set)  # requests routed before this call have been sent by then
        while self._loop is not None and not (passed.wait(_DRAIN_POLL_INTERVAL_S) and not self.load(keys)):
            if monotonic() > deadline:
                return False
            sleep(_DRAIN_POLL_INTERVAL_S)
        return True

    def load(self, keys: Collection[str]) -> int:
        """See `Traffic`."""
        return self._hosts.load(keys) + (self.others.in_flight(keys) if self.others is not None else 0)

    def last_used_us(self, project: str, model: str, version: str) -> int:
        return self.metrics.last_used_us(project, model, version)

    def _on_routes_changed(self) -> None:
        if (loop := self._loop) is not None:
            loop.call_soon_threadsafe(self._sync_routes)

    def _sync_routes(self) -> None:
        """Apply the current routes to connections and metrics, and wake the requests that wait for a change."""
        if self._loop is None:
            return
        self._changed.set_result(None)
        self._changed = self._loop.create_future()
        versions = [route for model in self._routes.models.values() for route in model.versions.values()]
        self.metrics.retain({(route.project, route.model, route.version) for route in versions})
        self.shadows.retain({(route.project, route.model, route.shadow.version) for route in versions if route.shadow})
        self._hosts.sync([host for route in versions for host in route.hosts])

    @property
    def held_requests(self) -> int:
        """The number of requests that wait for versions to activate."""
        return self._held_requests

    def _schedule_sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep_due_s = monotonic() + SWEEP_INTERVAL_S
        self._sweep_timer = loop.call_later(SWEEP_INTERVAL_S, self._sweep_hosts)

    def _sweep_hosts(self) -> None:
        self.loop_lag.add(max(0.0, monotonic() - self._sweep_due_s))
        for key in self._hosts.sweep():
            LOG.warning("predict.stuck host=%s", key)
            self._control_plane.host_unresponsive(key)
        for key, reason in self._hosts.reconnect():
            LOG.warning("predict.unreachable host=%s reason=%r", key, reason)
            self._control_plane.host_unreachable(key, reason)
        if self._loop is not None:
            self._schedule_sweep(self._loop)


def _no_version_error(model: ModelRoute, version: str) -> TrainshedError:
    """Return the error that says why no version can take the request."""
    if version:
        return NotFoundError(f"There is no version {version} of model {model.model} in project {model.project}.")
    if any(route.state is ServingState.STARTING for route in model.versions.values()):
        return UnavailableError(f"The first version of model {model.model} is still being created.")
    return FailedPreconditionError(
        f"Model {model.model} has no default version. Create a version, or choose one with "
        f"`trainshed versions set-default VERSION --model {model.model}`."
    )
