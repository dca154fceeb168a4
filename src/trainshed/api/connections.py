"""Connections that end, and heads that are bounded: uvicorn by itself would keep a silent connection for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_S = 15  #: from the start of a connection, or the last answer on it, to the end of the next request's headers
BODY_S = 30.0  #: without a single byte of a body that is still to come, or of an answer that the client takes
LOOK_S = 5.0
HEAD_BYTES = 65_536
HEADERS = 100
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's own protocol, with a look every few seconds at whether the client goes on."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._heard = self._paused = self.loop.time()
        self._head, self._tail = 0, b""
        self.waiter: asyncio.Future[Any] | None = None  #: gets None when the client goes away
        self.gone = False
        self._look: asyncio.TimerHandle = self.loop.call_later(LOOK_S, self._check)

    def data_received(self, data: bytes) -> None:
        if not self._between_requests:
            self._heard = self.loop.time()
        elif self._head_too_large(data):
            self.transport.write(_TOO_LARGE)
            self.transport.close()
            return
        super().data_received(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > HEADERS:
            raise ValueError("too many headers")  # the parser gives up, and uvicorn answers 400 and closes

    def on_headers_complete(self) -> None:
        self._head, self._tail = 0, b""
        self.scope["trainshed.client"] = self  # type: ignore[typeddict-unknown-key]  # ours, beside ASGI's own
        super().on_headers_complete()

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
        seen = self._tail + data
        self._tail = seen[-3:]
        return self._head > HEAD_BYTES and b"\r\n\r\n" not in seen

    def _check(self) -> None:
        now = self.loop.time()
        if self.flow.write_paused and now - self._paused > BODY_S:
            self.transport.abort()  # it does not read, so there is no way to end in peace
            return
        stalled_body = self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete
        silent = now - self._heard
        if (self._between_requests and silent > HEADER_S) or (stalled_body and silent > BODY_S):
            self.transport.close()
            return
        self._look = self.loop.call_later(LOOK_S, self._check)
