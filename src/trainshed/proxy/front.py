"""What stands between a TLS connection that was meant for Google and the server's own HTTP protocol."""

from __future__ import annotations

import asyncio
import json

from trainshed.errors import InvalidArgumentError
from trainshed.proxy.request_normalizer import RequestNormalizer


def error_response(status: str, message: str) -> bytes:
    """A whole answer with a sentence in it, in the form in which Google's clients show it. It is the last one."""
    code = int(status.partition(" ")[0])
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
    return f"{head}\r\n\r\n".encode() + body


class InterceptedConnection(asyncio.Protocol):
    """Hands clean requests to `inner`, which answers on the connection itself. Done when `closed` is."""

    def __init__(self, inner: asyncio.Protocol, name: str) -> None:
        self._inner = inner
        self._cleaner = RequestNormalizer(name)
        self._early = b""  # what came before we were told of the connection, which `start_tls` doesn't rule out
        self._transport: asyncio.Transport | None = None
        self._passed = False
        self._refused = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, transport: asyncio.Transport) -> None:
        """The TLS connection stands."""
        if self.closed.done():  # it did, for a moment
            return
        self._transport = transport
        self._inner.connection_made(transport)
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            self._early += data
            return
        if self._refused:
            return
        try:
            clean = self._cleaner.feed(data)
        except InvalidArgumentError as exc:
            self._refuse(self._transport, str(exc))
            return
        if clean:
            self._passed = True
            self._inner.data_received(clean)

    def _refuse(self, transport: asyncio.Transport, message: str) -> None:
        self._refused = True
        if not self._passed:  # else an answer may be on its way, and a second one in the middle of it says nothing
            transport.write(error_response("400 Bad Request", message))
        transport.close()

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._transport is not None else None

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._inner.connection_lost(exc)
        if not self.closed.done():
            self.closed.set_result(None)
