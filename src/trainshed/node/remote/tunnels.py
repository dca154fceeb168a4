"""Connections of the sidecar proxy: accepts CONNECT requests and forwards bytes."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import time
from urllib.parse import unquote, urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Optional

    Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

CONNECT_TIMEOUT_S = 20.0  #: also covers a server that is restarting
HEADERS_TIMEOUT_S = 15.0
HALF_CLOSE_TIMEOUT_S = 300.0  #: for the other direction, once one has ended
MAX_CONNECTIONS = 500
_RETRY_INTERVAL_S = 0.5
_HEADERS_MAX_BYTES = 8192
_CHUNK_BYTES = 65_536
_HTTPS_PORT = 443
_CONNECT = re.compile(rb"CONNECT (\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):(\d{1,5}) HTTP/1\.[01]")
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class EgressRoutes:
    """The egress of each host: to the server, through this machine's own proxy, or direct."""

    def __init__(self, route: dict[str, Any], env: Any) -> None:
        self._server = (route["host"], route["port"])
        self._intercepted = re.compile(route["names"])
        self._bypass = (env.get("no_proxy") or env.get("NO_PROXY") or "").strip()
        self._proxy = _parse_proxy(env.get("https_proxy") or env.get("HTTPS_PROXY") or "")

    def route(self, host: str, port: int) -> tuple[tuple[str, int], Optional[str]]:
        """Address to connect to, and the credentials header for a proxy. The header is None
        if the address is no proxy."""
        if port == _HTTPS_PORT and self._intercepted.fullmatch(host.lower()):
            return self._server, None
        if self._proxy is None or self._bypasses_proxy(host.lower()):
            return (host, port), None
        return self._proxy

    def is_server(self, address: tuple[str, int]) -> bool:
        return address == self._server

    def _bypasses_proxy(self, name: str) -> bool:
        entries = [entry.strip().lower().lstrip("*").lstrip(".") for entry in self._bypass.split(",")]
        return self._bypass == "*" or any(name == e or name.endswith("." + e) for e in entries if e)


def _parse_proxy(url: str) -> Optional[tuple[tuple[str, int], str]]:
    parts = urlsplit(url if "://" in url else "http://" + url)
    if not url or parts.scheme != "http" or not parts.hostname:
        return None
    header = ""
    if parts.username is not None:
        login = "%s:%s" % (unquote(parts.username), unquote(parts.password or ""))
        header = "Proxy-Authorization: Basic %s\r\n" % base64.b64encode(login.encode()).decode()
    return (parts.hostname, parts.port or 80), header


class _ProxyError(Exception):
    """The client gets this status and message."""


def serve(listener: socket.socket, route: dict[str, Any]) -> None:
    """Serve on `listener`. Never returns."""
    asyncio.new_event_loop().run_until_complete(_serve(listener, EgressRoutes(route, os.environ)))


async def _serve(listener: socket.socket, routes: EgressRoutes) -> None:
    listener.setblocking(False)
    connections: set[Any] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = object()
        connections.add(connection)
        try:
            if len(connections) > MAX_CONNECTIONS:
                raise _ProxyError("503 Service Unavailable", "There are %d connections already." % MAX_CONNECTIONS)
            host, port = await _read_request(reader)
            upstream = await _connect(routes, host, port)
            writer.write(_ESTABLISHED)
            await _forward((reader, writer), upstream)
        except _ProxyError as exc:
            status, message = exc.args
            body = (message + "\n").encode()
            headers = "HTTP/1.1 %s\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            writer.write((headers % (status, len(body))).encode() + body)
        except (OSError, EOFError, asyncio.TimeoutError):  # the client is gone or slow
            pass
        finally:
            connections.discard(connection)
            writer.close()

    await asyncio.start_server(handle, sock=listener, limit=_HEADERS_MAX_BYTES)
    while True:
        await asyncio.sleep(3600)


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, int]:
    try:
        headers = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEADERS_TIMEOUT_S)
    except asyncio.LimitOverrunError:
        raise _ProxyError("431 Request Header Fields Too Large", "The head of the request is too long.") from None
    match = _CONNECT.fullmatch(headers.split(b"\r\n", 1)[0])
    if match is None or not 0 < int(match.group(2)) <= 65_535:
        raise _ProxyError("400 Bad Request", "This proxy knows one request only: 'CONNECT HOST:PORT HTTP/1.1'.")
    return match.group(1).decode("ascii").strip("[]"), int(match.group(2))


async def _connect(routes: EgressRoutes, host: str, port: int) -> Streams:
    """Connect to a host. Retries a server that does not respond until the timeout, because it may be restarting."""
    address, header = routes.route(host, port)
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while True:
        timeout_s = deadline - time.monotonic()
        try:
            upstream = await asyncio.wait_for(asyncio.open_connection(*address), max(0.1, timeout_s))
            if header is not None:
                await asyncio.wait_for(_connect_through_proxy(upstream, host, port, header), CONNECT_TIMEOUT_S)
            return upstream
        except asyncio.TimeoutError:
            raise _ProxyError("504 Gateway Timeout", "%s:%d did not answer." % address) from None
        except (OSError, EOFError, asyncio.LimitOverrunError) as exc:
            if not routes.is_server(address) or timeout_s < _RETRY_INTERVAL_S:
                raise _ProxyError("502 Bad Gateway", "%s:%d can't be reached: %s." % (*address, exc)) from exc
            await asyncio.sleep(_RETRY_INTERVAL_S)


async def _connect_through_proxy(upstream: Streams, host: str, port: int, header: str) -> None:
    target = "[%s]:%d" % (host, port) if ":" in host else "%s:%d" % (host, port)
    upstream[1].write(("CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (target, target, header)).encode())
    response = await upstream[0].readuntil(b"\r\n\r\n")
    if response.split(b" ", 2)[1:2] != [b"200"]:
        upstream[1].close()
        raise _ProxyError("502 Bad Gateway", "The proxy of this machine does not let us through to %s." % target)


async def _forward(client: Streams, upstream: Streams) -> None:
    """Forward bytes in both directions until both have ended, or until one has and the other is idle."""
    tasks = [asyncio.ensure_future(_pump(client[0], upstream[1])), asyncio.ensure_future(_pump(upstream[0], client[1]))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(tasks, timeout=HALF_CLOSE_TIMEOUT_S)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        upstream[1].close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward one direction. A broken connection aborts the other one."""
    try:
        while True:
            data = await reader.read(_CHUNK_BYTES)
            if not data:
                break
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except (OSError, RuntimeError):  # RuntimeError: the other connection was closed in between
        writer.transport.abort()
