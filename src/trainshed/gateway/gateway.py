"""From a request for a prediction to its answer: which version, which of its hosts, and how long to wait."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from asyncio import Future
from collections.abc import Callable, Collection
from time import monotonic, sleep  # uvloop's own clock tells milliseconds
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
from trainshed.gateway.connection_pool import HostConnectionPool
from trainshed.gateway.host_connection import Answer, Body, FutureSink, HostConnection, HostLostError, ResponseSink
from trainshed.gateway.metrics import VersionMetrics
from trainshed.gateway.request_log import RequestLogWriter
from trainshed.gateway.routes import ControlPlane, ModelRoute, PredictTarget, RequestLogTarget, Routes, VersionRoute
from trainshed.serving.frames import FrameKind, pack_raw, unpack_raw

__all__ = [
    "Answer",
    "FrameKind",
    "InFlightRequest",
    "PredictionGateway",
    "RequestClient",
    "pack_raw",
    "unpack_raw",
]  # what whoever asks holds in hand

LOG = logging.getLogger("trainshed.predict")

MAX_HELD = 256  #: requests that may wait for versions to wake up
SWEEP_S = 0.25  #: between looks for requests whose time is over
UNHEALTHY_S = 30  #: after which it is worth a try to ask an unhealthy version again
MAX_HOST_LOSSES = (
    2  #: of hosts that a request may have been sent to before: one that kills them all must not get to them all
)
_LOOK_S = 0.01  #: between looks at whether a host has answered everything


class RequestClient(Protocol):
    """The connection that a request came by. When it is lost it sets `gone`, and gives `waiter` None as its result."""

    waiter: Future[Answer | None] | None

    @property
    def gone(self) -> bool: ...


class InFlightRequest:
    """A request that is with a host. Counts and logs its answer, and hands it on."""

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

    def __init__(self, predictions: PredictionGateway, target: PredictTarget, body: Body, asker: ResponseSink) -> None:
        self._predictions = predictions
        self._target = target
        self._body = body
        self._asker = asker
        self._losses = 0
        self._abandoned = False

    def send(self, route: VersionRoute, connection: HostConnection, *, began: float) -> None:
        """`ResourceExhaustedError` if the host has too much to do."""
        self._route = route
        self._connection = connection
        self._began = began
        try:
            self._number = connection.send(self._target.kind, self._body, self, began=began)
        except ResourceExhaustedError:
            self._predictions.count(route, began, ResourceExhaustedError.__name__, ok=False)
            raise
        self._repeats = route.retries_elsewhere
        if route.log is None and not route.retries_elsewhere:
            self._body = ()  # it may be long, and the host has it

    def abandon(self) -> None:
        """Nobody waits for the answer any more. It may have come already."""
        self._abandoned = True
        self._connection.cancel(self._number)

    def answered(self, status: int, body: bytes) -> None:
        seconds = self._predictions.count(self._route, self._began, status, ok=status < 400)
        log = self._route.log
        if log is not None and status == 200 and self._target.kind == FrameKind.PREDICT:
            self._predictions.log(self._route, log, b"".join(self._body), body, seconds=seconds)
        self._asker.answered(status, body)

    def failed(self, exc: TrainshedError) -> None:
        if isinstance(exc, HostLostError) and self._repeats and self._losses < MAX_HOST_LOSSES and not self._abandoned:
            self._losses += 1
            self._again(exc)
        else:
            self._fail(exc)

    def _fail(self, exc: TrainshedError) -> None:
        self._predictions.count(self._route, self._began, type(exc).__name__, ok=False)
        self._asker.failed(exc)

    def _again(self, exc: HostLostError) -> None:
        """Ask another host of the same version, if there is one. The model may answer the request twice."""
        route = self._predictions.current(self._route)
        if route is None:
            self._fail(exc)
        elif (connection := self._predictions.connected(route)) is not None:
            self._send_again(route, connection)
        else:
            self._predictions.resend_when_connected(self, route)

    def _send_again(self, route: VersionRoute, connection: HostConnection) -> None:
        try:
            self.send(route, connection, began=self._began)
        except ResourceExhaustedError as exc:  # which is counted
            self._asker.failed(exc)

    async def go_on(self, route: VersionRoute, hosts: HostConnectionPool) -> None:
        """Ask again, once one of the version's hosts can be reached."""
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
            self._send_again(route, connection)


