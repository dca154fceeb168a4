"""Connections that end, and heads that are bounded: uvicorn by itself would keep a silent connection for ever.

Requests for predictions that are like earlier ones leave uvicorn here, by the short way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trainshed.api.ml.fast_path import FastPath, FastPathExchange

if TYPE_CHECKING:
    from trainshed.api.app import Api

HEADER_S = 15  #: from the start of a connection, or the last answer on it, to the end of the next request's headers
BODY_S = 30.0  #: without a single byte of a body that is still to come, or of an answer that the client takes
LOOK_S = 5.0
HEAD_BYTES = 65_536
HEADERS = 100
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's own protocol, with a look every few seconds at whether the client goes on."""

    cycle: Any  # uvicorn's, or an `FastPathExchange`

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fast_path: FastPath = cast("Api", self.config.app).fast_path

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._heard = self._paused = self.loop.time()
        self._head, self._tail = 0, b""
        self._left = 0  #: bytes that the client had not taken at the last look
        self.waiter: asyncio.Future[Any] | None = None  #: gets None when the client goes away
        self.gone = False
        self._look: asyncio.TimerHandle = self.loop.call_later(LOOK_S, self._check)

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._heard = self.loop.time()
        elif self._head_too_large(data):
            self.transport.write(_TOO_LARGE)
            self.transport.close()
            return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._head, self._tail = 0, b""
        if len(self.headers) > HEADERS:
            raise ValueError("too many headers")  # the parser gives up, and uvicorn answers 400 and closes
        method, parser = self.parser.get_method(), self.parser
        target = self._fast_path.target(method, self.url, self.headers) if self._is_free() else None
        if target is None:
            self.scope["trainshed.client"] = self  # type: ignore[typeddict-unknown-key]  # ours, beside ASGI's own
            super().on_headers_complete()
            return
        keep_alive = parser.get_http_version() != "1.0" and parser.should_keep_alive()
        self.cycle = FastPathExchange(self, self._fast_path.predictions, target, keep_alive=keep_alive)

    def _is_free(self) -> bool:
        """Nothing is to be answered before this request, the client reads, and there is room for it."""
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
        """An exchange is over. The look that we take every few seconds ends a connection that stays idle."""
        if self.pipeline:
            self.on_response_complete()
        else:
            self._heard = self.loop.time()
            self.server_state.total_requests += 1

    def on_response_complete(self) -> None:
        self._heard = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._paused = self.loop.time()
        super().pause_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        self.gone = True
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        super().connection_lost(exc)

    @property
    def _between_requests(self) -> bool:
        """No request has all its headers yet and waits for its answer."""
        return self.cycle is None or self.cycle.response_complete

    def _head_too_large(self, data: bytes) -> bool:
        """Whether so much came without an end of the head. A piece in which it ends may be a body for the most part."""
        self._head += len(data)
        tail, self._tail = self._tail, (self._tail + data[-3:])[-3:]
        return self._head > HEAD_BYTES and b"\r\n\r\n" not in tail + data

    def _check(self) -> None:
        now = self.loop.time()
        stalled_body = self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete
        silent = now - self._heard
        if self.flow.write_paused:
            if (left := self.transport.get_write_buffer_size()) != self._left:
                self._left, self._paused = left, now
            elif now - self._paused > BODY_S:
                self.transport.abort()  # it does not read, so there is no way to end in peace
                return
        elif (self._between_requests and silent > HEADER_S) or (stalled_body and silent > BODY_S):
            self.transport.close()  # which waits for the client to take what is left
            self._look = self.loop.call_later(BODY_S, self.transport.abort)
            return
        self._look = self.loop.call_later(LOOK_S, self._check)
