"""A client's connection in a gateway process: predictions that the fast path takes are answered here.

Everything else goes to the server, with the connection itself: whatever is not a plain prediction request is
passed on byte by byte. So there is one set of rules, and only the server denies requests.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from itertools import islice
from typing import Any, cast

from trainshed.api.gateways.channel import ConnectionChannel
from trainshed.api.ml.fast_path import FastPath, FastPathExchange, Headers
from trainshed.api.unread_responses import UnreadResponses
from trainshed.connections import Connections, address_of
from trainshed.gateway.host_connection import Body
from trainshed.gateway.routes import PredictTarget

LOG = logging.getLogger("trainshed.api")
MAX_HEAD_BYTES = 65_536
MAX_HEADERS = 100
MAX_WAITING_BYTES = 65_536  #: that a client may send ahead of a response
HEAD_TIMEOUT_S = 15.0  #: of a connection's first request
IDLE_TIMEOUT_S = 240.0  #: between two requests: a request that is answered here has a token
PROGRESS_TIMEOUT_S = 30.0  #: without a byte of a body, or without a byte of a response taken
FLUSH_INTERVAL_S = 0.01  #: until what was written has left, before a connection is passed on
_END = b"\r\n\r\n"
_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def read_head(head: bytes) -> tuple[bytes, bytes, list[tuple[bytes, bytes]]] | None:
    """Return method, URL and headers of a request of HTTP/1.1. Returns None for any unusual form."""
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or words[2] != b"HTTP/1.1" or len(lines) > MAX_HEADERS or b"\n" in head.replace(b"\r\n", b""):
        return None
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or not _TOKEN.issuperset(name) or b"\r" in value or b"\0" in value:
            return None
        headers.append((name.lower(), value.strip(b" \t")))
    return words[0], words[1], headers


class DateHeader:
    """The header that every response has, made once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._headers: list[tuple[bytes, bytes]] = []

    def headers(self) -> list[tuple[bytes, bytes]]:
        if (now := int(time.time())) != self._second:
            self._second = now
            self._headers = [(b"date", formatdate(now, usegmt=True).encode())]
        return self._headers


class GatewayExchange(FastPathExchange):
    """A request goes to the server if its version has no connected host, or has shadow traffic: only that mirrors."""

    __slots__ = ()

    _connection: GatewayClient  # the only kind of connection here

    def _send_later(self, body: Body) -> None:
        self.response_complete = True
        self._connection.pass_on()


class ClientConnections:
    """The open connections of a gateway process, and what they share. Event loop only."""

    def __init__(
        self, fast_path: FastPath, server: ConnectionChannel, connections: Connections, unread: UnreadResponses
    ) -> None:
        self.fast_path = fast_path
        self.server = server
        self.table = connections
        self.unread = unread
        self.date = DateHeader()
        self.open: set[GatewayClient] = set()
        self.is_stopping = False
        self.on_empty: Callable[[], None] = lambda: None
        self._adopting: set[asyncio.Task[Any]] = set()

    def create(self) -> GatewayClient:
        return GatewayClient(self)

    def adopt(self, client: socket.socket, read: bytes) -> None:
        """Serve a connection that the server passes after a prediction, with nothing read of its next request."""
        assert not read
        client.setblocking(False)
        adopted = asyncio.get_running_loop().connect_accepted_socket(
            partial(GatewayClient, self, is_authenticated=True), client
        )
        task = asyncio.ensure_future(adopted)
        self._adopting.add(task)
        task.add_done_callback(self._adopted)

    def _adopted(self, task: asyncio.Task[Any]) -> None:
        self._adopting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.debug("connection.dropped reason=%r", error)  # its client is gone

    def pass_idle(self, number: int) -> None:
        """Pass connections on which nothing is going on to the server."""
        idle = (each for each in tuple(self.open) if each.may_move)
        for connection in islice(idle, number):
            connection.pass_on()

    def stop(self) -> None:
        """Close idle connections now, and the others after their responses."""
        self.is_stopping = True
        for connection in tuple(self.open):
            connection.stop()
        self.closed(None)

    def closed(self, connection: GatewayClient | None) -> None:
        if connection is not None:
            self.open.discard(connection)
        if self.is_stopping and not self.open:
            self.on_empty()

    def check(self) -> None:
        """Close the connections whose clients do nothing."""
        now = asyncio.get_running_loop().time()
        for connection in tuple(self.open):
            connection.check(now)


