"""The console's files over HTTP. They hold no user data and are public; the data they show needs a session."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.routing import ProjectScope, Route
from trainshed.console.files import PAGE, Asset, console
from trainshed.domain.iam import Access
from trainshed.errors import NotFoundError

_IMMUTABLE = "public, max-age=31536000, immutable"
_REVALIDATE = "no-cache"

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "frame-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_PAGE_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "vary": "accept-encoding",
}


async def page(request: Request) -> Response:
    files = await run_in_threadpool(console)
    return _asset_response(request, files.assets.get(PAGE), cache_control=_REVALIDATE)


async def file(request: Request) -> Response:
    files = await run_in_threadpool(console)
    asset, versioned = files.find(request.path_params["path"])
    return _asset_response(request, asset, cache_control=_IMMUTABLE if versioned else _REVALIDATE)


def _asset_response(request: Request, asset: Asset | None, *, cache_control: str) -> Response:
    request.scope["trainshed.quiet"] = True  # one page loads dozens of files, which would flood the log
    if asset is None:
        raise NotFoundError(
            "The console has no such file. If it was open before the server was updated, load it again."
        )
    headers = {**_PAGE_HEADERS, "etag": asset.etag, "cache-control": cache_control}
    if asset.etag in [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    body = asset.body
    if asset.gzipped is not None and "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["content-encoding"] = asset.gzipped, "gzip"
    return Response(body, headers={**headers, "content-type": asset.content_type})


def _public(path: str, *, is_page: bool = False) -> Route:
    handler = page if is_page else file
    return Route(
        method="GET", path=path, access=Access.PUBLIC, scope=ProjectScope.SERVER, handler=handler, linked=is_page
    )


ROUTES = (_public("/", is_page=True), _public("/console/{path*}"))
