"""TensorBoard over HTTP: starts one for a job and proxies all paths below its URL.

TensorBoard is third-party code that shows what users wrote, so it must not act as the console. Its pages run in an
origin of their own (`sandbox`), which has no cookie and to which no other part of this server responds. The key in the
URL grants access. Everyone who may read the job gets the key.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from trainshed.api.http.bodies import read_body
from trainshed.api.http.request import body, project, services
from trainshed.api.http.routing import Handler, ProjectScope, Route, RouteSchema
from trainshed.api.schemas.jobs import TensorBoardBody
from trainshed.domain.iam import Access
from trainshed.errors import InvalidArgumentError
from trainshed.gateway.reverse_proxy import ProxiedResponse, forward

_PATH = "/tensorboard/{key}/{path*}"
_START_LIMITER = CapacityLimiter(8)  #: own threads for callers that wait for a start, which may take minutes
#: request headers that TensorBoard needs; it gets no credentials
_REQUEST_HEADERS = (
    "accept",
    "accept-encoding",
    "accept-language",
    "content-type",
    "if-none-match",
    "range",
    "x-xsrf-protected",
)
_RESPONSE_HEADERS = (
    *("content-type", "content-encoding", "content-length", "content-disposition", "content-security-policy"),
    *("cache-control", "etag", "expires", "last-modified", "location", "vary"),
)
_CROSS_ORIGIN_HEADERS: Mapping[str, str] = {
    "access-control-allow-origin": "*",  # its own pages are cross-origin to it; the key keeps other pages out
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
    await body(request)
    boards = services(request).tensorboards
    path = await to_thread.run_sync(boards.open, project(request), request.path_params["job"], limiter=_START_LIMITER)
    return JSONResponse({"url": path}, headers={"cache-control": "no-store"})


async def proxy(request: Request) -> Response:
    request.scope["trainshed.quiet"] = True
    address = await run_in_threadpool(services(request).tensorboards.address, request.path_params["key"])
    content = await read_body(request, limit=request.scope["trainshed.body_limit"])
    target = _target(request.scope)
    headers = [(name, request.headers[name]) for name in _REQUEST_HEADERS if name in request.headers]
    if request.method == "GET" and not request.path_params["path"]:
        page_headers = [header for header in headers if header[0] not in ("accept-encoding", "if-none-match", "range")]
        return await _page(await forward(address, request.method, target, page_headers, content))
    return _StreamedProxyResponse(await forward(address, request.method, target, headers, content))


async def storage(request: Request) -> Response:
    request.scope["trainshed.quiet"] = True
    return Response(
        _STORAGE, headers={**_CROSS_ORIGIN_HEADERS, "cache-control": "no-cache"}, media_type="text/javascript"
    )


async def _page(proxied: ProxiedResponse) -> Response:
    """Adapt TensorBoard's page to an origin of its own: add a storage, and make the paths of its fonts relative."""
    page = b"".join([chunk async for chunk in proxied.pieces])
    page = page.replace(b"<!doctype html>", b'<!doctype html><script src="trainshed-storage.js"></script>', 1)
    page = page.replace(b"url(/font-roboto/", b"url(font-roboto/")
    other_headers = [header for header in proxied.headers if header[0].lower() != "content-length"]

    async def chunks() -> AsyncGenerator[bytes]:
        yield page

    headers = [*other_headers, ("content-length", str(len(page)))]
    return _StreamedProxyResponse(ProxiedResponse(status=proxied.status, headers=headers, pieces=chunks()))


async def preflight(request: Request) -> Response:
    request.scope["trainshed.quiet"] = True
    allowed = {"access-control-allow-methods": "GET, POST", "access-control-allow-headers": "*"}
    return Response(status_code=204, headers={**_CROSS_ORIGIN_HEADERS, **allowed, "access-control-max-age": "600"})


def _target(scope: AsgiScope) -> bytes:
    query = scope["query_string"]
    target: bytes = scope["raw_path"] + (b"?" + query if query else b"")
    if any(byte <= 0x20 or byte == 0x7F for byte in target):
        raise InvalidArgumentError("The address of this request has characters that no address has.")
    return target


class _StreamedProxyResponse(Response):
    """Streams the response of the TensorBoard process."""

    def __init__(self, proxied: ProxiedResponse) -> None:
        super().__init__(None, proxied.status, _CROSS_ORIGIN_HEADERS)
        forwarded = [(name.lower(), value) for name, value in proxied.headers if name.lower() in _RESPONSE_HEADERS]
        defaults = [(name.decode(), value.decode()) for name, value in self.raw_headers if name != b"content-length"]
        headers = [*defaults, *forwarded, ("content-security-policy", _SANDBOX)]
        self.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self._pieces = proxied.pieces

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for chunk in self._pieces:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _key_route(method: str, path: str, handler: Handler) -> Route:
    return Route(
        method=method, path=path, access=Access.PUBLIC, scope=ProjectScope.SERVER, handler=handler, cross_origin=True
    )


ROUTES = (
    Route(
        method="POST",
        path="/trainshed/v1/projects/{project}/jobs/{job}:tensorboard",
        access=Access.READ,
        scope=ProjectScope.PATH,
        handler=start,
        recorded=True,
        schema=RouteSchema(
            name="jobs.tensorboard",
            summary="Start TensorBoard on a job's folder, or find it",
            description=(
                "It runs until nobody has used it for 10 minutes; there are four at most. 503 with `Retry-After` while "
                "the runtime that it comes with is built."
            ),
            response=TensorBoardBody,
            errors=(HTTPStatus.TOO_MANY_REQUESTS,),
        ),
    ),
    _key_route("GET", _STORAGE_PATH, storage),
    _key_route("GET", _PATH, proxy),
    _key_route("POST", _PATH, proxy),
    _key_route("OPTIONS", _PATH, preflight),
)
