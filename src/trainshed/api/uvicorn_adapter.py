"""What uvicorn does not document is used in this module alone, and the versions that it was tested with are known here.

`TimedProtocol` is uvicorn's HTTP protocol with timeouts and bounded headers: uvicorn alone keeps a silent connection
forever. Prediction requests that resemble an accepted one leave uvicorn there and take the fast path. It is used with
known versions alone. `Listener` is uvicorn's server, and is used with any version.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, cast

import uvicorn

from trainshed.api.ml.fast_path import FastPath, FastPathExchange

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
SERVER_NAMES = ("capture_signals", "config", "started", "should_exit", "force_exit", "server_state.connections")

#: Of the configuration, once it is loaded.
CONFIG_NAMES = ("load", "loaded", "http_protocol_class", "ssl")

#: Arguments of any of uvicorn's protocols, by name.
PROTOCOL_ARGUMENTS = ("config", "server_state", "app_state")

#: Of the HTTP protocol.
PROTOCOL_NAMES = (
    *("connection_made", "connection_lost", "data_received", "pause_writing", "shutdown"),
    *("on_headers_complete", "on_response_complete", "url", "headers", "scope", "cycle", "pipeline", "config"),
    *("loop", "transport", "tasks", "connections", "limit_concurrency", "server_state.default_headers"),
    *("server_state.total_requests", "flow.write_paused", "flow.resume_reading", "parser.get_method"),
    *("parser.get_http_version", "parser.should_keep_alive"),
)

#: Of uvicorn's request cycle, whose place a `FastPathExchange` takes.
CYCLE_NAMES = ("body", "more_body", "disconnected", "response_complete", "keep_alive", "message_event.set")

BODY_TIMEOUT_S = 30.0  #: without progress: no byte of a pending body arrives, or the client takes no byte of a response
CHECK_INTERVAL_S = 5.0
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

    def choose_by_sni(
        self,
        callback: Callable[[ssl.SSLObject, str | None, ssl.SSLContext], None],
        choose: Callable[[Callable[[], asyncio.Protocol]], asyncio.Protocol],
    ) -> None:
        """Set the SNI callback of a TLS listener. `choose` creates its protocols, and gets the factory of its own."""
        self.config.load()
        create_own = cast("ProtocolFactory", self.config.http_protocol_class)

        def create(**options: Any) -> asyncio.Protocol:
            return choose(partial(create_own, **options))

        self.config.http_protocol_class = cast("type[asyncio.Protocol]", create)
        assert self.config.ssl is not None
        self.config.ssl.sni_callback = callback


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a periodic check that the client makes progress."""

    cycle: Any  # uvicorn's, or a `FastPathExchange`

    def __init__(self, *args: Any, fast_path: FastPath, idle_shutdown_s: float | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fast_path = fast_path
        self._idle_shutdown_s = idle_shutdown_s

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._last_active = self._last_written = self.loop.time()
        self._headers_size, self._last_bytes = 0, b""
        self._unwritten = 0  #: bytes in the write buffer at the last check
        self.waiter: asyncio.Future[Any] | None = None  #: resolves to None when the client disconnects
        self.gone = False
        self._check_timer: asyncio.TimerHandle = self.loop.call_later(CHECK_INTERVAL_S, self._check)

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._last_active = self.loop.time()
        elif self._head_too_large(data):
            self.transport.write(_TOO_LARGE)
            self.transport.close()
            return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._headers_size, self._last_bytes = 0, b""
        if len(self.headers) > MAX_HEADERS:
            raise ValueError("too many headers")  # the parser stops, and uvicorn responds with 400 and closes
        method, parser = self.parser.get_method(), self.parser
        target = self._fast_path.target(method, self.url, self.headers) if self._is_free() else None
        if target is None:
            self.scope["trainshed.client"] = self  # type: ignore[typeddict-unknown-key]  # not an ASGI key
            super().on_headers_complete()
            return
        keep_alive = parser.get_http_version() != "1.0" and parser.should_keep_alive()
        self.cycle = FastPathExchange(self, self._fast_path.predictions, target, keep_alive=keep_alive)

    def _is_free(self) -> bool:
        """Return whether no earlier response is due, the client reads, and there is capacity."""
        return (
            self._between_requests
            and not self.flow.write_paused
            and len(self.connections) < (self.limit_concurrency or 0)
        )

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

    def on_response_complete(self) -> None:
        self._last_active = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._last_written = self.loop.time()
        super().pause_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._check_timer.cancel()
        self.gone = True
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        idle = self._between_requests
        super().shutdown()
        if idle and self._idle_shutdown_s is not None:  # an idle client may not read that its connection ends
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
        stalled_body = self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete
        idle_s = now - self._last_active
        if self.flow.write_paused:
            if (unwritten := self.transport.get_write_buffer_size()) != self._unwritten:
                self._unwritten, self._last_written = unwritten, now
            elif now - self._last_written > BODY_TIMEOUT_S:
                self.transport.abort()  # the client does not read, so a graceful close is impossible
                return
        elif (self._between_requests and idle_s > self.config.timeout_keep_alive) or (
            stalled_body and idle_s > BODY_TIMEOUT_S
        ):
            self.transport.close()  # which waits for the client to take the rest
            self._check_timer = self.loop.call_later(BODY_TIMEOUT_S, self.transport.abort)
            return
        self._check_timer = self.loop.call_later(CHECK_INTERVAL_S, self._check)
