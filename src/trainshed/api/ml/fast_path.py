"""Fast path of predictions: from the parsed headers of a request to the host, and from its response to the socket.

It creates no request object, no response object and no task. It serves a request only if the route in `predict` has
accepted the same URL and Host before, the token is cached and valid, and no limit of requests a second is reached.
Everything else takes the slow path, so there is one set of rules and only the route denies requests.
"""

from __future__ import annotations

import asyncio
import http
from collections.abc import Iterable, Sequence
from typing import Protocol, Self

from starlette.responses import Response
from starlette.types import Scope

from trainshed.api.http.auth import ANONYMOUS
from trainshed.api.http.bodies import CSV
from trainshed.api.http.responses import SECURITY_HEADERS, error_in_form, error_response
from trainshed.domain.iam import Access, Principal
from trainshed.errors import TrainshedError
from trainshed.gateway.gateway import Answer, FrameKind, InFlightRequest, PredictionGateway, unpack_infer
from trainshed.gateway.host_connection import Body
from trainshed.gateway.protocols.open_inference import JSON_LENGTH_HEADER, request_head
from trainshed.gateway.protocols.wire_forms import ERROR_FORMS, error_body
from trainshed.gateway.routes import PredictTarget

ACCESS = Access.PREDICT  #: that a prediction needs
_CSV = CSV.encode()
MAX_REMEMBERED = 10_000  #: URLs, and Hosts

Headers = Sequence[tuple[bytes, bytes]]

#: headers that affect whether or how a request is served, and that prediction requests rarely have
_SLOW_PATH_HEADERS = frozenset(
    {b"origin", b"sec-fetch-site", b"content-encoding", b"transfer-encoding", b"expect", b"upgrade"}
    | {b"x-http-method-override"}
)
_PHRASES = {status.value: status.phrase for status in http.HTTPStatus}
_STATUS_LINES = {status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode() for status in range(100, 600)}
_SECURITY_LINES = "".join(f"{name}: {value}\r\n" for name, value in SECURITY_HEADERS.items()).encode()
_JSON_LINES = b"content-type: application/json\r\n" + _SECURITY_LINES + b"content-length: %d\r\n"
_BINARY_LINES = (
    b"%b: %%d\r\n" % JSON_LENGTH_HEADER.encode()
    + b"content-type: application/octet-stream\r\n"
    + _SECURITY_LINES
    + b"content-length: %d\r\n"
)
_COPY_MAX_BYTES = 1024  #: bytes; shorter chunks are copied together
_RETRY_LINES = {429: b"retry-after: 1\r\n", 503: b"retry-after: 1\r\n"}


class KnownTokens(Protocol):
    def known(self, secret: str) -> Principal | None:
        """Return who holds a token. Returns None if that must be looked up."""


class KnownRates(Protocol):
    def take(self, project: str, holder: Principal) -> bool:
        """Count a request. Returns False if it is beyond a limit, or that must be looked up."""


class FastPathServices(Protocol):
    """What the fast path needs of the server's services."""

    @property
    def tokens(self) -> KnownTokens: ...

    @property
    def rates(self) -> KnownRates: ...

    @property
    def predictions(self) -> PredictionGateway: ...


class FastPath:
    """Recognizes requests that the route has accepted before."""

    def __init__(self, services: FastPathServices, *, authentication: bool, body_limit: int) -> None:
        self._services = services
        self._authentication = authentication
        self._body_limit = body_limit
        self._targets: dict[bytes, PredictTarget] = {}
        self._hosts: set[bytes] = set()

    @property
    def predictions(self) -> PredictionGateway:
        return self._services.predictions

    def remember(self, scope: Scope, target: PredictTarget) -> None:
        """Remember the URL and the Host of a request that the route has accepted. A URL with a token is not kept."""
        if any(name in scope["query_string"] for name in (b"access_token", b"oauth_token")):
            return
        query = scope["query_string"]
        self.learn(scope["raw_path"] + (b"?" + query if query else b""), dict(scope["headers"])[b"host"], target)

    def learn(self, url: bytes, host: bytes, target: PredictTarget) -> None:
        """Remember a URL and a Host that the route has accepted."""
        for cache in (self._targets, self._hosts):
            if len(cache) >= MAX_REMEMBERED:
                cache.clear()
        self._targets[url] = target
        self._hosts.add(host)

    def target(self, method: bytes, url: bytes, headers: Headers) -> PredictTarget | None:
        """Return the target of a request if the route would accept it and read its body.

        Returns None for the slow path.
        """
        target = self._targets.get(url)
        if target is None or method != b"POST":
            return None
        values = dict(headers)
        length = values.get(b"content-length", b"")
        if (
            len(values) != len(headers)
            or not _SLOW_PATH_HEADERS.isdisjoint(values)
            or values.get(b"host") not in self._hosts
            or not 0 < len(length) < 16
            or not length.isdigit()
            or values.get(b"content-type", b"").lower().startswith(_CSV)
            or int(length) > self._body_limit
        ):
            return None
        holder = self._holder(values.get(b"authorization", b"")) if self._authentication else ANONYMOUS
        if holder is None or not holder.may(ACCESS, target.project):
            return None
        return target if self._services.rates.take(target.project, holder) else None

    def _holder(self, authorization: bytes) -> Principal | None:
        """Return who sends a request, if the token is known."""
        if authorization[:7] != b"Bearer ":
            return None
        return self._services.tokens.known(authorization[7:].decode("latin-1"))


