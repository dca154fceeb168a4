"""Google's names on the server's own TLS port. A client that asks for one of them, as the relays of other machines lead
trainers to do, sees the certificate for it, and its requests are rewritten as those that come by the proxy are.

This leads nowhere else: what comes in is a request to this server, with a token or refused.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainshed.errors import InvalidArgumentError
from trainshed.proxy.google_hosts import NAMES, served_name
from trainshed.proxy.request_normalizer import RequestNormalizer


class SniContexts:
    """One context for each name, so that a connection's own context tells by which name it was opened."""

    def __init__(self, context: Callable[[], ssl.SSLContext]) -> None:
        self._contexts = {name: context() for name in NAMES}
        self._names = {context: name for name, context in self._contexts.items()}

    def choose(self, connection: ssl.SSLObject, asked: str | None, _: ssl.SSLContext) -> None:
        """To be told the name (SNI) that a client asks for; any name but Google's is left to the port's own context."""
        name = served_name(asked or "")
        if name is not None:
            connection.context = self._contexts[name]

    def name(self, transport: asyncio.Transport) -> str | None:
        """Google's name by which a connection was opened; None if it was another one, or none."""
        return self._names.get(transport.get_extra_info("ssl_object").context)


def intercept(transport: asyncio.Transport, inner: asyncio.Protocol, name: str) -> None:
    """From now on the connection is Google's, at this end; `inner` answers what was asked of it."""
    front = InterceptedConnection(inner, name)
    transport.set_protocol(front)
    front.begin(transport)


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


class _Spelled(bytes):
    """A header's name that stays as it is where uvicorn would make all letters small."""

    def lower(self) -> _Spelled:
        return self


#: TensorFlow looks for these two with exactly these letters, and takes an upload for failed without the first
_NAMES = {name.lower(): _Spelled(name) for name in (b"Location", b"Range")}


def with_header_case(app: ASGIApp) -> ASGIApp:
    """The same app, with capitals in the names of its answers' headers where TensorFlow needs them."""

    async def spelled_app(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_spelled(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(_NAMES.get(name, name), value) for name, value in message["headers"]]
                message = {**message, "headers": headers}
            await send(message)

        await app(scope, receive, send_spelled)

    return spelled_app
