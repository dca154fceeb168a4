"""Reads of buckets that no project has: from a mirror of this server, or from the real Cloud Storage."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

import trainshed.api.storage.optimizer_document as optimizer_document
from trainshed.api.http.auth import TOKEN_PARAMETERS
from trainshed.api.http.request import services
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.api.storage.resources import base_url
from trainshed.domain.iam import Access, Principal
from trainshed.domain.storage import xml_paths
from trainshed.domain.storage.xml_paths import host_bucket
from trainshed.errors import InvalidArgumentError, NotFoundError, UnavailableError
from trainshed.services.storage.public_data import HOST, VIA, ProxiedResponse, PublicData
from trainshed.services.storage.uris import parse_uri

LOG = logging.getLogger("trainshed.public_data")

_BUCKET = "/storage/v1/b/{bucket}"
_DOWNLOAD = f"/download{_BUCKET}/o/{{object}}"
_MEDIA = frozenset({_DOWNLOAD, xml_paths.OBJECT})
_PATHS = frozenset({_BUCKET, f"{_BUCKET}/o", f"{_BUCKET}/o/{{object}}", *_MEDIA, xml_paths.BUCKET})
#: what is passed on of a request. Credentials, in whatever form, are not.
_PARAMETERS = frozenset(
    {
        *("alt", "delimiter", "endOffset", "fields", "generation", "ifGenerationMatch", "ifGenerationNotMatch"),
        *("ifMetagenerationMatch", "ifMetagenerationNotMatch", "includeTrailingDelimiter", "matchGlob", "maxResults"),
        *("pageToken", "prefix", "prettyPrint", "projection", "startOffset", "versions"),
    }
)
#: of the XML API's listings
_XML_PARAMETERS = frozenset(
    {
        *("continuation-token", "delimiter", "encoding-type", "list-type", "marker", "max-keys", "prefix"),
        *("start-after", "versions"),
    }
)
_REQUEST_HEADERS = ("accept-encoding", "if-match", "if-modified-since", "if-none-match", "if-range", "range")
_RESPONSE_HEADERS = frozenset(
    {
        *("accept-ranges", "age", "cache-control", "content-encoding", "content-language", "content-length"),
        *("content-range", "content-type", "date", "etag", "expires", "last-modified", "vary"),
    }
)
_LINKS = ("mediaLink", "selfLink")  #: fields of resources that lead to Google itself
_MAX_PAGE_BYTES = 16 << 20  #: of a listing, whose links are rewritten


async def is_anonymous_read(request: Request, route: Route) -> bool:
    """Return whether a program reads a bucket that no project has from Cloud Storage, without any credentials."""
    return (
        _is_read(request, route)
        and (request.headers.get("host") == HOST or host_bucket(request.headers.get("host", "")) != "")
        and "authorization" not in request.headers
        and not any(name in request.query_params for name in TOKEN_PARAMETERS)
        and await run_in_threadpool(_is_elsewhere, request)
    )


async def is_read_by(request: Request, route: Route, principal: Principal) -> bool:
    """Return whether a principal who may read objects reads a bucket that no project has."""
    return (
        _is_read(request, route)
        and principal.may(Access.READ_OBJECTS, principal.project)
        and await run_in_threadpool(_is_elsewhere, request)
    )


def _is_read(request: Request, route: Route) -> bool:
    """Return whether a request reads a bucket or an object, and may be answered from elsewhere.

    What a browser with a session asks for may not: it would be content of others in the console's own origin.
    """
    return (
        route.scope is ProjectScope.BUCKET
        and route.method == "GET"
        and route.path in _PATHS
        and "cookie" not in request.headers
        and VIA not in request.headers.get("via", "")
    )


def _is_elsewhere(request: Request) -> bool:
    """Return whether no project has the bucket that a request names, and somebody else may. Blocks."""
    public, bucket = services(request).public_data, request.path_params["bucket"]
    try:
        services(request).buckets.owner(bucket)
    except NotFoundError:
        return _is_name(bucket) and (public.asks or _is_mirrored(request, public) or _is_document(request))
    return False


def _is_document(request: Request) -> bool:
    """Return whether a request reads the document of the Optimizer, which this server has itself."""
    params: Mapping[str, Any] = request.path_params
    is_listing = request.url.path.endswith("/o")
    return not is_listing and optimizer_document.is_asked(params["bucket"], params.get("object"))


def _is_name(bucket: str) -> bool:
    """Return whether a bucket may have this name, so that it can be in a path and in a line of the server's log."""
    try:
        return parse_uri(f"gs://{bucket}", field="bucket") == (bucket, "")
    except InvalidArgumentError:
        return False


