"""A CONNECT proxy on loopback: intercepts Google's hosts and forwards all other connections through the egress.

Trainers find it in `https_proxy`. It does not proxy plain HTTP: no client of Google uses it, and the machine's
`http_proxy` stays unchanged.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from trainshed.connections import Connections, address_of
from trainshed.errors import CannotProceedError
from trainshed.node.connect import (
    ESTABLISHED,
    HEADERS_TIMEOUT_S,
    HTTPS_PORT,
    MAX_HEAD_BYTES,
    ConnectError,
    Egress,
    forward,
    read_request,
)
from trainshed.proxy.google_hosts import served_name
from trainshed.proxy.interception import InterceptedConnection, error_response

LOG = logging.getLogger("trainshed.proxy")
SHUTDOWN_TIMEOUT_S = 1.0  #: for the client's TLS close_notify; a busy client may not send it


def tls_context(chain: Path, key: Path) -> ssl.SSLContext:
    """Return the context of a TLS server with this certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


def machine_egress(proxy: str, bypass: str) -> Egress:
    """Return the egress for https_proxy and no_proxy. Raises `CannotProceedError` if the proxy is no http:// URL."""
    try:
        return Egress(proxy, bypass)
    except ValueError as exc:
        raise CannotProceedError(
            "The proxy in https_proxy is not like http://HOST:PORT, so trainers can't be led through it. "
            "Correct it, or set TRAINSHED_SERVER_GS_IN_TRAINERS=google to leave the trainers' network alone."
        ) from exc


class _Tunnel:
    """A connection to the proxy, until it is one to this server."""

    is_idle = True  #: which of them is the longest idle is what counts

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def evict(self) -> None:
        LOG.debug("proxy.closed reason=There are too many tunnels, and this one was idle the longest.")
        self._task.cancel()


class ConnectProxy:
    """Serves connections that others accept. Call `close` to end them."""

    def __init__(
        self, *, tls: ssl.SSLContext, inner: Callable[[], asyncio.Protocol], egress: Egress, tunnels: Connections
    ) -> None:
        """`tunnels` counts tunnels and connections that may become one; those to this server are counted there."""
        self._tls = tls
        self._inner = inner  #: creates the server's own HTTP protocol, once per connection
        self._egress = egress
        self._tunnels = tunnels
        self._tasks: set[asyncio.Task[None]] = set()

    def protocol(self) -> asyncio.Protocol:
        """Create a protocol for a connection."""
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=MAX_HEAD_BYTES), self._serve)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        tunnel = _Tunnel(task)
        self._tunnels.add(tunnel, address_of(writer.transport))
        try:
            await self._handle(reader, writer, tunnel)
        except ConnectError as exc:
            LOG.info("proxy.refused status=%s reason=%s", exc.status, exc)
            writer.write(error_response(exc.status, str(exc)))
        except (OSError, EOFError, TimeoutError) as exc:  # the client is gone, slow, or rejects the certificate
            LOG.debug("proxy.dropped reason=%s", exc)
        finally:
            writer.close()
            self._tasks.discard(task)
            self._tunnels.remove(tunnel)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tunnel: _Tunnel) -> None:
        host, port = await read_request(reader)
        self._tunnels.use(tunnel)
        name = served_name(host)
        if name is not None and port == HTTPS_PORT:
            await self._intercept(writer, name, tunnel)
            return
        upstream = await self._egress.connect(host, port)
        writer.write(ESTABLISHED)
        self._tunnels.use(tunnel)
        await forward((reader, writer), upstream, lambda: self._tunnels.use(tunnel))

    async def _intercept(self, writer: asyncio.StreamWriter, name: str, tunnel: _Tunnel) -> None:
        """Terminate TLS for the intercepted host and serve the client's requests."""
        loop = asyncio.get_running_loop()
        connection = InterceptedConnection(self._inner(), name)
        writer.write(ESTABLISHED)
        transport = await loop.start_tls(
            writer.transport,
            connection,
            self._tls,
            server_side=True,
            ssl_handshake_timeout=HEADERS_TIMEOUT_S,
            ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        )
        if transport is None:
            return
        self._tunnels.remove(tunnel)
        connection.begin(transport)
        try:
            await connection.closed
        finally:
            transport.close()
