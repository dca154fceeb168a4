"""The pool of connections to hosts: opened when routes name a host, chosen by load, closed when unused."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from time import monotonic

from trainshed.errors import UnavailableError
from trainshed.gateway.host_connection import HostConnection, HostLostError
from trainshed.gateway.routes import HostAddress
from trainshed.serving.memory import TRIM_IDLE_TIMEOUT_S, MemoryTrimmer

LOG = logging.getLogger("trainshed.predict")


CONNECT_TIMEOUT_S = 5.0  #: for connecting to a host and authenticating
RETRY_INTERVAL_S = 1.0  #: between two attempts to connect to one host
UNREACHABLE_AFTER_S = 15.0  #: after which a disconnected host is reported to the control plane


def sharing_processes(gateways: int) -> int:
    """Return how many processes have connections to hosts: the server alone, or the server and several gateways."""
    return 1 if gateways == 1 else gateways + 1


@dataclass(slots=True)
class _Disconnected:
    """A desired host without a connection."""

    since_s: float
    retry_at_s: float = 0.0  #: time of the next attempt, by the monotonic clock
    reason: str = "it closed the connection"


class HostConnectionPool:
    """Holds one connection per host. Event loop only."""

    def __init__(self, *, timeout_s: float, processes: int = 1, trimmer: MemoryTrimmer | None = None) -> None:
        """`processes` is the number of pools that have connections to the same hosts, each in a process of its own."""
        self._timeout_s = timeout_s
        self._processes = processes
        self._connections: dict[str, HostConnection] = {}
        self._opening: dict[str, Future[None]] = {}
        self._desired: dict[str, HostAddress] = {}
        self._disconnected: dict[str, _Disconnected] = {}  # the desired hosts without a connection
        self._trimmer = trimmer or MemoryTrimmer()
        self._busy_s = 0.0  # when a request was last in flight, by the monotonic clock

    def least_loaded(self, hosts: Iterable[HostAddress]) -> HostConnection | None:
        """Return the connected host with the fewest in-flight requests. Returns None if none is connected."""
        best: HostConnection | None = None
        for host in hosts:
            connection = self._connections.get(host.key)
            if (
                connection is not None
                and not connection.lost
                and (best is None or connection.in_flight < best.in_flight)
            ):
                best = connection
        return best

    async def connect_any(self, hosts: Iterable[HostAddress]) -> None:
        """Connect to one of these hosts. Raises `UnavailableError` if none of them listens."""
        for host in hosts:
            try:
                await asyncio.shield(self._open(host))
                return
            except UnavailableError:
                continue
        raise HostLostError

    def sync(self, hosts: Collection[HostAddress]) -> None:
        """Set the desired hosts and start connecting to them, so that the first request finds a connection."""
        self._desired = {host.key: host for host in hosts}
        self._disconnected = {key: state for key, state in self._disconnected.items() if key in self._desired}
        for host in hosts:
            if host.key not in self._connections:
                self._open(host)

    def reconnect(self) -> list[tuple[str, str]]:
        """Reconnect to hosts whose connections were lost.

        Returns key and reason of each host that has been unreachable for `UNREACHABLE_AFTER_S`.
        """
        now_s, unreachable = monotonic(), []
        for key, host in self._desired.items():
            connection = self._connections.get(key)
            if connection is not None and not connection.lost:
                self._disconnected.pop(key, None)
                continue
            state = self._disconnected.setdefault(key, _Disconnected(since_s=now_s))
            if now_s >= state.retry_at_s and key not in self._opening:
                state.retry_at_s = now_s + RETRY_INTERVAL_S
                self._open(host)
            if now_s - state.since_s > UNREACHABLE_AFTER_S:
                state.since_s = now_s
                unreachable.append((key, state.reason))
        return unreachable

    def sweep(self) -> list[str]:
        """Expire late requests and close unused connections. Returns the keys of unresponsive hosts."""
        unresponsive = []
        for key, connection in tuple(self._connections.items()):
            if connection.expire():
                unresponsive.append(key)
            self._trimmer.add(size := connection.taken())
            if size or connection.in_flight:
                self._busy_s = monotonic()
            if connection.lost or (key not in self._desired and not connection.in_flight):
                connection.close()
                del self._connections[key]
        if monotonic() - self._busy_s > TRIM_IDLE_TIMEOUT_S:
            self._trimmer.idle()
        return unresponsive

    def load(self, keys: Collection[str]) -> int:
        """Return the number of in-flight requests to these hosts. Thread-safe."""
        connections = [self._connections.get(key) for key in keys]  # the event loop may close one
        return sum(connection.in_flight for connection in connections if connection is not None)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _open(self, host: HostAddress) -> Future[None]:
        """Connect once, however many callers wait for it."""
        opening = self._opening.get(host.key)
        if opening is None:
            opening = self._opening[host.key] = asyncio.ensure_future(self._connect(host))
            opening.add_done_callback(lambda done: self._on_opened(host.key, done))
        return opening

    async def _connect(self, host: HostAddress) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = await self._open_connection(host)
        except (OSError, TimeoutError, UnavailableError) as exc:
            reason = str(exc) or f"it did not answer within {CONNECT_TIMEOUT_S:g} s"
            LOG.info("predict.not_connected host=%s reason=%r", host.key, reason)
            if (state := self._disconnected.get(host.key)) is not None:
                state.reason = reason
            raise HostLostError from exc
        self._connections[host.key] = connection

    async def _open_connection(self, host: HostAddress) -> HostConnection:
        loop = asyncio.get_running_loop()
        if (endpoint := host.endpoint) is None:
            return (await loop.create_unix_connection(self._new_connection, str(host.socket)))[1]
        _, connection = await loop.create_connection(self._new_connection, endpoint.host, endpoint.port)
        try:
            await connection.authenticate(endpoint.secret)
        except BaseException:
            connection.abort()
            raise
        return connection

    def _new_connection(self) -> HostConnection:
        return HostConnection(timeout_s=self._timeout_s, processes=self._processes)

    def _on_opened(self, key: str, done: Future[None]) -> None:
        del self._opening[key]
        if not done.cancelled():
            done.exception()  # waiting callers get it; retrieved here so that asyncio does not log it
