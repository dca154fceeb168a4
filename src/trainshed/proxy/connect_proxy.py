"""A CONNECT proxy on loopback: intercepts Google's hosts and forwards all other connections through the egress.

Trainers find it in `https_proxy`. It does not proxy plain HTTP: no client of Google uses it, and the machine's
`http_proxy` stays unchanged.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from trainshed.errors import InvalidArgumentError, UnavailableError
from trainshed.proxy.egress import Egress, Streams, pipe
from trainshed.proxy.google_hosts import served_name
from trainshed.proxy.interception import InterceptedConnection, error_response
from trainshed.proxy.request_normalizer import MAX_HEAD_BYTES, MAX_HEADERS

LOG = logging.getLogger("trainshed.proxy")
HEADERS_TIMEOUT_S = 15.0
SHUTDOWN_TIMEOUT_S = 1.0  #: for the client's TLS close_notify; a busy client may not send it
MAX_CONNECTIONS = 1000
_CONNECT = re.compile(rb"CONNECT (\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):(\d{1,5}) HTTP/1\.[01]")
_HTTPS_PORT = 443
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def tls_context(chain: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS context with the certificate for Google's hosts."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


class ConnectProxy:
    """Call `start`, then `stop` to accept no more connections, then `close` to end the open ones."""

    def __init__(self, *, tls: ssl.SSLContext, inner: Callable[[], asyncio.Protocol], egress: Egress) -> None:
        self._tls = tls
        self._inner = inner  #: creates the server's own HTTP protocol, once per connection
        self._egress = egress
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
        try:
            if len(self._tasks) > MAX_CONNECTIONS:
                raise UnavailableError(f"There are {MAX_CONNECTIONS} connections already.")
            await self._handle((reader, writer))
        except InvalidArgumentError as exc:
            writer.write(error_response("400 Bad Request", str(exc)))
        except UnavailableError as exc:
            LOG.info("proxy.unreachable reason=%s", exc)
            writer.write(error_response("502 Bad Gateway", str(exc)))
        except (OSError, EOFError, TimeoutError) as exc:  # the client is gone, slow, or rejects the certificate
            LOG.debug("proxy.dropped reason=%s", exc)
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _handle(self, client: Streams) -> None:
        host, port = await _read_target(client[0])
        name = served_name(host)
        if name is not None and port == _HTTPS_PORT:
            await self._intercept(client[1], name)
            return
        upstream = await self._egress.connect(host, port)
        client[1].write(_ESTABLISHED)
        await pipe(client, upstream)

    async def _intercept(self, writer: asyncio.StreamWriter, name: str) -> None:
        """Terminate TLS for the intercepted host and serve the client's requests."""
        loop = asyncio.get_running_loop()
        connection = InterceptedConnection(self._inner(), name)
        writer.write(_ESTABLISHED)
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
        connection.begin(transport)
        try:
            await connection.closed
        finally:
            transport.close()


async def _read_target(reader: asyncio.StreamReader) -> tuple[str, int]:
    """Read the CONNECT request and return its host and port."""
    try:
        async with asyncio.timeout(HEADERS_TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise InvalidArgumentError(f"The head of the request is longer than {MAX_HEAD_BYTES:,} bytes.") from None
    first, *headers = head[:-4].split(b"\r\n")
    if len(headers) > MAX_HEADERS:
        raise InvalidArgumentError(f"The request has more than {MAX_HEADERS} headers.")
    match = _CONNECT.fullmatch(first)
    if match is None or not 0 < int(match[2]) <= 65_535:
        raise InvalidArgumentError(
            "This proxy knows one request only: 'CONNECT HOST:PORT HTTP/1.1'. Set https_proxy to it, not http_proxy."
        )
    return match[1].decode("ascii").strip("[]"), int(match[2])
