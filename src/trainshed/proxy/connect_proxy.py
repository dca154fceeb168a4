"""A CONNECT proxy on loopback: intercepts Google's hosts and forwards all other connections through the egress.

Trainers find it in `https_proxy`. It does not proxy plain HTTP: no client of Google uses it, and the machine's
`http_proxy` stays unchanged.
"""

from __future__ import annotations

import asyncio
import logging
import socket
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
MAX_TUNNELS = 1000  #: and connections that may become one; those to this server are counted there


def tls_context(chain: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS context with the certificate for Google's hosts."""
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
        LOG.info("proxy.closed reason=There are %d connections, and this one was idle the longest.", MAX_TUNNELS)
        self._task.cancel()


class ConnectProxy:
    """Call `start`, then `stop` to accept no more connections, then `close` to end the open ones."""

    def __init__(self, *, tls: ssl.SSLContext, inner: Callable[[], asyncio.Protocol], egress: Egress) -> None:
        self._tls = tls
        self._inner = inner  #: creates the server's own HTTP protocol, once per connection
        self._egress = egress
        self._tunnels = Connections(maximum=MAX_TUNNELS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._serve, sock=listener, limit=MAX_HEAD_BYTES)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        self.stop()
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
        name = served_name(host)
        if name is not None and port == HTTPS_PORT:
            await self._intercept(writer, name, tunnel)
            return
        upstream = await self._egress.connect(host, port)
        writer.write(ESTABLISHED)
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