class PredictionGateway:
    """All requests to all hosts. For the event loop that it was begun on, but for `replay` and `Traffic`."""

    def __init__(
        self, routes: Routes, logs: RequestLogWriter, *, timeout_s: float, draw: Callable[[], float] = random.random
    ) -> None:
        """`draw` gives random numbers from 0 to below 1: for splits, and for the share that is logged."""
        self.metrics = VersionMetrics()
        self.logs = logs
        self._routes = routes
        self._hosts = HostConnectionPool(timeout_s=timeout_s)
        self._timeout_s = timeout_s
        self._draw = draw
        self._held = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeper: ControlPlane
        self._changed: Future[None]
        self._sweep: asyncio.TimerHandle

    def begin(self, keeper: ControlPlane) -> None:
        """Serve from now on, on the loop that runs."""
        self._loop = asyncio.get_running_loop()
        self._keeper = keeper
        self._changed = self._loop.create_future()
        self._sweep = self._loop.call_later(SWEEP_S, self._look)
        self._routes.listen(self._tell)
        self._follow()
        self.logs.start()

    def close(self) -> None:
        """The end, once no request comes any more. What is to be logged is written when this returns."""
        self._loop = None
        self._sweep.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        self._hosts.close()
        self.logs.stop()

    def try_send(self, target: PredictTarget, body: Body, asker: ResponseSink) -> InFlightRequest | None:
        """Ask now, without waiting for anything; None if that can't be, and `ask` is what may help."""
        began = monotonic()
        route = self._find(target)
        connection = self._hosts.least_loaded(route.hosts) if route.state is ServingState.READY else None
        if connection is None:
            return None
        question = InFlightRequest(self, target, body, asker)
        question.send(route, connection, began=began)
        return question

    async def send(self, target: PredictTarget, body: bytes, client: RequestClient | None = None) -> Answer | None:
        """The host's answer; None if the client went away meanwhile.

        `NotFoundError`, `FailedPreconditionError`: there is nobody to ask. `UnavailableError`,
        `ResourceExhaustedError`: nobody was asked, or whoever
        was has ended. `DeadlineExceededError`: there was no answer in time.
        """
        began = monotonic()
        route, connection = await self._reached(target, began)
        if client is not None and client.gone:
            return None
        future: Future[Answer | None] = asyncio.get_running_loop().create_future()
        question = InFlightRequest(self, target, (body,), FutureSink(future))
        question.send(route, connection, began=began)
        if client is not None:
            client.waiter = future
        try:
            answer = await future
        except asyncio.CancelledError:
            question.abandon()
            raise
        finally:
            if client is not None:
                client.waiter = None
        if answer is None:
            question.abandon()
        return answer

    def current(self, route: VersionRoute) -> VersionRoute | None:
        """What is known of a version now; None if it is gone, or none of its hosts is ready."""
        model = self._routes.models.get((route.project, route.model))
        found = model.versions.get(route.version) if model is not None else None
        return found if found is not None and found.state is ServingState.READY else None

    def connected(self, route: VersionRoute) -> HostConnection | None:
        return self._hosts.least_loaded(route.hosts)

    def resend_when_connected(self, question: InFlightRequest, route: VersionRoute) -> None:
        """Have a question asked again that lost its host, when another one is connected."""
        task = asyncio.ensure_future(question.go_on(route, self._hosts))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def replay(self, target: PredictTarget, body: bytes) -> tuple[int, bytes, float]:
        """As `ask`, from another thread, neither counted nor logged: status, body, and the seconds that it took."""
        if (loop := self._loop) is None:
            raise UnavailableError("The server is stopping.")
        return asyncio.run_coroutine_threadsafe(self._replayed(target, body), loop).result(self._timeout_s + 5)

    async def _replayed(self, target: PredictTarget, body: bytes) -> tuple[int, bytes, float]:
        began = monotonic()
        _, connection = await self._reached(target, began)
        future: Future[Answer | None] = asyncio.get_running_loop().create_future()
        connection.send(target.kind, (body,), FutureSink(future), began=began)
        try:
            answer = await future
        except DeadlineExceededError as exc:
            answer = 504, str(exc).encode()
        assert answer is not None  # there is no client that could go away
        return *answer, monotonic() - began

    async def _reached(self, target: PredictTarget, began: float) -> tuple[VersionRoute, HostConnection]:
        """A version that answers and a connection to it, once there is one. To be used before anything else is awaited:
        what is withdrawn meanwhile gets no more requests."""
        while True:
            route = self._find(target)
            connection = self._hosts.least_loaded(route.hosts) if route.state is ServingState.READY else None
            if connection is not None:
                return route, connection
            try:
                await self._reach(route, began)
            except TrainshedError as exc:
                self.count(route, began, type(exc).__name__, ok=False)
                raise

    def _find(self, target: PredictTarget) -> VersionRoute:
        model = self._routes.models.get((target.project, target.model))
        if model is None:
            raise NotFoundError(f"There is no model {target.model} in project {target.project}.")
        route = model.versions.get(target.version) if target.version else model.pick(self._draw())
        if route is None:
            raise _nobody(model, target)
        return route

    async def _reach(self, route: VersionRoute, began: float) -> None:
        """Wait until it makes sense to look again. `UnavailableError` if it makes none."""
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
                raise UnavailableError(message, retry_after_s=UNHEALTHY_S)
            case ServingState.SLEEPING | ServingState.WAKING:
                await self._hold(route, began)

    async def _hold(self, route: VersionRoute, began: float) -> None:
        """Wake the version, and wait until the routes change."""
        if self._held >= MAX_HELD:
            raise ResourceExhaustedError(
                f"Version {route.version} of model {route.model} is waking up, and many wait for it already."
            )
        self._keeper.activate(route.project, route.model, route.version)
        self._held += 1
        try:
            async with asyncio.timeout(max(0.0, began + self._timeout_s - monotonic())):
                await asyncio.shield(self._changed)
        except TimeoutError:
            message = f"Version {route.version} of model {route.model} did not wake up in {self._timeout_s:g} seconds."
            raise UnavailableError(message) from None
        finally:
            self._held -= 1

    def count(self, route: VersionRoute, began: float, outcome: object, *, ok: bool) -> float:
        """Note how a request ended; the seconds that it took."""
        seconds = monotonic() - began
        self.metrics.of((route.project, route.model, route.version)).add(seconds, ok=ok)
        if route.access_log:
            LOG.info("predict version=%s outcome=%s ms=%.1f", route.name, outcome, seconds * 1000)
        return seconds

    def log(self, route: VersionRoute, log: RequestLogTarget, request: bytes, answer: bytes, *, seconds: float) -> None:
        """Write it down, if the lot falls on it."""
        if self._draw() < log.share:
            self.logs.add(route, log, request, answer, seconds=seconds)

    def drained(self, keys: Collection[str], *, timeout_s: float) -> bool:
        """As `Traffic` says. True at once where nothing is served."""
        deadline = monotonic() + timeout_s
        passed = threading.Event()
        if (loop := self._loop) is not None:
            loop.call_soon_threadsafe(passed.set)  # whoever was routed before this call has been sent by then
        while self._loop is not None and not (passed.wait(_LOOK_S) and not self._hosts.load(keys)):
            if monotonic() > deadline:
                return False
            sleep(_LOOK_S)
        return True

    def last_used_us(self, project: str, model: str, version: str) -> int:
        return self.metrics.last_used_us(project, model, version)

    def _tell(self) -> None:
        if (loop := self._loop) is not None:
            loop.call_soon_threadsafe(self._follow)

    def _follow(self) -> None:
        """Do as the routes say now, and let those look again who wait for them to change."""
        if self._loop is None:
            return
        self._changed.set_result(None)
        self._changed = self._loop.create_future()
        versions = [route for model in self._routes.models.values() for route in model.versions.values()]
        self.metrics.retain({(route.project, route.model, route.version) for route in versions})
        self._hosts.sync([host for route in versions for host in route.hosts])

    def _look(self) -> None:
        for key in self._hosts.sweep():
            LOG.warning("predict.stuck host=%s", key)
            self._keeper.host_unresponsive(key)
        for key, reason in self._hosts.reconnect():
            LOG.warning("predict.unreachable host=%s reason=%r", key, reason)
            self._keeper.host_unreachable(key, reason)
        if self._loop is not None:
            self._sweep = self._loop.call_later(SWEEP_S, self._look)


def _nobody(model: ModelRoute, target: PredictTarget) -> TrainshedError:
    """Why there is no version to ask."""
    if target.version:
        return NotFoundError(f"There is no version {target.version} of model {model.model} in project {model.project}.")
    if any(route.state is ServingState.STARTING for route in model.versions.values()):
        return UnavailableError(f"The first version of model {model.model} is still being created.")
    return FailedPreconditionError(
        f"Model {model.model} has no default version. Create a version, or choose one with "
        f"`trainshed versions set-default VERSION --model {model.model}`."
    )