class GatewayClient(asyncio.Protocol):
    """Answers one request after the other. Event loop only."""

    def __init__(self, shared: ClientConnections, *, is_authenticated: bool = False) -> None:
        """`is_authenticated` says that the server has answered a request with a token on it."""
        self._shared = shared
        self.loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[None]] = set()
        self.headers: list[tuple[bytes, bytes]] = []
        self.transport: asyncio.Transport
        self._waiting = bytearray()  #: what was read and belongs to no request yet
        self._request: list[bytes] = []  #: the bytes of the request in progress, to pass it on
        self._left = 0  #: bytes of its body that are to come
        self._exchange: GatewayExchange | None = None
        self._reads = True
        self._writes = True
        self._is_authenticated = is_authenticated
        self._is_leaving = False
        self._active_s = self.loop.time()
        self._unwritten = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._shared.open.add(self)
        if self._shared.is_stopping or not self._shared.table.add(self, address_of(transport)):
            self.transport.abort()
        if self._is_authenticated:
            self._shared.table.set_authenticated(self)

    def data_received(self, data: bytes) -> None:
        if self._exchange is not None and self._left:
            self._active_s = self.loop.time()
            data = self._add_body(data)
        if data:
            self._waiting += data
            self._next()

    def eof_received(self) -> None:
        """The transport closes: a client that has ended its side waits for nothing."""

    def _next(self) -> None:
        """Begin the next request, if the one before has its response and the client reads."""
        if self._exchange is not None or self._is_leaving or not self._writes or self.transport.is_closing():
            if len(self._waiting) > MAX_WAITING_BYTES or self._is_leaving:
                self._pause()
            return
        end = self._waiting.find(_END)
        if end < 0:
            if self._is_doubtful():
                self.pass_on()
            return
        parsed = read_head(bytes(self._waiting[:end]))
        target = None if parsed is None else self._target(*parsed)
        if parsed is None or target is None:
            self.pass_on()
            return
        self._begin(target, parsed[2], end + len(_END))

    def _is_doubtful(self) -> bool:
        """Return whether what has arrived can't become a request for here, as far as it goes."""
        return len(self._waiting) > MAX_HEAD_BYTES or self._waiting[:5] != b"POST "[: len(self._waiting)]

    def _target(self, method: bytes, url: bytes, headers: Headers) -> PredictTarget | None:
        return self._shared.fast_path.target(method, url, headers)

    def _begin(self, target: PredictTarget, headers: list[tuple[bytes, bytes]], size: int) -> None:
        self._shared.table.use(self)
        self._shared.table.set_authenticated(self)
        self.headers = headers
        values = dict(headers)
        keep_alive = b"close" not in values.get(b"connection", b"").lower() and not self._shared.is_stopping
        self._exchange = GatewayExchange(self, self._shared.fast_path.predictions, target, keep_alive=keep_alive)
        self._left = int(values[b"content-length"])
        self._request = [bytes(self._waiting[:size])]
        rest, self._waiting = bytes(self._waiting[size:]), bytearray()
        if rest or not self._left:
            rest = self._add_body(rest)
        self._waiting += rest

    def _add_body(self, data: bytes) -> bytes:
        """Add to the body of the request. Returns what follows it."""
        exchange = self._exchange
        assert exchange is not None  # callers have begun one
        part, rest = (data, b"") if len(data) <= self._left else (data[: self._left], data[self._left :])
        self._left -= len(part)
        if part:
            exchange.body += part
            self._request.append(part)
        if not self._left:
            exchange.more_body = False
            self._waiting += rest  # before the request may be passed on with it
            exchange.set()
            return b""
        return rest

    def pass_on(self) -> None:
        """Let the server go on with this connection, from the first byte of the request in progress."""
        read = b"".join((*self._request, self._waiting))
        self._request, self._waiting, self._exchange = [], bytearray(read), None
        self._is_leaving = True
        self._pause()
        if self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size():
            self.loop.call_later(FLUSH_INTERVAL_S, self.pass_on)
            return
        self._shared.server.send(self.transport.get_extra_info("socket").fileno(), read)
        self.transport.abort()

    def _pause(self) -> None:
        if self._reads and not self.transport.is_closing():
            self._reads = False
            self.transport.pause_reading()

    def resume(self) -> None:
        if not self._reads and not self.transport.is_closing():
            self._reads = True
            self.transport.resume_reading()

    def default_headers(self) -> list[tuple[bytes, bytes]]:
        return self._shared.date.headers()

    def done(self) -> None:
        """Go on with the next request: the response is written."""
        self._exchange, self._request, self._is_authenticated = None, [], True
        self._active_s = self.loop.time()
        if self._shared.is_stopping:
            self.transport.close()
            return
        self.resume()
        if self._waiting:
            self.loop.call_soon(self._next)

    def pause_writing(self) -> None:
        self._writes, self._active_s = False, self.loop.time()
        self._shared.unread.update(self)

    def resume_writing(self) -> None:
        self._writes = True
        self._shared.unread.remove(self)
        if self._exchange is None and not self._is_leaving:
            self.resume()
            self._next()

    def unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.table.remove(self)
        self._shared.unread.remove(self)
        exchange, self._exchange = self._exchange, None
        if exchange is not None and not exchange.response_complete:
            exchange.disconnected = True
            exchange.set()
        self._shared.closed(self)

    @property
    def is_idle(self) -> bool:
        return self._exchange is None and not self._is_leaving and not self.transport.get_write_buffer_size()

    @property
    def may_move(self) -> bool:
        """Whether a prediction was answered on it, and nothing of another request has come."""
        return self._is_authenticated and self.is_idle and not self._waiting and not self.transport.is_closing()

    def evict(self) -> None:
        self.transport.abort()

    def stop(self) -> None:
        """Close the connection, after the response to a request in progress."""
        if self._exchange is None:
            self.transport.close()
        else:
            self._exchange.keep_alive = False

    def check(self, now: float) -> None:
        """Close a connection whose client sends or reads nothing for too long."""
        silent_s = now - self._active_s
        if not self._writes:
            if (unwritten := self.transport.get_write_buffer_size()) != self._unwritten:
                self._unwritten, self._active_s = unwritten, now
            elif silent_s > PROGRESS_TIMEOUT_S:
                self.transport.abort()
        elif self._exchange is not None:
            if self._left and silent_s > PROGRESS_TIMEOUT_S:
                self.transport.close()
        elif silent_s > (IDLE_TIMEOUT_S if self._is_authenticated else HEAD_TIMEOUT_S):
            self.transport.close()
