"""TensorBoard over HTTP: started for a job, and everything below its address passed on to it.

It shows what users wrote, by code that is not ours, so it may not act as the console: its pages are told to live in an
origin of their own (`sandbox`), which has no cookie and to which no other part of this server answers. The key in the
address is what opens it; whoever may read the job gets it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from trainshed.api.http.bodies import read_body
from trainshed.api.http.request import project, services
from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.errors import InvalidArgumentError
from trainshed.gateway.reverse_proxy import ProxiedResponse, forward

_PATH = "/tensorboard/{key}/{path*}"
_STARTS = CapacityLimiter(8)  #: threads of their own for those that wait for a start, which may take minutes
#: of a request: what TensorBoard has use for. Who asks is none of its business.
_THERE = ("accept", "accept-encoding", "accept-language", "content-type", "if-none-match", "range", "x-xsrf-protected")
_BACK = (
    *("content-type", "content-encoding", "content-length", "content-disposition", "content-security-policy"),
    *("cache-control", "etag", "expires", "last-modified", "location", "vary"),
)
_ORIGIN_OF_ITS_OWN: Mapping[str, str] = {
    "access-control-allow-origin": "*",  # its own pages are strangers to it now; the key keeps the others out
    "cross-origin-resource-policy": "cross-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_SANDBOX = "sandbox allow-scripts allow-downloads allow-forms allow-popups; frame-ancestors 'self'"


_STORAGE_PATH = "/tensorboard/{key}/trainshed-storage.js"
_STORAGE = b"""\
"use strict";
// A page in an origin of its own has no storage and no cookies, and TensorBoard does not work without.
// These last as long as the page.
class PageStorage {
  #kept = new Map();
  get length() { return this.#kept.size; }
  key(index) { return [...this.#kept.keys()][index] ?? null; }
  getItem(name) { return this.#kept.get(String(name)) ?? null; }
  setItem(name, value) { this.#kept.set(String(name), String(value)); }
  removeItem(name) { this.#kept.delete(String(name)); }
  clear() { this.#kept.clear(); }
}
for (const name of ["localStorage", "sessionStorage"]) {
  Object.defineProperty(window, name, { value: new PageStorage() });
}
Object.defineProperty(document, "cookie", { value: "", writable: true });
"""


async def start(request: Request) -> Response:
    boards = services(request).tensorboards
    path = await to_thread.run_sync(boards.open, project(request), request.path_params["job"], limiter=_STARTS)
    return JSONResponse({"url": path}, headers={"cache-control": "no-store"})


async def passed(request: Request) -> Response:
    request.scope["trainshed.quiet"] = True
    port = await run_in_threadpool(services(request).tensorboards.port, request.path_params["key"])
    body = await read_body(request, limit=request.scope["trainshed.body_limit"])
    target = _target(request.scope)
    headers = [(name, request.headers[name]) for name in _THERE if name in request.headers]
    if request.method == "GET" and not request.path_params["path"]:
        plain = [header for header in headers if header[0] not in ("accept-encoding", "if-none-match", "range")]
        return await _page(await forward(port, request.method, target, plain, body))
    return _Passing(await forward(port, request.method, target, headers, body))


async def storage(request: Request) -> Response:
    request.scope["trainshed.quiet"] = True
    return Response(_STORAGE, headers={**_ORIGIN_OF_ITS_OWN, "cache-control": "no-cache"}, media_type="text/javascript")


async def _page(answer: ProxiedResponse) -> Response:
    """TensorBoard's page, made fit for an origin of its own: with a storage, and with its fonts by relative paths."""
    page = b"".join([piece async for piece in answer.pieces])
    page = page.replace(b"<!doctype html>", b'<!doctype html><script src="trainshed-storage.js"></script>', 1)
    page = page.replace(b"url(/font-roboto/", b"url(font-roboto/")
    kept = [header for header in answer.headers if header[0].lower() != "content-length"]

    async def whole() -> AsyncIterator[bytes]:
        yield page

    headers = [*kept, ("content-length", str(len(page)))]
    return _Passing(ProxiedResponse(status=answer.status, headers=headers, pieces=whole()))


async def preflight(request: Request) -> Response:
    request.scope["trainshed.quiet"] = True
    allowed = {"access-control-allow-methods": "GET, POST", "access-control-allow-headers": "*"}
    return Response(status_code=204, headers={**_ORIGIN_OF_ITS_OWN, **allowed, "access-control-max-age": "600"})


def _target(scope: AsgiScope) -> bytes:
    query = scope["query_string"]
    target: bytes = scope["raw_path"] + (b"?" + query if query else b"")
    if any(byte <= 0x20 or byte == 0x7F for byte in target):
        raise InvalidArgumentError("The address of this request has characters that no address has.")
    return target


class _Passing(Response):
    """Sends what another process answers, piece by piece."""

    def __init__(self, answer: ProxiedResponse) -> None:
        super().__init__(None, answer.status, _ORIGIN_OF_ITS_OWN)
        kept = [(name.lower(), value) for name, value in answer.headers if name.lower() in _BACK]
        own = [(name.decode(), value.decode()) for name, value in self.raw_headers if name != b"content-length"]
        both = [*own, *kept, ("content-security-policy", _SANDBOX)]
        self.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in both]
        self._pieces = answer.pieces

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _of_a_key(method: str, path: str, handler: Handler) -> Route:
    return Route(
        method=method, path=path, access=Access.PUBLIC, scope=ProjectScope.SERVER, handler=handler, from_anywhere=True
    )


ROUTES = (
    Route(
        method="POST",
        path="/trainshed/v1/projects/{project}/jobs/{job}/tensorboard",
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=start,
    ),
    _of_a_key("GET", _STORAGE_PATH, storage),
    _of_a_key("GET", _PATH, passed),
    _of_a_key("POST", _PATH, passed),
    _of_a_key("OPTIONS", _PATH, preflight),
)
