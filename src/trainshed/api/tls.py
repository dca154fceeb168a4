"""The TLS handshake of a connection: with a deadline, and counted from its acceptance on."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import cast

from trainshed.connections import Connections, address_of

LOG = logging.getLogger("trainshed.api")
HANDSHAKE_TIMEOUT_S = 10.0  #: in total


class TlsHandshake(asyncio.Protocol):
    """A new connection of a TLS port. When its handshake is done, a protocol of `create` takes its place."""

    is_idle = True

    def __init__(
        self, context: ssl.SSLContext, connections: Connections, create: Callable[[], asyncio.Protocol]
    ) -> None:
        self._context = context
        self._connections = connections
        self._create = create
        self._task: asyncio.Task[None] | None = None
        self._hello = b""  #: what arrives before `start_tls` has begun

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        if not self._connections.add(self, address_of(transport)):
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._shake_hands())
        loop.call_soon(loop.call_soon, self._pass_hello)  # right behind what `start_tls` schedules, before more is read

    def data_received(self, data: bytes) -> None:
        self._hello += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)

    def evict(self) -> None:
        self._transport.abort()

    def _pass_hello(self) -> None:
        """Give the protocol that does the handshake what this one has received."""
        protocol = self._transport.get_protocol()
        if self._hello and protocol is not self and not self._transport.is_closing():
            handshake = cast("asyncio.BufferedProtocol", protocol)
            handshake.get_buffer(len(self._hello))[: len(self._hello)] = self._hello  # type: ignore[index]
            handshake.buffer_updated(len(self._hello))

    async def _shake_hands(self) -> None:
        early = _EarlyData()
        try:
            transport = await asyncio.get_running_loop().start_tls(
                self._transport,
                early,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            )
        except (OSError, TimeoutError) as exc:  # the client is gone, slow, or does not want this certificate
            LOG.debug("tls.dropped reason=%s", exc)
            self._transport.abort()
            return
        finally:
            self._connections.remove(self)
        if transport is not None and not early.lost:
            early.hand_over(transport, self._create())


class _EarlyData(asyncio.Protocol):
    """Keeps what arrives between the end of the handshake and the protocol that is for it."""

    def __init__(self) -> None:
        self._data = b""
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self._data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def hand_over(self, transport: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._data:  # `protocol` may have put another one in its place
            cast("asyncio.Protocol", transport.get_protocol()).data_received(self._data)
