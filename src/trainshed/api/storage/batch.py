"""Batches of requests. Each part passes through the whole app, as if it were sent alone."""

from __future__ import annotations

import re
import secrets
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from trainshed.api.http.bodies import read_body
from trainshed.api.http.multipart import headers_of, split_parts
from trainshed.api.http.responses import error_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.errors import InvalidArgumentError, PayloadTooLargeError, TrainshedError

MAX_RESPONSE_BYTES = 32 << 20  #: of responses; the remaining parts have to be sent in another batch

PartResponse = tuple[int, list[tuple[bytes, bytes]], bytes]  #: status, headers, body

_RESPONSES_TOO_LARGE = PayloadTooLargeError(
    "The answers of this batch are too large together. Ask for this one in another batch."
)
_CONTENT_LENGTH = re.compile(r"[0-9]{1,19}")
_REQUEST_LINE = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (\S+)(?: HTTP/1\.[01])?")
#: headers of the outer request that apply to each part without its own
_INHERITED = ("authorization", "host", "origin", "sec-fetch-site", "user-agent")
_REASONS = {200: "OK", 204: "No Content", 304: "Not Modified", 404: "Not Found"}


async def batch(request: Request) -> Response:
    body = await read_body(request, limit=request.scope["trainshed.body_limit"])
    parts: list[bytes] = []
    size = 0
    for headers, inner in split_parts(request.headers.get("content-type", ""), body):
        response = await _send_part(request, inner) if size < MAX_RESPONSE_BYTES else _error_part(_RESPONSES_TOO_LARGE)
        parts.append(_part(headers.get("content-id", ""), *response))
        size += len(parts[-1])
    boundary = f"batch_{secrets.token_hex(16)}"
    content = b"".join(b"--" + boundary.encode() + b"\r\n" + part + b"\r\n" for part in parts)
    return Response(content + b"--" + boundary.encode() + b"--\r\n", media_type=f"multipart/mixed; boundary={boundary}")


def _error_part(error: TrainshedError) -> PartResponse:
    response = error_response(error)
    return response.status_code, response.raw_headers, bytes(response.body)


async def _send_part(request: Request, inner: bytes) -> PartResponse:
    """Send one request through the app. An error is the response to this part alone."""
    try:
        scope, body = _scope(request, inner)
    except TrainshedError as exc:
        return _error_part(exc)
    status, headers, parts = 500, [], [b""]
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            return await request.receive()  # the whole batch was read, so the next message says that the client left
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], list(message["headers"])
        else:
            parts.append(message.get("body", b""))

    await request.scope["trainshed.app"](scope, receive, send)
    return status, headers, b"".join(parts)


def _scope(request: Request, inner: bytes) -> tuple[dict[str, object], bytes]:
    """Build the ASGI scope and the body of the request in a part."""
    halves = re.split(rb"\r?\n\r?\n", inner.lstrip(b"\r\n"), maxsplit=1)
    first, _, rest = halves[0].partition(b"\n")
    match = _REQUEST_LINE.fullmatch(first.decode("latin-1").strip())
    if match is None:
        raise InvalidArgumentError(
            "A part of this batch does not begin with a line like 'DELETE /storage/v1/b/... HTTP/1.1'."
        )
    target = _split(match[2], name="address")
    body = halves[1] if len(halves) > 1 else b""
    headers = {name: request.headers[name] for name in _INHERITED if name in request.headers}
    headers |= _own_headers(rest) | {"content-length": str(len(body))}
    scope = {key: request.scope[key] for key in ("type", "asgi", "http_version", "scheme", "server", "client")}
    scope |= {
        "method": match[1],
        "path": unquote(target.path),
        "raw_path": target.path.encode(),
        "query_string": target.query.encode(),
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "state": {},
    }
    if not target.path.startswith("/storage/v1/") or _asks_for_media(target.query):
        raise InvalidArgumentError(
            f"A batch may hold requests about buckets and objects, but not their bytes: {target.path}"
        )
    return scope, body


def _own_headers(head: bytes) -> dict[str, str]:
    """Return the headers of a part. Its Content-Length is recomputed."""
    headers = headers_of(head)
    if not _CONTENT_LENGTH.fullmatch(headers.pop("content-length", "0")):
        raise InvalidArgumentError("The Content-Length of a part of this batch is not a number of bytes.")
    _split(headers.get("origin", ""), name="Origin")
    headers.pop("host", None)
    return headers


def _split(url: str, *, name: str) -> SplitResult:
    try:
        if url.isascii():
            return urlsplit(url)
    except ValueError:
        pass
    raise InvalidArgumentError(f"The {name} of a part of this batch can't be read: {url[:100]!r}.")


def _asks_for_media(query: str) -> bool:
    try:
        return ("alt", "media") in parse_qsl(query, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise InvalidArgumentError("The query of a part of this batch has too many parts.") from None


def _part(content_id: str, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    lines = [b"Content-Type: application/http"]
    if content_id:
        lines.append(b"Content-ID: " + _response_id(content_id).encode("latin-1"))
    lines += [b"", f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}".encode()]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join([*lines, b"", body])


def _response_id(content_id: str) -> str:
    """Turn `<x+1>` into `<response-x+1>`, as clients expect."""
    return f"<response-{content_id.strip().removeprefix('<').removesuffix('>')}>"


ROUTES = (
    Route(method="POST", path="/batch/storage/v1", access=Access.READ_OBJECTS, scope=ProjectScope.BODY, handler=batch),
)