class ClientConnection(Protocol):
    """The connection of a client, as an exchange needs it."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    tasks: set[asyncio.Task[None]]
    headers: list[tuple[bytes, bytes]]  #: of the request

    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of every response."""

    def resume(self) -> None:
        """Resume reading."""

    def done(self) -> None:
        """Mark the response as written."""


class _BodyChunks:
    """The chunks of a request's body, in place of uvicorn's bytearray. They go to the host uncopied."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: list[bytes | bytearray] = []

    def __iadd__(self, chunk: bytes) -> Self:
        if len(chunk) >= _COPY_MAX_BYTES:
            self.chunks.append(chunk)
        elif self.chunks and isinstance(last := self.chunks[-1], bytearray):
            last += chunk  # a client that sends byte by byte does not cost an object per byte
        else:
            self.chunks.append(bytearray(chunk))
        return self

    def __len__(self) -> int:
        """Return 0, so that uvicorn does not pause reading: the whole body is needed, and its size is known."""
        return 0


class FastPathExchange:
    """One prediction request and its response.

    It takes the place of uvicorn's request cycle. It is also the event that uvicorn sets when more of the body arrives
    or the client disconnects.
    """

    __slots__ = (
        "_connection",
        "_predictions",
        "_request",
        "_target",
        "body",
        "disconnected",
        "keep_alive",
        "more_body",
        "response_complete",
        "waiter",
    )

    def __init__(
        self, connection: ClientConnection, predictions: PredictionGateway, target: PredictTarget, *, keep_alive: bool
    ) -> None:
        self._connection = connection
        self._predictions = predictions
        self._target = target
        self._request: InFlightRequest | None = None
        self.body = _BodyChunks()
        if target.kind == FrameKind.INFER:
            self.body.chunks.append(request_head(connection.headers))
        self.more_body = True
        self.waiter: asyncio.Future[Answer | None] | None = None
        self.disconnected = False
        self.response_complete = False
        self.keep_alive = keep_alive

    @property
    def message_event(self) -> FastPathExchange:
        return self

    @property
    def gone(self) -> bool:
        """The name in `RequestClient`."""
        return self.disconnected

    def set(self) -> None:
        """Handle a chunk, the end of the body, or a disconnect."""
        if self.disconnected:
            if self._request is not None and not self.response_complete:
                self._request.abandon()
            if self.waiter is not None and not self.waiter.done():
                self.waiter.set_result(None)
        elif self.more_body:
            self._connection.resume()
        elif self._request is None and not self.response_complete:
            self._send()

    def _send(self) -> None:
        try:
            self._request = self._predictions.try_send(self._target, self.body.chunks, self)
        except Exception as exc:  # noqa: BLE001  the edge: every error becomes a response
            self._send_error(exc)
            return
        body, self.body = self.body.chunks, _BodyChunks()  # frees the memory: the next request may take long to arrive
        if self._request is None:
            self._send_later(body)

    def _send_later(self, body: Body) -> None:
        """Send through a task: no host is connected."""
        task = self._connection.loop.create_task(self._wait(b"".join(body)))
        self._connection.tasks.add(task)
        task.add_done_callback(self._connection.tasks.discard)

    async def _wait(self, body: bytes) -> None:
        """Send through a task: the version is asleep or not connected, which takes a while."""
        try:
            response: Answer | None = await self._predictions.send(self._target, body, self)
        except Exception as exc:  # noqa: BLE001  as above
            self._send_error(exc)
            return
        if response is not None:
            self.answered(*response)

    def answered(self, status: int, body: bytes) -> None:
        if status >= 400 and (form := ERROR_FORMS.get(self._target.kind)) is not None:
            body = error_body(form, status, body)
        if status == 200 and self._target.kind == FrameKind.INFER:
            self._write_infer(body)
        else:
            self._write(status, (_JSON_LINES % len(body), _RETRY_LINES.get(status, b"")), body)

    def _write_infer(self, frame: bytes) -> None:
        length, body = unpack_infer(frame)
        lines = _JSON_LINES % len(body) if not length else _BINARY_LINES % (length, len(body))
        self._write(200, (lines,), body)

    def failed(self, exc: TrainshedError) -> None:
        self._send_error(exc)

    def _send_error(self, exc: Exception) -> None:
        response: Response = error_response(exc)
        if (form := ERROR_FORMS.get(self._target.kind)) is not None:
            response = error_in_form(response, form)
        response.headers.update(SECURITY_HEADERS)
        lines = [b"%b: %b\r\n" % header for header in response.raw_headers]
        self._write(response.status_code, lines, bytes(response.body))

    def _write(self, status: int, lines: Iterable[bytes], body: bytes | memoryview) -> None:
        self._request = None
        self.response_complete = True
        if self.disconnected or self._connection.transport.is_closing():
            return
        head = [
            _STATUS_LINES[status],
            *(b"%b: %b\r\n" % header for header in self._connection.default_headers()),
            *lines,
        ]
        if not self.keep_alive:
            head.append(b"connection: close\r\n")
        head.append(b"\r\n")
        self._connection.transport.writelines((b"".join(head), body))
        if not self.keep_alive:
            self._connection.transport.close()
        self._connection.done()