async def respond(request: Request, route: Route) -> Response:
    """Respond to a read of a bucket that no project has. Raises `NotFoundError` with a remedy."""
    public = services(request).public_data
    if await run_in_threadpool(_is_mirrored, request, public):
        LOG.info("mirror.read uri=gs://%s/%s", request.path_params["bucket"], request.path_params["object"])
        request.scope["trainshed.services"] = replace(services(request), objects=public.mirrors.objects)
        request.scope["trainshed.project"] = ""
        return await route.handler(request)
    is_media = route.path in _MEDIA or route.path == xml_paths.BUCKET or request.query_params.get("alt") == "media"
    if _is_document(request):
        return await optimizer_document.respond(request, download=is_media)
    headers = [(name, request.headers[name]) for name in _REQUEST_HEADERS if name in request.headers]
    target = _target(request, route)
    proxied = await public.ask(request.path_params["bucket"], request.method, target, headers)
    if is_media or request.method == "HEAD":
        return _PublicResponse(proxied)
    return await _resource(request, proxied)


def _is_mirrored(request: Request, public: PublicData) -> bool:
    params: Mapping[str, Any] = request.path_params
    return "object" in params and public.mirrors.holds(params["bucket"], params["object"])


def _target(request: Request, route: Route) -> bytes:
    """Return the path and query for Google. Objects are downloaded by their public URL, which knows HEAD too."""
    pairs = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    params = request.path_params
    if route.path in _MEDIA:
        path = quote(f"/{params['bucket']}/{params['object']}")
        query = [pair for pair in pairs if pair[0] == "generation"]
    elif route.path == xml_paths.BUCKET:
        path, query = quote(f"/{params['bucket']}"), [pair for pair in pairs if pair[0] in _XML_PARAMETERS]
    else:
        folder, separator, name = f"/storage/v1/b/{quote(params['bucket'], safe='')}", "/o", params.get("object")
        ending = f"{separator}/{quote(name, safe='')}" if name else separator if route.path.endswith("/o") else ""
        path, query = folder + ending, [pair for pair in pairs if pair[0] in _PARAMETERS]
    return f"{path}?{urlencode(query)}".removesuffix("?").encode("ascii")


class _PublicResponse(Response):
    """Streams what Google's storage sends, in a form that no browser would run."""

    def __init__(self, proxied: ProxiedResponse) -> None:
        super().__init__(None, proxied.status)
        passed = {name.lower(): value for name, value in proxied.headers if _is_passed(name.lower())}
        safe = {"content-disposition": "attachment", "content-security-policy": "sandbox; default-src 'none'"}
        self.raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in (passed | safe).items()]
        self._proxied = proxied

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for piece in self._proxied.pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._proxied.close()


def _is_passed(name: str) -> bool:
    return name in _RESPONSE_HEADERS or name.startswith("x-goog-")


async def _resource(request: Request, proxied: ProxiedResponse) -> Response:
    """Return a resource or a page of them, with links to this server: a client follows them with its token."""
    content = await _page(proxied)
    headers = {name: value for name, value in proxied.headers if name.lower() == "etag"}
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError:
        return Response(content, proxied.status, headers, media_type="text/plain")
    base = base_url(request)
    for each in (body, *(body.get("items") or ())) if isinstance(body, dict) else ():
        for link in _LINKS:
            if isinstance(each.get(link), str):
                each[link] = f"{base}/{each[link].split('/', 3)[-1]}"
    return Response(orjson.dumps(body), proxied.status, headers, media_type="application/json; charset=UTF-8")


async def _page(proxied: ProxiedResponse) -> bytes:
    content = bytearray()
    try:
        async for piece in proxied.pieces:
            content += piece
            if len(content) > _MAX_PAGE_BYTES:
                raise NotFoundError("Google's storage sent a listing that is too long. Ask for fewer objects at once.")
    except (OSError, TimeoutError) as exc:
        raise UnavailableError(f"Google's storage broke off within an answer: {type(exc).__name__}.") from exc
    finally:
        proxied.close()
    return bytes(content)
