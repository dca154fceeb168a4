"""The short way of predictions: from the parsed head of a request to the host, and from its answer to the socket.

It makes no request object, no response object and no task. It takes only what the route in `predict` has let through
before, as far as URL and Host go, with a token that is known and good at this moment, and leaves everything else to
the route: so there is one set of rules, and whatever is refused is refused there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from starlette.responses import Response
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from trainshed.api.http.responses import SECURITY_HEADERS, error_response
from trainshed.domain.iam import Access
from trainshed.errors import TrainshedError
from trainshed.gateway.gateway import Answer, InFlightRequest, PredictionGateway
from trainshed.gateway.routes import PredictTarget

if TYPE_CHECKING:
    from trainshed.services.registry import Services

ACCESS = Access.READ  #: what a prediction needs
REMEMBERED = 10_000  #: URLs, and Hosts

Headers = Sequence[tuple[bytes, bytes]]

#: headers that have a say in whether or how a request goes on, and that requests for predictions rarely have
_LEFT_TO_THE_ROUTE = frozenset(
    {b"origin", b"sec-fetch-site", b"content-encoding", b"transfer-encoding", b"expect", b"upgrade"}
)
_ALWAYS = "".join(f"{name}: {value}\r\n" for name, value in SECURITY_HEADERS.items()).encode()
_JSON = b"content-type: application/json\r\n" + _ALWAYS + b"content-length: %d\r\n"
_SHORT = 1024  #: bytes of a piece that is worth a copy
_RETRY = {429: b"retry-after: 1\r\n", 503: b"retry-after: 1\r\n"}


class FastPath:
    """Knows requests that are like earlier ones."""

    def __init__(self, services: Services, *, authentication: bool, body_limit: int) -> None:
        self._services = services
        self._authentication = authentication
        self._body_limit = body_limit
        self._targets: dict[bytes, PredictTarget] = {}
        self._hosts: set[bytes] = set()

    @property
    def predictions(self) -> PredictionGateway:
        return self._services.predictions

    def remember(self, scope: Scope, target: PredictTarget) -> None:
        """The route has let this request through: its URL means this target, and its Host is one of ours."""
        for known in (self._targets, self._hosts):
            if len(known) >= REMEMBERED:
                known.clear()
        query = scope["query_string"]
        self._targets[scope["raw_path"] + (b"?" + query if query else b"")] = target
        self._hosts.add(dict(scope["headers"])[b"host"])

    def target(self, method: bytes, url: bytes, headers: Headers) -> PredictTarget | None:
        """What a request asks for, if the route would let it through and read its body; else None: ask the route."""
        target = self._targets.get(url)
        if target is None or method != b"POST":
            return None
        head = dict(headers)
        length = head.get(b"content-length", b"")
        if (
            len(head) != len(headers)
            or not _LEFT_TO_THE_ROUTE.isdisjoint(head)
            or head.get(b"host") not in self._hosts
            or not 0 < len(length) < 16
            or not length.isdigit()
            or int(length) > self._body_limit
        ):
            return None
        if not self._authentication:
            return target
        scheme, secret = (value := head.get(b"authorization", b""))[:7], value[7:]
        principal = self._services.tokens.known(secret.decode("latin-1")) if scheme == b"Bearer " else None
        return target if principal is not None and principal.may(ACCESS, target.project) else None


class ClientConnection(Protocol):
    """The connection of a client, as an exchange uses it."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    tasks: set[asyncio.Task[None]]

    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Those that every answer has."""

    def resume(self) -> None:
        """Read on."""

    def done(self) -> None:
        """The answer is written."""


class _Pieces:
    """The body of a request as it comes, in the place where uvicorn has a bytearray. It goes to the host as it is."""

    __slots__ = ("all",)

    def __init__(self) -> None:
        self.all: list[bytes | bytearray] = []

    def __iadd__(self, piece: bytes) -> Self:
        if len(piece) >= _SHORT:
            self.all.append(piece)
        elif self.all and isinstance(last := self.all[-1], bytearray):
            last += piece  # a client that sends byte by byte does not cost an object for each
        else:
            self.all.append(bytearray(piece))
        return self

    def __len__(self) -> int:
        """uvicorn would stop reading while much of it waits. But all of it has to come, and its size is known."""
        return 0


class FastPathExchange:
    """One request for a prediction and its answer. It stands where uvicorn keeps the exchange that it is about, and is
    itself the event that uvicorn sets when more has come or the client has gone."""

    __slots__ = (
        "_line",
        "_predictions",
        "_question",
        "_target",
        "body",
        "disconnected",
        "keep_alive",
        "more_body",
        "response_complete",
        "waiter",
    )

    def __init__(
        self, line: ClientConnection, predictions: PredictionGateway, target: PredictTarget, *, keep_alive: bool
    ) -> None:
        self._line = line
        self._predictions = predictions
        self._target = target
        self._question: InFlightRequest | None = None
        self.body = _Pieces()
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
        """As a `RequestClient` says it."""
        return self.disconnected

    def set(self) -> None:
        """More has come, or all, or the client is gone."""
        if self.disconnected:
            if self._question is not None and not self.response_complete:
                self._question.abandon()
            if self.waiter is not None and not self.waiter.done():
                self.waiter.set_result(None)
        elif self.more_body:
            self._line.resume()
        elif self._question is None and not self.response_complete:
            self._ask()

    def _ask(self) -> None:
        try:
            self._question = self._predictions.try_send(self._target, self.body.all, self)
        except Exception as exc:  # noqa: BLE001  the edge: whatever went wrong becomes an answer
            self._refuse(exc)
            return
        body, self.body = self.body.all, _Pieces()  # the next request may be long in coming
        if self._question is None:
            task = self._line.loop.create_task(self._wait(b"".join(body)))
            self._line.tasks.add(task)
            task.add_done_callback(self._line.tasks.discard)

    async def _wait(self, body: bytes) -> None:
        """The version is asleep, or not connected: that takes a while."""
        try:
            answer: Answer | None = await self._predictions.send(self._target, body, self)
        except Exception as exc:  # noqa: BLE001  as above
            self._refuse(exc)
            return
        if answer is not None:
            self.answered(*answer)

    def answered(self, status: int, body: bytes) -> None:
        self._write(status, (_JSON % len(body), _RETRY.get(status, b"")), body)

    def failed(self, exc: TrainshedError) -> None:
        self._refuse(exc)

    def _refuse(self, exc: Exception) -> None:
        response: Response = error_response(exc)
        response.headers.update(SECURITY_HEADERS)
        lines = [b"%b: %b\r\n" % header for header in response.raw_headers]
        self._write(response.status_code, lines, bytes(response.body))

    def _write(self, status: int, lines: Iterable[bytes], body: bytes) -> None:
        self._question = None
        self.response_complete = True
        if self.disconnected or self._line.transport.is_closing():
            return
        head = [STATUS_LINE[status], *(b"%b: %b\r\n" % header for header in self._line.default_headers()), *lines]
        if not self.keep_alive:
            head.append(b"connection: close\r\n")
        head.append(b"\r\n")
        self._line.transport.writelines((b"".join(head), body))
        if not self.keep_alive:
            self._line.transport.close()
        self._line.done()
