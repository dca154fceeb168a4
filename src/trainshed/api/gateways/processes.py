"""The gateway processes of a server: what changes reaches all of them before it is acknowledged.

They send requests to the same hosts and count against the same limits. In the place of one that has ended, the server
starts another one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from trainshed.api.gateways.channel import ConnectionChannel
from trainshed.api.gateways.link import GatewayLink
from trainshed.api.gateways.messages import (
    Accept,
    AcceptedRequest,
    CloseConnections,
    Counted,
    CountInFlight,
    Forget,
    GatewayConfig,
    HostTrouble,
    Lease,
    LeaseWanted,
    Logged,
    ModelName,
    OpenConnections,
    PassIdle,
    Ready,
    RoutesChanged,
    ServerLogLine,
    StopGateway,
    ToGateway,
    ToServer,
)
from trainshed.api.http.auth import ANONYMOUS
from trainshed.api.ml.fast_path import Headers
from trainshed.connections import Connections
from trainshed.domain.iam import token_digest
from trainshed.gateway.metrics import Totals, VersionName
from trainshed.gateway.routes import ControlPlane, ModelRoute, PredictTarget, Routes
from trainshed.services.access.request_rates import RequestRates, limited_user
from trainshed.services.registry import Services

LOG = logging.getLogger("trainshed.gateways")
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 12.0  #: for the responses in progress
FIRST_BACKOFF_S = 0.05  #: before another process takes the place of one that has ended; doubled for each further one
MAX_BACKOFF_S = 5.0
BALANCE_INTERVAL_S = 0.5
TOLERATED_DIFFERENCE = 0.1  #: of the connections of two gateways, as a share of the larger number
STABLE_S = 30.0  #: after which the end of a process is the first one again


class Followers:
    """Sends changes of routes, tokens and limits to all gateways, and waits for their effect. Thread-safe."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._lock = threading.Lock()
        self._links: list[GatewayLink] = []
        self._sent: dict[ModelName, ModelRoute] = {}
        self.epoch = 0  #: of what was looked up

    @property
    def links(self) -> tuple[GatewayLink, ...]:
        return tuple(self._links)

    def add(self, link: GatewayLink) -> None:
        """Let a new process follow from now on."""
        with self._lock:
            self._links.append(link)
            link.send(Forget(self.epoch))
            link.send(RoutesChanged(dict(self._sent), frozenset()))

    def remove(self, link: GatewayLink) -> None:
        with self._lock:
            self._links.remove(link)

    def publish(self) -> None:
        """Blocks until requests see the current routes at every gateway."""
        with self._lock:
            current = dict(self._routes.models)
            changed = {name: route for name, route in current.items() if self._sent.get(name) is not route}
            message = RoutesChanged(changed, frozenset(self._sent.keys() - current.keys()))
            self._sent = current
            sent = self._request(message)
        _wait(sent)

    def forget(self) -> None:
        """Blocks until no gateway uses what was looked up before."""
        with self._lock:
            self.epoch += 1
            sent = self._request(Forget(self.epoch))
        _wait(sent)

    def in_flight(self, keys: Collection[str]) -> int:
        """See `OtherGateways`."""
        with self._lock:
            sent = self._request(CountInFlight(frozenset(keys)))
        return _wait(sent)

    def _request(self, message: ToGateway) -> list[tuple[GatewayLink, int]]:
        return [(link, link.request(message)) for link in self._links]


