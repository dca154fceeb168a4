"""The console's files over HTTP. They hold nothing of anyone's, so they are public; what they show needs a session."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.routing import ProjectScope, Route
from trainshed.console.files import PAGE, Asset, console
from trainshed.domain.iam import Access
from trainshed.errors import NotFoundError

_FOR_GOOD = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"

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
_GUARDED = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "vary": "accept-encoding",
}


async def page(request: Request) -> Response:
    files = await run_in_threadpool(console)
    return _sent(request, files.assets.get(PAGE), keep=_ASK_AGAIN)


async def file(request: Request) -> Response:
    files = await run_in_threadpool(console)
    asset, versioned = files.find(request.path_params["path"])
    return _sent(request, asset, keep=_FOR_GOOD if versioned else _ASK_AGAIN)


def _sent(request: Request, asset: Asset | None, *, keep: str) -> Response:
    request.scope["trainshed.quiet"] = True  # a page is dozens of files; none of them is news
    if asset is None:
        raise NotFoundError(
            "The console has no such file. If it was open before the server was updated, load it again."
        )
    headers = {**_GUARDED, "etag": asset.etag, "cache-control": keep}
    if asset.etag in [
        given.strip().removeprefix("W/") for given in request.headers.get("if-none-match", "").split(",")
    ]:
        return Response(status_code=304, headers=headers)
    body = asset.body
    if asset.gzipped is not None and "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["content-encoding"] = asset.gzipped, "gzip"
    return Response(body, headers={**headers, "content-type": asset.content_type})


def _public(path: str, *, whole: bool = False) -> Route:
    handler = page if whole else file
    return Route(
        method="GET", path=path, access=Access.PUBLIC, scope=ProjectScope.SERVER, handler=handler, linked=whole
    )


ROUTES = (_public("/", whole=True), _public("/console/{path*}"))
