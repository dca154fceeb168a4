"""Interception of Google's hosts: by SNI on the server's TLS port, and inside tunnels of the CONNECT proxy.

A client that asks for one of these hosts gets the certificate for it. Sidecar proxies of remote replicas connect this
way. Requests are normalized and then served by this server's own HTTP protocol. Nothing is forwarded to other hosts: a
request needs a token of this server or is refused.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainshed.errors import InvalidArgumentError
from trainshed.proxy.google_hosts import NAMES, served_name
from trainshed.proxy.request_normalizer import RequestNormalizer


class SniContexts:
    """One TLS context per intercepted host, so that a connection's context identifies its host."""

    def __init__(self, context: Callable[[], ssl.SSLContext]) -> None:
        self._contexts = {name: context() for name in NAMES}
        self._names = {context: name for name, context in self._contexts.items()}

    def choose(self, connection: ssl.SSLObject, server_name: str | None, _: ssl.SSLContext) -> None:
        """The SNI callback: selects the context of an intercepted host. Other names keep the port's own context."""
        name = served_name(server_name or "")
        if name is not None:
            connection.context = self._contexts[name]

    def name(self, transport: asyncio.Transport) -> str | None:
        """Return the intercepted host that a connection was opened for. Returns None if there is none."""
        return self._names.get(transport.get_extra_info("ssl_object").context)


class SniProtocol(asyncio.Protocol):
    """Hands a new TLS connection to a protocol of `own`, or to one of `inner` if its host is intercepted."""

    def __init__(
        self, contexts: SniContexts, own: Callable[[], asyncio.Protocol], inner: Callable[[], asyncio.Protocol]
    ) -> None:
        self._contexts = contexts
        self._own = own
        self._inner = inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        name = self._contexts.name(transport)
        if name is None:
            own = self._own()
            transport.set_protocol(own)
            own.connection_made(transport)
        else:
            connection = InterceptedConnection(self._inner(), name)
            transport.set_protocol(connection)
            connection.begin(transport)


def error_response(status: str, message: str) -> bytes:
    """Return a complete response in Google's error format. It closes the connection."""
    code = int(status.partition(" ")[0])
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
    return f"{head}\r\n\r\n".encode() + body


class InterceptedConnection(asyncio.Protocol):
    """Passes normalized requests to `inner`, which responds on the transport itself. `closed` is set at the end."""

    def __init__(self, inner: asyncio.Protocol, name: str) -> None:
        self._inner = inner
        self._normalizer = RequestNormalizer(name)
        self._early = b""  # data that arrives before `begin`, which `start_tls` allows
        self._transport: asyncio.Transport | None = None
        self._forwarded = False
        self._rejected = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, transport: asyncio.Transport) -> None:
        """Start serving on the established TLS transport."""
        if self.closed.done():  # the connection was lost already
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
        if self._rejected:
            return
        try:
            normalized = self._normalizer.feed(data)
        except InvalidArgumentError as exc:
            self._reject(self._transport, str(exc))
            return
        if normalized:
            self._forwarded = True
            self._inner.data_received(normalized)

    def _reject(self, transport: asyncio.Transport, message: str) -> None:
        self._rejected = True
        if not self._forwarded:  # otherwise a response may be in progress, and a second one inside it would be garbage
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


class _CasedName(bytes):
    """A header name that keeps its case where uvicorn lower-cases names."""

    def lower(self) -> _CasedName:
        return self


#: TensorFlow matches these two with case, and treats an upload without the first as failed
_CASED_NAMES = {name.lower(): _CasedName(name) for name in (b"Location", b"Range")}


def with_header_case(app: ASGIApp) -> ASGIApp:
    """Wrap an app so that its response headers have the case that TensorFlow needs."""

    async def cased_app(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_cased(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(_CASED_NAMES.get(name, name), value) for name, value in message["headers"]]
                message = {**message, "headers": headers}
            await send(message)

        await app(scope, receive, send_cased)

    return cased_app


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEnvironment:
    """The server's environment variables about the network and Google Cloud."""

    https_proxy: str = ""
    no_proxy: str = ""
    ca_files: tuple[Path, ...] = ()  #: CA bundles that programs on this machine trust
    has_google_credentials: bool = False

    @classmethod
    def read(cls, env: Mapping[str, str]) -> Self:
        bundles = [env[name] for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if env.get(name)]
        gcloud = Path(env.get("CLOUDSDK_CONFIG") or Path(env.get("HOME") or "/") / ".config" / "gcloud")
        return cls(
            https_proxy=env.get("https_proxy") or env.get("HTTPS_PROXY") or "",
            no_proxy=env.get("no_proxy") or env.get("NO_PROXY") or "",
            ca_files=tuple(dict.fromkeys(Path(path) for path in bundles)),
            has_google_credentials=bool(env.get("GOOGLE_APPLICATION_CREDENTIALS"))
            or (gcloud / "application_default_credentials.json").is_file(),
        )
