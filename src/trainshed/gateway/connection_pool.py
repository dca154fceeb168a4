"""The hosts that we are connected to: made when the routes name them, chosen by load, let go when nobody needs them."""

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
from trainshed.serving.memory import IDLE_S, MemoryTrimmer

LOG = logging.getLogger("trainshed.predict")


CONNECT_S = 5.0  #: that a host has to let us connect
AGAIN_S = 1.0  #: between two tries to connect to one
UNREACHABLE_S = 15.0  #: a host that could not be reached for so long is worth a word


@dataclass(slots=True)
class _Missed:
    """A host that we should be connected to."""

    since_s: float
    again_s: float = 0.0  #: when to try next
    reason: str = "it closed the connection"


class HostConnectionPool:
    """One connection for each host. For the event loop alone."""

    def __init__(self, *, timeout_s: float, trimming: MemoryTrimmer | None = None) -> None:
        self._timeout_s = timeout_s
        self._connections: dict[str, HostConnection] = {}
        self._opening: dict[str, Future[None]] = {}
        self._wanted: dict[str, HostAddress] = {}
        self._missed: dict[str, _Missed] = {}  # those of the wanted that we are not connected to
        self._trimming = trimming or MemoryTrimmer()
        self._busy_s = 0.0  # when a request was last seen to wait, by the monotonic clock

    def least_loaded(self, hosts: Iterable[HostAddress]) -> HostConnection | None:
        """The one that has least to do, among those that we are connected to."""
        best: HostConnection | None = None
        for host in hosts:
            found = self._connections.get(host.key)
            if found is not None and not found.lost and (best is None or found.in_flight < best.in_flight):
                best = found
        return best

    async def connect_any(self, hosts: Iterable[HostAddress]) -> None:
        """Connect to one of these. `UnavailableError` if none of them listens."""
        for host in hosts:
            try:
                await asyncio.shield(self._open(host))
                return
            except UnavailableError:
                continue
        raise HostLostError

    def sync(self, hosts: Collection[HostAddress]) -> None:
        """These are all that requests may be sent to from now on: connect to them before one comes."""
        self._wanted = {host.key: host for host in hosts}
        self._missed = {key: missed for key, missed in self._missed.items() if key in self._wanted}
        for host in hosts:
            if host.key not in self._connections:
                self._open(host)

    def reconnect(self) -> list[tuple[str, str]]:
        """Connect again to hosts whose connections were lost. Those that could not be reached for a while, with why."""
        now_s, gone = monotonic(), []
        for key, host in self._wanted.items():
            found = self._connections.get(key)
            if found is not None and not found.lost:
                self._missed.pop(key, None)
                continue
            missed = self._missed.setdefault(key, _Missed(since_s=now_s))
            if now_s >= missed.again_s and key not in self._opening:
                missed.again_s = now_s + AGAIN_S
                self._open(host)
            if now_s - missed.since_s > UNREACHABLE_S:
                missed.since_s = now_s
                gone.append((key, missed.reason))
        return gone

    def sweep(self) -> list[str]:
        """Give up what took too long, and connections that are of no more use. The hosts that hang, by their keys."""
        hanging = []
        for key, connection in tuple(self._connections.items()):
            if connection.expire():
                hanging.append(key)
            self._trimming.add(size := connection.taken())
            if size or connection.in_flight:
                self._busy_s = monotonic()
            if connection.lost or (key not in self._wanted and not connection.in_flight):
                connection.close()
                del self._connections[key]
        if monotonic() - self._busy_s > IDLE_S:
            self._trimming.idle()
        return hanging

    def load(self, keys: Collection[str]) -> int:
        """How many requests wait for an answer of one of these. From any thread."""
        found = [self._connections.get(key) for key in keys]  # the loop may let go of one while another thread asks
        return sum(connection.in_flight for connection in found if connection is not None)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _open(self, host: HostAddress) -> Future[None]:
        """Connect once, however many wait for it."""
        opening = self._opening.get(host.key)
        if opening is None:
            opening = self._opening[host.key] = asyncio.ensure_future(self._connect(host))
            opening.add_done_callback(lambda done: self._opened(host.key, done))
        return opening

    async def _connect(self, host: HostAddress) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                connection = await self._connected(host)
        except (OSError, TimeoutError, UnavailableError) as exc:
            reason = str(exc) or f"it did not answer within {CONNECT_S:g} s"
            LOG.info("predict.not_connected host=%s reason=%r", host.key, reason)
            if (missed := self._missed.get(host.key)) is not None:
                missed.reason = reason
            raise HostLostError from exc
        self._connections[host.key] = connection

    async def _connected(self, host: HostAddress) -> HostConnection:
        loop = asyncio.get_running_loop()
        if (place := host.endpoint) is None:
            return (await loop.create_unix_connection(self._made, str(host.socket)))[1]
        _, connection = await loop.create_connection(self._made, place.host, place.port)
        try:
            await connection.authenticate(place.secret)
        except BaseException:
            connection.abort()
            raise
        return connection

    def _made(self) -> HostConnection:
        return HostConnection(timeout_s=self._timeout_s)

    def _opened(self, key: str, done: Future[None]) -> None:
        del self._opening[key]
        if not done.cancelled():
            done.exception()  # whoever waits for it gets it; where nobody does it is no news
