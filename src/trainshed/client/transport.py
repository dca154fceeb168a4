"""HTTP to one server: connections, the token, errors and retries."""

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

MAX_ATTEMPTS = 6
TIMEOUT_S = 60.0
_MAX_IDLE_S = 2.0  #: after that the server may close the connection, so a new one is made
RETRYABLE_CODES = frozenset({429, 500, 502, 503, 504})  #: a retry may succeed
_QUOTA_FAILURE = "type.googleapis.com/google.rpc.QuotaFailure"
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"
_UNPROCESSED_CODES = frozenset({429, 503})  #: the server did nothing, so even a POST may be resent
_IDEMPOTENT_METHODS = frozenset({"GET", "PUT", "DELETE", "PATCH"})


class ApiError(TrainshedError):
    """An error response: HTTP `code`, `status` such as NOT_FOUND, `details` and the `raw` body.

    It is also of the matching class of `trainshed.errors`: `except NotFoundError` catches a 404.
    """

    def __init__(
        self, message: str, *, code: int, status: str, details: tuple[Mapping[str, Any], ...] = (), raw: str = ""
    ) -> None:
        self.code = code
        self.status = status
        self.details = details
        self.raw = raw
        super().__init__(message)

    @property
    def is_quota(self) -> bool:
        """Whether a limit forbids the request, so that to try again soon is of no use."""
        kinds = {each.get("@type") for each in self.details if isinstance(each, Mapping)}
        return _QUOTA_FAILURE in kinds and _RETRY_INFO not in kinds


class ApiInvalidArgumentError(ApiError, errors.InvalidArgumentError):
    """400: the request is invalid."""


class ApiFailedPreconditionError(ApiError, errors.FailedPreconditionError):
    """400, FAILED_PRECONDITION: the resource's state forbids this."""


class ApiUnauthenticatedError(ApiError, errors.UnauthenticatedError):
    """401: no token, or a bad one."""


class ApiPermissionDeniedError(ApiError, errors.PermissionDeniedError):
    """403: the token may not do this."""


class ApiNotFoundError(ApiError, errors.NotFoundError):
    """404: the resource does not exist."""


class ApiAlreadyExistsError(ApiError, errors.AlreadyExistsError):
    """409: the name is taken."""


class ApiAbortedError(ApiError, errors.AbortedError):
    """409, ABORTED: a write conflict."""


class ApiUnimplementedError(ApiError, errors.UnimplementedError):
    """501: this server does not support it."""


class ApiUnavailableError(ApiError, errors.UnavailableError):
    """429 and 503: retry later."""


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
    """The connection broke, or was never made, and retries did not help. `sent`: the request may have arrived."""

    def __init__(self, message: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(message)


def segment(text: str) -> str:
    """Quote a name as one segment of a path, slashes included."""
    return quote(text, safe="")


def target(path: str, query: Mapping[str, object] | None) -> str:
    """Return the path and query of a request. Values that are None are left out."""
    parameters = {key: value for key, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(parameters)}" if parameters else path


class Client:
    """Requests to one server. Thread-safe: each thread has its own connection.

    Requests that end in 429 or 5xx or lose their connection are retried with backoff if that is safe. Raises `ApiError`
    and `ConnectionLostError`, and `CannotProceedError` if the server is not Trainshed's.
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
        self._connections: list[http.client.HTTPConnection] = []  #: of every thread, for `close`

    def close(self) -> None:
        """Close the connections of all threads. Call it when no request is in flight."""
        for connection in self._connections:
            connection.close()

    def call(self, method: str, path: str, *, query: Mapping[str, object] | None = None, body: object = None) -> Any:
        """Send `body` as JSON and return the JSON response, `{}` if it is empty. `path` is already quoted."""
        raw = None if body is None else json.dumps(body).encode()
        headers = {} if raw is None else {"content-type": "application/json"}

        def send() -> bytes:
            return self.read(self.exchange(method, target(path, query), headers=headers, body=raw))

        content = self.persist(send, idempotent=method in _IDEMPOTENT_METHODS)
        try:
            return json.loads(content) if content.strip() else {}
        except ValueError as exc:
            raise CannotProceedError(
                f"What answers at {self.url} is not a Trainshed server. Look at TRAINSHED_URL."
            ) from exc

    def pages(self, path: str, key: str, *, query: Mapping[str, object] | None = None) -> Iterator[dict[str, Any]]:
        """Yield every item of a list method, page after page."""
        token: str | None = None
        while True:
            page = self.call("GET", path, query={**(query or {}), "pageToken": token})
            yield from page.get(key, ())
            if not (token := page.get("nextPageToken")):
                return

    def persist(self, send: Callable[[], T], *, idempotent: bool = True) -> T:
        """Call `send`, and retry it after a temporary failure, up to MAX_ATTEMPTS times."""
        for attempt in range(MAX_ATTEMPTS - 1):
            try:
                return send()
            except ApiError as exc:
                if exc.is_quota or exc.code not in (RETRYABLE_CODES if idempotent else _UNPROCESSED_CODES):
                    raise
            except ConnectionLostError as exc:
                if exc.sent and not idempotent:
                    raise
            self.pause(attempt)
        return send()

    def pause(self, attempt: int) -> None:
        """Wait before the next attempt: about 0.2 s, doubled each time."""
        self._sleep(0.2 * 2**attempt * random.uniform(0.75, 1.25))  # noqa: S311  jitter, no secret

    def exchange(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None = None
    ) -> http.client.HTTPResponse:
        """Send one request, without retries. Returns the response with its headers read.

        Raises `ApiError` for 4xx and 5xx. An iterable body needs a content-length header. Read the response to its end
        before the next request of this thread.
        """
        connection = self._connection()
        sent = False
        try:
            if connection.sock is None:
                connection.connect()
            sent = True
            connection.request(method, path, body=body, headers=self._headers(headers))
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as exc:
            error = self._early_response(connection)
            connection.close()
            if error is not None:
                raise error from exc
            raise ConnectionLostError(f"The server at {self.url} does not answer: {_reason(exc)}.", sent=sent) from exc
        if response.status >= 400:
            raise self._problem(response)
        return response

    def read(self, response: http.client.HTTPResponse, size: int | None = None) -> bytes:
        """Return the next `size` bytes of a response, or all that remain.

        Raises `ConnectionLostError` if the connection breaks.
        """
        try:
            return response.read(size)
        except (OSError, http.client.HTTPException) as exc:
            self.hang_up()
            raise ConnectionLostError(f"The connection to {self.url} broke: {_reason(exc)}.", sent=True) from exc

    def hang_up(self) -> None:
        """Close this thread's connection, for instance with a half-read response."""
        self._connection().close()

    def _early_response(self, connection: http.client.HTTPConnection) -> ApiError | None:
        """Return the error response of a server that stopped reading the body. Returns None if there is none."""
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

    def _headers(self, extra: Mapping[str, str]) -> dict[str, str]:
        headers = {"accept": "application/json", **extra}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        return headers

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        idle_s = time.monotonic() - getattr(self._local, "used", 0.0)
        self._local.used = time.monotonic()
        if connection is not None:
            if idle_s > _MAX_IDLE_S:
                connection.close()
            return connection
        if self._secure:
            import ssl

            context = ssl.create_default_context(cafile=self._ca_file)
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=context)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        self._local.connection = connection
        self._connections.append(connection)
        return connection


def _reason(exc: BaseException) -> str:
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror.lower()
    return str(exc) or type(exc).__name__
