"""The connections of a relay: what it does for each that comes in."""

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

CONNECT_S = 20.0  #: also for a server that is being started again
HEAD_S = 15.0
LINGER_S = 300.0  #: for the other direction, once one has ended
CONNECTIONS = 500
_AGAIN_S = 0.5
_HEAD_LIMIT = 8192
_PIECE = 65_536
_HTTPS = 443
_CONNECT = re.compile(rb"CONNECT (\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):(\d{1,5}) HTTP/1\.[01]")
_GO_ON = b"HTTP/1.1 200 Connection established\r\n\r\n"


class EgressRoutes:
    """How connections to each host go: to the server, through this machine's own proxy, or directly."""

    def __init__(self, way: dict[str, Any], env: Any) -> None:
        self._server = (way["host"], way["port"])
        self._led = re.compile(way["names"])
        self._bypass = (env.get("no_proxy") or env.get("NO_PROXY") or "").strip()
        self._proxy = _proxy(env.get("https_proxy") or env.get("HTTPS_PROXY") or "")

    def place(self, host: str, port: int) -> tuple[tuple[str, int], Optional[str]]:
        """Whom to connect to, and how to introduce oneself to a proxy; None if there is none between."""
        if port == _HTTPS and self._led.fullmatch(host.lower()):
            return self._server, None
        if self._proxy is None or self._is_aside(host.lower()):
            return (host, port), None
        return self._proxy

    def leads(self, place: tuple[str, int]) -> bool:
        return place == self._server

    def _is_aside(self, name: str) -> bool:
        entries = [entry.strip().lower().lstrip("*").lstrip(".") for entry in self._bypass.split(",")]
        return self._bypass == "*" or any(name == e or name.endswith("." + e) for e in entries if e)


def _proxy(text: str) -> Optional[tuple[tuple[str, int], str]]:
    parts = urlsplit(text if "://" in text else "http://" + text)
    if not text or parts.scheme != "http" or not parts.hostname:
        return None
    given = ""
    if parts.username is not None:
        pair = "%s:%s" % (unquote(parts.username), unquote(parts.password or ""))
        given = "Proxy-Authorization: Basic %s\r\n" % base64.b64encode(pair.encode()).decode()
    return (parts.hostname, parts.port or 80), given


class _ProxyError(Exception):
    """The client gets this status and these words."""


def serve(listener: socket.socket, way: dict[str, Any]) -> None:
    """Answer on `listener` for ever."""
    asyncio.new_event_loop().run_until_complete(_serve(listener, EgressRoutes(way, os.environ)))


async def _serve(listener: socket.socket, way: EgressRoutes) -> None:
    listener.setblocking(False)
    open_now: set[Any] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mark = object()
        open_now.add(mark)
        try:
            if len(open_now) > CONNECTIONS:
                raise _ProxyError("503 Service Unavailable", "There are %d connections already." % CONNECTIONS)
            host, port = await _asked(reader)
            far = await _connect(way, host, port)
            writer.write(_GO_ON)
            await _join((reader, writer), far)
        except _ProxyError as exc:
            status, words = exc.args
            body = (words + "\n").encode()
            head = "HTTP/1.1 %s\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            writer.write((head % (status, len(body))).encode() + body)
        except (OSError, EOFError, asyncio.TimeoutError):  # the client is gone or slow; nobody is left to be told
            pass
        finally:
            open_now.discard(mark)
            writer.close()

    await asyncio.start_server(answer, sock=listener, limit=_HEAD_LIMIT)
    while True:
        await asyncio.sleep(3600)


async def _asked(reader: asyncio.StreamReader) -> tuple[str, int]:
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
    except asyncio.LimitOverrunError:
        raise _ProxyError("431 Request Header Fields Too Large", "The head of the request is too long.") from None
    match = _CONNECT.fullmatch(head.split(b"\r\n", 1)[0])
    if match is None or not 0 < int(match.group(2)) <= 65_535:
        raise _ProxyError("400 Bad Request", "This proxy knows one request only: 'CONNECT HOST:PORT HTTP/1.1'.")
    return match.group(1).decode("ascii").strip("[]"), int(match.group(2))


async def _connect(way: EgressRoutes, host: str, port: int) -> Streams:
    """A connection to that host. A server that does not answer is given time: it may be about to."""
    place, introduction = way.place(host, port)
    until = time.monotonic() + CONNECT_S
    while True:
        left = until - time.monotonic()
        try:
            far = await asyncio.wait_for(asyncio.open_connection(*place), max(0.1, left))
            if introduction is not None:
                await asyncio.wait_for(_ask(far, host, port, introduction), CONNECT_S)
            return far
        except asyncio.TimeoutError:
            raise _ProxyError("504 Gateway Timeout", "%s:%d did not answer." % place) from None
        except (OSError, EOFError, asyncio.LimitOverrunError) as exc:
            if not way.leads(place) or left < _AGAIN_S:
                raise _ProxyError("502 Bad Gateway", "%s:%d can't be reached: %s." % (*place, exc)) from exc
            await asyncio.sleep(_AGAIN_S)


async def _ask(far: Streams, host: str, port: int, introduction: str) -> None:
    at = "[%s]:%d" % (host, port) if ":" in host else "%s:%d" % (host, port)
    far[1].write(("CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (at, at, introduction)).encode())
    answer = await far[0].readuntil(b"\r\n\r\n")
    if answer.split(b" ", 2)[1:2] != [b"200"]:
        far[1].close()
        raise _ProxyError("502 Bad Gateway", "The proxy of this machine does not let us through to %s." % at)


async def _join(near: Streams, far: Streams) -> None:
    """Pass bytes both ways until both sides have ended, or one has and the other is silent."""
    pumps = [asyncio.ensure_future(_pump(near[0], far[1])), asyncio.ensure_future(_pump(far[0], near[1]))]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(pumps, timeout=LINGER_S)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        far[1].close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction. A connection that breaks takes the other side with it."""
    try:
        while True:
            data = await reader.read(_PIECE)
            if not data:
                break
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except (OSError, RuntimeError):  # the latter if the other side was closed in between
        writer.transport.abort()
