"""What uvicorn does not document is used in this module alone, and the versions that it was tested with are known here.

`TimedProtocol` is uvicorn's HTTP protocol with timeouts, bounded headers and a bounded number of connections: uvicorn
alone keeps a silent connection forever, and resets one whose request it refuses. Prediction requests that resemble an
accepted one leave uvicorn there and take the fast path. It is used with known versions alone. `Listener` is uvicorn's
server, and is used with any version.
"""

from __future__ import annotations

import asyncio
import random
import re
import shlex
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol, cast

import uvicorn

from trainshed.api.ml.fast_path import FastPath, FastPathExchange, Headers
from trainshed.api.unread_responses import UnreadResponses
from trainshed.connections import Connections, address_of
from trainshed.gateway.routes import PredictTarget

ProtocolFactory = Callable[..., asyncio.Protocol]

#: The first version that the protocol knows, and the first that it does not. `pyproject.toml` pins the same.
KNOWN_VERSIONS = {"uvicorn": ("0.54", "0.55"), "httptools": ("0.6.4", "0.10")}


def installed_versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in KNOWN_VERSIONS}


def unknown_versions(installed: Mapping[str, str]) -> str:
    """Return why the fast path is off, with the remedy. Returns "" if the protocol knows these versions."""
    if all(_numbers(low) <= _numbers(installed[name]) < _numbers(end) for name, (low, end) in KNOWN_VERSIONS.items()):
        return ""
    found = " and ".join(f"{name} {version}" for name, version in installed.items())
    known = [f"{name}>={low},<{end}" for name, (low, end) in KNOWN_VERSIONS.items()]
    return (
        f"The fast path of predictions is off, and clients that stall within a request are kept: that is known to work "
        f"with {' and '.join(known)}, and here are {found}. Run `pip install {shlex.join(known)}` in the environment "
        f"of the server, then `trainshed down` and `trainshed up`."
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


if TYPE_CHECKING or not unknown_versions(installed_versions()):
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
else:  # another version may not have it
    HttpToolsProtocol = asyncio.Protocol

#: Names that uvicorn does not document, by themselves or by what they hold. A test looks for each of them in the
#: installed uvicorn, and for uses of them elsewhere. These are of the server.
SERVER_NAMES = ("capture_signals", "started", "should_exit", "force_exit", "server_state.connections")

#: Of the configuration, once it is loaded.
CONFIG_NAMES = ("load", "loaded", "http_protocol_class")

#: Arguments of any of uvicorn's protocols, by name.
PROTOCOL_ARGUMENTS = ("config", "server_state", "app_state")

#: Of the HTTP protocol.
PROTOCOL_NAMES = (
    *("connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing"),
    *("shutdown", "send_400_response", "flow.drain", "flow.pause_reading"),
    *("on_headers_complete", "on_message_complete", "on_response_complete", "url", "headers", "scope", "cycle"),
    *("pipeline", "loop", "transport", "tasks", "server_state.default_headers"),
    *("_start_asgi_task", "expect_100_continue", "timeout_keep_alive"),
    *("server_state.total_requests", "flow.write_paused", "flow.resume_reading", "parser.get_method"),
    *("parser.get_http_version", "parser.should_keep_alive"),
)

#: Of uvicorn's request cycle, whose place a `FastPathExchange` takes.
CYCLE_NAMES = ("body", "more_body", "disconnected", "response_complete", "keep_alive", "message_event.set")

TLS_WRITE_BYTES = 65_536  #: of a response at a time, and the most that waits before a client is said not to read
#: Between two requests, once one had a token. Google's hosts keep connections as long, and httplib2 fails on a TLS
#: connection that was closed meanwhile: it does not connect again.
AUTHENTICATED_IDLE_TIMEOUT_S = 240
BODY_TIMEOUT_S = 30.0  #: without progress: no byte of a pending body arrives, or the client takes no byte of a response
UNAUTHENTICATED_BODY_TIMEOUT_S = 10.0  #: in total, for a body that comes without a valid token
UNAUTHENTICATED_BODY_BYTES_PER_S = 1000  #: least rate; what has arrived extends the timeout at this rate
MAX_UNAUTHENTICATED_BODY_TIMEOUT_S = 60.0
MAX_AWAITED_BODY_BYTES = 65_536  #: of a request without credentials, which begins when its body is complete
HALF_CLOSE_TIMEOUT_S = 10.0  #: for a client that still sends what was refused
MAX_UNREAD_BYTES = 128 << 20  #: that such a client may still send
CHECK_INTERVAL_S = 5.0
IDLE_SHUTDOWN_TIMEOUT_S = 0.2  #: for an idle client to close its side of a TLS connection when the server ends
MAX_HEADERS_BYTES = 65_536
MAX_HEADERS = 100
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Listener(uvicorn.Server):
    """One listener of the server. The process handles signals for all."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @property
    def is_ready(self) -> bool:
        """Whether it accepts connections, or has."""
        return self.started

    @property
    def connected(self) -> int:
        """The number of connections."""
        return len(self.server_state.connections)

    def stop(self, *, at_once: bool = False) -> None:
        """Let `serve` return when the responses in progress are sent, or without waiting for them."""
        self.should_exit = True
        self.force_exit = at_once

    def protocol(self, config: uvicorn.Config) -> asyncio.Protocol:
        """Create a protocol for a connection that others accepted. It ends with the connections of this listener."""
        if not config.loaded:
            config.load()
        create = cast("ProtocolFactory", config.http_protocol_class)
        return create(config=config, server_state=self.server_state, app_state={})


class ConnectionTaker(Protocol):
    """Processes that answer predictions too, and take connections on which such requests come."""

    def teach(self, url: bytes, headers: Headers, target: PredictTarget) -> bool:
        """Tell them of a request that the fast path takes. Returns False if they can't answer such requests now."""

    def give(self, transport: asyncio.Transport) -> bool:
        """Pass an idle connection. Returns False if nobody takes it. Callers do not read it any more, and abort it."""


class _HalfClosing:
    """A transport for uvicorn, whose `close` lets the client read the response to a request that it still sends.

    A socket that is closed with unread bytes is reset, and the reset overtakes the response. A write to TLS is split,
    so that its buffer, which can be measured, has what does not fit into the one below it, which can't.
    """

    def __init__(self, transport: asyncio.Transport, protocol: TimedProtocol) -> None:
        self._transport = transport
        self._protocol = weakref.ref(protocol)
        self.half_closed = False
        self.is_secure = transport.get_extra_info("ssl_object") is not None
        self.write = self._write_split if self.is_secure else transport.write
        self.writelines = self._writelines_split if self.is_secure else transport.writelines

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _write_split(self, data: bytes) -> None:
        write = self._transport.write
        if len(data) <= TLS_WRITE_BYTES:
            write(data)
            return
        view = memoryview(data)
        for start in range(0, len(view), TLS_WRITE_BYTES):
            write(view[start : start + TLS_WRITE_BYTES])
        protocol = self._protocol()
        if protocol is not None:
            protocol.written()

    def _writelines_split(self, lines: Iterable[bytes]) -> None:
        self._write_split(b"".join(lines))

    def is_closing(self) -> bool:
        return self.half_closed or self._transport.is_closing()

    def close(self) -> None:
        protocol = self._protocol()
        if protocol is None or not protocol.half_close():
            self._transport.close()


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a periodic check that the client makes progress."""

    cycle: Any  # uvicorn's, or a `FastPathExchange`

    def __init__(
        self,
        *args: Any,
        fast_path: FastPath,
        connections: Connections,
        unread: UnreadResponses,
        idle_shutdown_s: float = IDLE_SHUTDOWN_TIMEOUT_S,
        gateways: ConnectionTaker | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._fast_path = fast_path
        self._table = connections
        self.unread = unread
        self._idle_shutdown_s = idle_shutdown_s
        self._gateways = gateways
        self._is_for_gateways = False  #: whether they answer requests such as the last one

    def connection_made(self, transport: Any) -> None:
        self._half_closing = _HalfClosing(transport, self)
        if self._half_closing.is_secure:
            transport.set_write_buffer_limits(high=TLS_WRITE_BYTES)  # as that of a plain one
        super().connection_made(cast("asyncio.Transport", self._half_closing))
        self._last_active = self._last_written = self._began = self.loop.time()
        self._headers_size, self._last_bytes = 0, b""
        self._received = 0  #: bytes since the headers of the request
        self._incomplete = False  #: whether the rest of a request is to come, or of what was refused as one
        self.half_closed = False
        self._is_authenticated = False  #: whether a request on it had a token
        self._awaited: tuple[Any, Any] | None = None  #: the request that begins when its body is complete
        self._held: tuple[Any, Any] | None = None  #: the request that begins when earlier responses are read
        self._unwritten = 0  #: bytes in the write buffer at the last check
        self.waiter: asyncio.Future[Any] | None = None  #: resolves to None when the client disconnects
        self.gone = False
        # connections that were opened together are not closed together
        first_check_s = CHECK_INTERVAL_S * random.random()  # noqa: S311  nobody gains by guessing it
        self._check_timer: asyncio.TimerHandle = self.loop.call_later(first_check_s, self._check)
        if not self._table.add(self, address_of(transport)):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self.half_closed or (self._incomplete and self._between_requests):  # nobody reads this body any more
            if self._received > MAX_UNREAD_BYTES:
                self.transport.abort()
                return
            if self.half_closed:
                return
        elif not self._between_requests:
            self._last_active = self.loop.time()
        elif self._head_too_large(data):
            self._incomplete = True
            self.transport.write(_TOO_LARGE)
            self.transport.close()
            return
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        self._incomplete = True  # more of the same is to come
        super().send_400_response(msg)

    def on_headers_complete(self) -> None:
        self._headers_size, self._last_bytes = 0, b""
        if len(self.headers) > MAX_HEADERS:
            raise ValueError("too many headers")  # the parser stops, and uvicorn responds with 400 and closes
        self._began, self._received, self._incomplete = self.loop.time(), 0, True
        self._table.use(self)
        method, parser = self.parser.get_method(), self.parser
        target = self._fast_path.target(method, self.url, self.headers) if self._is_free() else None
        if target is None:
            self.scope["trainshed.client"] = self  # type: ignore[typeddict-unknown-key]  # not an ASGI key
            super().on_headers_complete()
            return
        self.set_authenticated()
        if self._gateways is not None:
            self._is_for_gateways = self._gateways.teach(self.url, self.headers, target)
        keep_alive = parser.get_http_version() != "1.0" and parser.should_keep_alive()
        self.cycle = FastPathExchange(self, self._fast_path.predictions, target, keep_alive=keep_alive)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Begin a request, if the client reads its responses.

        One without credentials costs nothing but its memory until its body is complete.
        """
        if self.flow.write_paused:
            self._held = cycle, app
        elif cycle is self.cycle and cycle.more_body and self._is_awaited():
            self._awaited = cycle, app
        else:
            super()._start_asgi_task(cycle, app)

    def _is_awaited(self) -> bool:
        """Return whether a request has a short body and nothing that could be a token."""
        if self.expect_100_continue:  # its body is sent when it is asked for
            return False
        names = dict(self.headers)
        length = names.get(b"content-length", b"")
        return (
            b"authorization" not in names
            and b"cookie" not in names
            and length.isdigit()
            and 0 < int(length[:9]) <= MAX_AWAITED_BODY_BYTES
        )

    def on_message_complete(self) -> None:
        self._incomplete = False
        super().on_message_complete()
        if self._awaited is not None:
            awaited, self._awaited = self._awaited, None
            super()._start_asgi_task(*awaited)

    def set_authenticated(self) -> None:
        """Note that the request has a token."""
        self._is_authenticated = True
        self.timeout_keep_alive = max(self.timeout_keep_alive, AUTHENTICATED_IDLE_TIMEOUT_S)
        self._table.set_authenticated(self)

    @property
    def is_idle(self) -> bool:
        """Whether no response is due. Without a token, also while the request is incomplete."""
        if self._is_authenticated:
            return self._between_requests and not self.transport.get_write_buffer_size()
        return self._between_requests or self._incomplete

    def evict(self) -> None:
        self.transport.abort()

    def half_close(self) -> bool:
        """Send no more, and discard what arrives for a while. Returns False if the client is to send nothing more."""
        if self.half_closed or not self._incomplete or self.gone or self.transport.is_closing():
            return self.half_closed
        self.half_closed = self._half_closing.half_closed = True
        if self.cycle is not None and not self.cycle.response_complete:  # refused for what came behind its request
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._received = 0
        if self.transport.can_write_eof():  # not with TLS: the client closes then
            self.transport.write_eof()
        self.flow.resume_reading()
        self._check_timer.cancel()
        self._check_timer = self.loop.call_later(HALF_CLOSE_TIMEOUT_S, self.transport.abort)
        return True

    def _is_free(self) -> bool:
        """Return whether no earlier response is due, and the client reads."""
        return self._between_requests and not self.flow.write_paused

    def default_headers(self) -> list[tuple[bytes, bytes]]:
        return self.server_state.default_headers

    def resume(self) -> None:
        self.flow.resume_reading()

    def done(self) -> None:
        """End an exchange. The periodic check closes a connection that stays idle."""
        if self.pipeline:
            self.on_response_complete()
        else:
            self._last_active = self.loop.time()
            self.server_state.total_requests += 1
            if self._gateways is not None and self._is_for_gateways:
                self.loop.call_soon(self._give, self._gateways)

    def _give(self, gateways: ConnectionTaker) -> None:
        """Let a gateway go on with this connection, if nothing of a further request has been read."""
        is_at_start = self._between_requests and self.headers and not self._headers_size
        if not is_at_start or not self.is_idle or self.transport.is_closing():
            return
        self.flow.pause_reading()
        if gateways.give(self.transport):
            self.transport.abort()
        else:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        self._last_active = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._last_written = self.loop.time()
        super().pause_writing()
        self.unread.update(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.unread.remove(self)
        if self._held is not None:
            held, self._held = self._held, None
            self._start_asgi_task(*held)

    def written(self) -> None:
        """Note that a large response was written in pieces."""
        if self.flow.write_paused and not self.gone:
            self.unread.update(self)

    def unread_bytes(self) -> int:
        """Return what waits in memory for the client, with what TLS may have encrypted at most."""
        return self.transport.get_write_buffer_size() + (2 * TLS_WRITE_BYTES if self._half_closing.is_secure else 0)

    async def drained(self) -> None:
        """Wait until the client has read nearly all that was written, or is gone."""
        await self.flow.drain()

    def connection_lost(self, exc: Exception | None) -> None:
        self._check_timer.cancel()
        self._table.remove(self)
        self.unread.remove(self)
        self._held = None
        self.gone = True
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        super().connection_lost(exc)
        self._awaited = None
        self.cycle = self.scope = None  # type: ignore[assignment]  # they refer to it, and nothing is to wait for gc

    def shutdown(self) -> None:
        idle = self._between_requests and not self.transport.get_write_buffer_size()
        if self.half_closed or self._awaited is not None:
            self.transport.abort()
            return
        super().shutdown()
        if idle:  # its client may not read that the connection ends, and TLS waits for it
            self.loop.call_later(self._idle_shutdown_s, self.transport.abort)

    @property
    def _between_requests(self) -> bool:
        """Whether no request with complete headers waits for its response."""
        return self.cycle is None or self.cycle.response_complete

    def _head_too_large(self, data: bytes) -> bool:
        """Return whether the headers exceed the limit without an end. A chunk in which they end may be mostly body."""
        self._headers_size += len(data)
        tail, self._last_bytes = self._last_bytes, (self._last_bytes + data[-3:])[-3:]
        return self._headers_size > MAX_HEADERS_BYTES and b"\r\n\r\n" not in tail + data

    def _check(self) -> None:
        now = self.loop.time()
        idle_s = now - self._last_active
        if self.flow.write_paused:
            if (unwritten := self.transport.get_write_buffer_size()) != self._unwritten:
                self._unwritten, self._last_written = unwritten, now
            elif now - self._last_written > BODY_TIMEOUT_S:
                self.transport.abort()  # the client does not read, so a graceful close is impossible
                return
        elif (self._between_requests and idle_s > self.timeout_keep_alive) or self._stalls(now):
            self._incomplete = False
            self.transport.close()  # which waits for the client to take the rest
            self._check_timer = self.loop.call_later(BODY_TIMEOUT_S, self.transport.abort)
            return
        self._check_timer = self.loop.call_later(CHECK_INTERVAL_S, self._check)

    def _stalls(self, now: float) -> bool:
        """Return whether the body takes too long: in a pause or, if nobody has shown a token, in total."""
        if self._between_requests or not self.cycle.more_body:
            return False
        if now - self._last_active > BODY_TIMEOUT_S:
            return True
        allowed_s = UNAUTHENTICATED_BODY_TIMEOUT_S + self._received / UNAUTHENTICATED_BODY_BYTES_PER_S
        return not self._is_authenticated and now - self._began > min(allowed_s, MAX_UNAUTHENTICATED_BODY_TIMEOUT_S)
