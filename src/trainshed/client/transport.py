"""One server, spoken to over HTTP: connections, the token, errors and trying again."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from trainshed import errors
from trainshed.errors import CannotProceedError, TrainshedError

T = TypeVar("T")

ATTEMPTS = 6
TIMEOUT_S = 60.0
_IDLE_S = 2.0  #: after that the server may be about to close the connection: better to make a new one
AGAIN = frozenset({429, 500, 502, 503, 504})  #: what may go well at another try
_UNTOUCHED = frozenset({429, 503})  #: the server says that it did nothing: even a POST may be sent again
_REPEATABLE = frozenset({"GET", "PUT", "DELETE", "PATCH"})


class ApiError(TrainshedError):
    """The server's own error: HTTP `code`, `status` such as NOT_FOUND, `details` as it sent them, its `raw` body.

    Those that `trainshed.errors` has a word for are of that kind too: `except NotFound` catches a 404.
    """

    def __init__(
        self, message: str, *, code: int, status: str, details: tuple[Mapping[str, Any], ...] = (), raw: str = ""
    ) -> None:
        self.code = code
        self.status = status
        self.details = details
        self.raw = raw
        super().__init__(message)


class ApiInvalidArgumentError(ApiError, errors.InvalidArgumentError):
    """400: what was asked makes no sense."""


class ApiFailedPreconditionError(ApiError, errors.FailedPreconditionError):
    """400, FAILED_PRECONDITION: the thing is in a state that forbids this."""


class ApiUnauthenticatedError(ApiError, errors.UnauthenticatedError):
    """401: no token, or a bad one."""


class ApiPermissionDeniedError(ApiError, errors.PermissionDeniedError):
    """403: the token may not do this."""


class ApiNotFoundError(ApiError, errors.NotFoundError):
    """404: there is no such thing."""


class ApiAlreadyExistsError(ApiError, errors.AlreadyExistsError):
    """409: the name is taken."""


class ApiAbortedError(ApiError, errors.AbortedError):
    """409, ABORTED: someone else changed it meanwhile."""


class ApiUnimplementedError(ApiError, errors.UnimplementedError):
    """501: this server does not offer it."""


class ApiUnavailableError(ApiError, errors.UnavailableError):
    """429 and 503: not now."""


_BY_STATUS: Mapping[str, type[ApiError]] = {
    "FAILED_PRECONDITION": ApiFailedPreconditionError,
    "ABORTED": ApiAbortedError,
}
_BY_CODE: Mapping[int, type[ApiError]] = {
    400: ApiInvalidArgumentError,
    401: ApiUnauthenticatedError,
    403: ApiPermissionDeniedError,
    404: ApiNotFoundError,
    409: ApiAlreadyExistsError,
    429: ApiUnavailableError,
    501: ApiUnimplementedError,
    503: ApiUnavailableError,
}


class ConnectionLostError(TrainshedError):
    """The connection broke, or was never made, and trying again did not help. `sent`: the request may have arrived."""

    def __init__(self, message: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(message)


def segment(text: str) -> str:
    """A name as one segment of a path: its slashes are quoted too."""
    return quote(text, safe="")


def target(path: str, query: Mapping[str, object] | None) -> str:
    """Path and query of a request; values that are None are left out."""
    given = {key: value for key, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


class Client:
    """Requests to one server. Safe to share between threads: each has a connection of its own.

    What the server answers with 429 or 5xx, and what dies on the way, is sent again with growing pauses if sending it
    twice does no harm. The errors raised are `ApiError` and `ConnectionLostError`, and `CannotProceedError` for a
    server that is not ours.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ca_file: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CannotProceedError(f"{url!r} is not the URL of a server. It should look like http://127.0.0.1:8470.")
        self.url = url.rstrip("/")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port or (443 if self._secure else 80)
        self._token = token
        self._ca_file = ca_file
        self._sleep = sleep
        self._local = threading.local()
        self._all: list[http.client.HTTPConnection] = []  #: of every thread, to be closed in the end

    def close(self) -> None:
        """Close the connections of all threads. Call it when no request is under way."""
        for connection in self._all:
            connection.close()

    def call(self, method: str, path: str, *, query: Mapping[str, object] | None = None, body: object = None) -> Any:
        """Send `body` as JSON and return the JSON answered, `{}` if there is none. `path` is quoted already."""
        raw = None if body is None else json.dumps(body).encode()
        headers = {} if raw is None else {"content-type": "application/json"}

        def once() -> bytes:
            return self.read(self.exchange(method, target(path, query), headers=headers, body=raw))

        answer = self.persist(once, repeatable=method in _REPEATABLE)
        try:
            return json.loads(answer) if answer.strip() else {}
        except ValueError as exc:
            raise CannotProceedError(
                f"What answers at {self.url} is not a Trainshed server. Look at TRAINSHED_URL."
            ) from exc

    def pages(self, path: str, key: str, *, query: Mapping[str, object] | None = None) -> Iterator[dict[str, Any]]:
        """Every item of a list method, page after page."""
        token: str | None = None
        while True:
            page = self.call("GET", path, query={**(query or {}), "pageToken": token})
            yield from page.get(key, ())
            if not (token := page.get("nextPageToken")):
                return

    def persist(self, once: Callable[[], T], *, repeatable: bool = True) -> T:
        """`once()`, and again after a passing failure, ATTEMPTS times at most."""
        for attempt in range(ATTEMPTS - 1):
            try:
                return once()
            except ApiError as exc:
                if exc.code not in (AGAIN if repeatable else _UNTOUCHED):
                    raise
            except ConnectionLostError as exc:
                if exc.sent and not repeatable:
                    raise
            self.pause(attempt)
        return once()

    def pause(self, attempt: int) -> None:
        """Wait before the next try: about 0.2 s, then twice as long each time."""
        self._sleep(0.2 * 2**attempt * random.uniform(0.75, 1.25))  # noqa: S311  spreads clients out; no secret

    def exchange(
        self, method: str, where: str, *, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None = None
    ) -> http.client.HTTPResponse:
        """One request, once. The answer's head has been read; 4xx and 5xx are `ApiError`.

        An iterable body needs a content-length header. Read the answer to its end before the next request of this
        thread.
        """
        connection = self._connection()
        sent = False
        try:
            if connection.sock is None:
                connection.connect()
            sent = True
            connection.request(method, where, body=body, headers=self._headers(headers))
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as exc:
            early = self._early_answer(connection)
            connection.close()
            if early is not None:
                raise early from exc
            raise ConnectionLostError(f"The server at {self.url} does not answer: {_said(exc)}.", sent=sent) from exc
        if response.status >= 400:
            raise self._problem(response)
        return response

    def read(self, response: http.client.HTTPResponse, size: int | None = None) -> bytes:
        """The next `size` bytes of an answer, or all that is left of it; `ConnectionLostError` if the connection
        broke.
        """
        try:
            return response.read(size)
        except (OSError, http.client.HTTPException) as exc:
            self.hang_up()
            raise ConnectionLostError(f"The connection to {self.url} broke: {_said(exc)}.", sent=True) from exc

    def hang_up(self) -> None:
        """Close this thread's connection, for instance with an answer half read."""
        self._connection().close()

    def _early_answer(self, connection: http.client.HTTPConnection) -> ApiError | None:
        """What a server said that stopped reading a body half-way, such as a refusal."""
        if connection.sock is None:
            return None
        try:
            response = http.client.HTTPResponse(connection.sock, method="POST")
            response.begin()
            return self._problem(response) if response.status >= 400 else None
        except (OSError, http.client.HTTPException):
            return None

    def _problem(self, response: http.client.HTTPResponse) -> ApiError:
        raw = self.read(response).decode(errors="replace")
        try:
            error = json.loads(raw)["error"]
            message, status = str(error["message"]), str(error.get("status", response.reason))
            details = tuple(error.get("details", ()))
        except (ValueError, KeyError, TypeError, AttributeError):
            message, status, details = (raw.strip() or response.reason)[:500], response.reason, ()
        kind = _BY_STATUS.get(status) or _BY_CODE.get(response.status, ApiError)
        return kind(message, code=response.status, status=status, details=details, raw=raw)

    def _headers(self, given: Mapping[str, str]) -> dict[str, str]:
        headers = {"accept": "application/json", **given}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        return headers

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        idle_s = time.monotonic() - getattr(self._local, "used", 0.0)
        self._local.used = time.monotonic()
        if connection is not None:
            if idle_s > _IDLE_S:
                connection.close()
            return connection
        if self._secure:
            import ssl

            context = ssl.create_default_context(cafile=self._ca_file)
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=context)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        self._local.connection = connection
        self._all.append(connection)
        return connection


def _said(exc: BaseException) -> str:
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror.lower()
    return str(exc) or type(exc).__name__