def _wait(sent: list[tuple[GatewayLink, int]]) -> int:
    return sum(link.wait(number) for link, number in sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParts:
    """What the gateways of a server need of it."""

    services: Services
    routes: Routes
    control_plane: ControlPlane
    connections: Connections
    listener: socket.socket  #: of the port for HTTP, which the gateways inherit
    serve: Callable[[], asyncio.Protocol]  #: creates the protocol of a connection that a gateway passes


class _Adopted(asyncio.Protocol):
    """Puts the protocol that serves a connection in its own place, and gives it what was read."""

    def __init__(self, create: Callable[[], asyncio.Protocol], read: bytes) -> None:
        self._create = create
        self._read = read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._create()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._read:
            protocol.data_received(self._read)


class GatewayProcesses:
    """Starts gateways, and takes and gives connections. Event loop only, but for what it hands to threads."""

    def __init__(self, parts: ServerParts, config: GatewayConfig) -> None:
        self._parts = parts
        self._config = config
        self._number = config.gateways
        self._followers = Followers(parts.routes)
        self._channels: dict[GatewayLink, ConnectionChannel] = {}
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failures = 0
        self._next = 0
        self._stopping = False
        self._unchecked: set[str] = set()  #: addresses whose connections a gateway closes at this moment
        parts.routes.listen(self._followers.publish)
        parts.services.tokens.listen(self._followers.forget)
        parts.services.quotas.listen(self._followers.forget)
        parts.services.predictions.others = self._followers
        parts.connections.also_count(self._counted_elsewhere)

    async def start(self) -> None:
        """Start all, and wait until they accept connections."""
        self._followers.publish()
        self._balance()
        for number in range(1, self._number + 1):
            self._start(number)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not all(link.is_ready.is_set() for link in self._channels) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    def stop(self, *, at_once: bool = False) -> None:
        """Let all end after the responses in progress, or at once."""
        self._stopping = True
        self._parts.listener.close()
        for link in self._channels:
            if at_once:
                link.kill()
            else:
                link.send(StopGateway())

    async def wait(self) -> None:
        """Wait until all have ended. Kills those that take too long."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self._channels:
            if time.monotonic() > deadline:
                for link in self._channels:
                    link.kill()
            await asyncio.sleep(0.01)

    def _start(self, number: int) -> None:
        if self._stopping:
            return
        link = GatewayLink(replace(self._config, number=number), self._receive)
        self._channels[link] = ConnectionChannel(link.connections, partial(self._adopt, link))
        self._followers.add(link)
        link.begin(self._on_end)
        LOG.info("gateway.started number=%d pid=%d", number, link.process.pid)

    def _on_end(self, link: GatewayLink) -> None:
        """Called by the thread of the link."""
        self._followers.remove(link)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ended, link)

    def _ended(self, link: GatewayLink) -> None:
        self._channels.pop(link).close()
        if self._stopping:
            return
        self._failures = 0 if time.monotonic() - link.started_s > STABLE_S else self._failures + 1
        delay_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0**self._failures)
        LOG.warning("gateway.restarts number=%d after_s=%g", link.number, delay_s)
        self._loop.call_later(delay_s, self._start, link.number)

    # connections

    def _adopt(self, link: GatewayLink, client: socket.socket, read: bytes) -> None:
        """Serve a connection that a gateway has passed. Without a byte of a request, it is for another gateway."""
        client.setblocking(False)
        if self._stopping:
            client.close()
            return
        try:
            link.passed(str(client.getpeername()[0]))
        except OSError:  # the client is gone
            client.close()
            return
        if not read and self._give(client.fileno()):
            client.close()
            return
        adopted = self._loop.connect_accepted_socket(lambda: _Adopted(self._parts.serve, read), client)
        task = asyncio.ensure_future(adopted)
        self._tasks.add(task)
        task.add_done_callback(self._on_adopted)

    def _on_adopted(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.debug("connection.dropped reason=%r", error)

    def give(self, transport: asyncio.Transport) -> bool:
        """Pass an idle connection on which a prediction was answered. Returns False if no gateway is there.

        The caller has stopped to read it, and aborts it then.
        """
        return self._give(transport.get_extra_info("socket").fileno())

    def _give(self, fd: int) -> bool:
        ready = [each for each in self._channels if each.is_ready.is_set() and not each.ended]
        if not ready or self._stopping:
            return False
        self._next += 1
        link = min(ready, key=lambda each: (each.open.total, (each.number + self._next) % self._number))
        link.open = replace(link.open, total=link.open.total + 1)  # until it reports the number
        self._channels[link].send(fd, b"")
        return True

    def _balance(self) -> None:
        """Let a gateway with many more connections than another one pass some of them."""
        self._loop.call_later(BALANCE_INTERVAL_S, self._balance)
        self._limit("")  # the server has accepted others meanwhile
        ready = [each for each in self._channels if each.is_ready.is_set() and not each.ended]
        if self._stopping or len(ready) < 2:
            return
        fewest, most = (choose(ready, key=lambda each: each.open.total) for choose in (min, max))
        difference = most.open.total - fewest.open.total
        if difference > max(1, most.open.total * TOLERATED_DIFFERENCE):
            most.send(PassIdle(difference // 2))

    def teach(self, url: bytes, headers: Headers, target: PredictTarget) -> bool:
        """Tell all gateways that such requests are accepted, with this token. See `ConnectionTaker`."""
        if self._parts.services.predictions.shadows.wanted(target):
            return False
        values, epoch = dict(headers), self._followers.epoch
        digest = token_digest(values.get(b"authorization", b"")[7:].decode("latin-1"))
        token = self._parts.services.tokens.cached(digest)
        if self._config.authentication and token is None:
            return False
        holder = token.principal if token else ANONYMOUS
        message = AcceptedRequest(
            url=url,
            host=values[b"host"],
            target=target,
            digest=digest if token else "",
            principal=holder,
            expires_us=token.expires_us if token else None,
            is_unlimited=self._parts.services.rates.is_unlimited(target.project, holder),
            epoch=epoch,
        )
        for link in self._channels:
            link.send(message)
        return True

    def _counted_elsewhere(self, address: str) -> int:
        opened = [link.open for link in self._channels]
        return sum(each.by_address.get(address, 0) if address else each.total for each in opened)

    def _limit(self, address: str) -> None:
        """Let the process with the most connections close those beyond the limit."""
        excess = self._parts.connections.excess(address)
        if excess <= 0 or not self._channels:
            return
        if any(each.open.closings < each.closings for each in self._channels):  # its number is old, and it reports soon
            self._unchecked.add(address)
            return

        def number(link: GatewayLink) -> int:
            return link.open.by_address.get(address, 0) if address else link.open.total

        most = max(self._channels, key=number)
        if number(most) < self._parts.connections.count(address):
            self._parts.connections.close(address, excess)
        else:
            most.closings += 1
            most.send(CloseConnections(address, excess))

    # messages

    def _receive(self, link: GatewayLink, message: ToServer) -> None:
        """Called by the thread of the link."""
        services = self._parts.services
        match message:
            case Logged():
                services.predictions.logs.add(message.route, message.log, message.exchange)
            case ServerLogLine():
                logging.getLogger(message.logger).log(message.level, "%s", message.message)
            case Ready():
                link.is_ready.set()
                link.send(Accept())
            case _:
                self._loop.call_soon_threadsafe(self._apply, link, message)

    def _apply(self, link: GatewayLink, message: ToServer) -> None:
        match message:
            case Counted(versions):
                self._count(versions)
            case LeaseWanted():
                self._lease(link, message)
            case HostTrouble(key, None):
                self._parts.control_plane.host_unresponsive(key)
            case HostTrouble(key, str(reason)):
                self._parts.control_plane.host_unreachable(key, reason)
            case OpenConnections():
                link.set_open(message)
                unchecked, self._unchecked = self._unchecked, set()
                for address in {"", *message.by_address, *unchecked}:
                    self._limit(address)

    def _count(self, versions: Mapping[VersionName, tuple[Totals, float]]) -> None:
        """Add requests that a gateway has counted, but not to a version that is gone meanwhile."""
        for (project, model, version), (totals, last) in versions.items():
            route = self._parts.routes.models.get((project, model))
            if route is not None and version in route.versions:
                self._parts.services.predictions.metrics.of((project, model, version)).merge(totals, last)

    def _lease(self, link: GatewayLink, message: LeaseWanted) -> None:
        rates: RequestRates = self._parts.services.rates
        if message.unused:
            rates.give_back(message.project, message.holder, message.unused)
            return
        epoch = self._followers.epoch
        number = rates.lease(message.project, message.holder, parts=self._number)
        link.send(Lease(message.project, limited_user(message.holder), number, epoch))
