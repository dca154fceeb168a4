"""Objects at `/BUCKET/OBJECT`, as Cloud Storage's XML API has them and signed URLs name them: PUT and DELETE.

Such a path becomes that of a download, which has GET and HEAD.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from trainshed.api.http.media import media_headers
from trainshed.api.http.request import services, trail
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.api.storage.requests import draft, not_public, parameters, source
from trainshed.api.storage.uploads import store
from trainshed.domain.access.signatures import MARKS, SignableRequest, signed_url
from trainshed.domain.iam import Access, Principal
from trainshed.services.registry import Services

_OBJECT = "/download/storage/v1/b/{bucket}/o/{object}"
_PREFIX = b"/download/storage/v1/b/"
_META = "x-goog-meta-"
#: header -> the JSON API's field
_FIELDS = {
    "cache-control": "cacheControl",
    "content-disposition": "contentDisposition",
    "content-encoding": "contentEncoding",
    "content-language": "contentLanguage",
    "content-type": "contentType",
    "x-goog-custom-time": "customTime",
    "x-goog-storage-class": "storageClass",
}
#: header -> the JSON API's parameter
_CONDITIONS = {
    "x-goog-if-generation-match": "ifGenerationMatch",
    "x-goog-if-metageneration-match": "ifMetagenerationMatch",
}


def rewrite_signed_path(scope: Scope) -> bool:
    """Give a signed request for `/BUCKET/OBJECT` the path of a download. Returns False for any other request."""
    bucket, _, name = scope["raw_path"].removeprefix(b"/").partition(b"/")
    if not bucket or not name or scope["raw_path"].startswith(_PREFIX) or not _is_signed(scope):
        return False
    scope["raw_path"] = _PREFIX + bucket + b"/o/" + name.replace(b"/", b"%2F")
    return True


def is_signed_request(request: Request, route: Route) -> bool:
    """Return whether a request for an object brings a signature and no other credential."""
    return (
        route.path == _OBJECT
        and _is_signed(request.scope)
        and "authorization" not in request.headers
        and "cookie" not in request.headers
    )


def signer(request: Request, services: Services) -> Principal:
    """Return who signed a request. Raises `PermissionDeniedError` if nobody did who may now."""
    params = request.path_params
    signed = signed_url(
        SignableRequest(
            method=request.method,
            host=request.headers["host"],
            bucket=params["bucket"],
            name=params["object"],
            query=_pairs(request.scope),
            headers=dict(request.headers),
        )
    )
    return services.account_keys.signer(signed)


def _is_signed(scope: Scope) -> bool:
    query = scope["query_string"]
    return b"Signature=" in query and any(name in MARKS for name, _ in _pairs(scope))


def _pairs(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


async def put(request: Request) -> Response:
    """Store the body as an object. Its metadata is in headers."""
    query, headers, params = parameters(request), request.headers, request.path_params
    if headers.get("x-goog-acl", "private") not in ("private", "project-private", "bucket-owner-full-control"):
        raise not_public("x-goog-acl")
    fields: dict[str, Any] = {field: headers[name] for name, field in _FIELDS.items() if name in headers}
    fields["metadata"] = {name.removeprefix(_META): headers[name] for name in headers if name.startswith(_META)}
    conditions = {field: headers[name] for name, field in _CONDITIONS.items() if name in headers}
    object_draft = draft(params["bucket"], {**query, **conditions, "name": params["object"]}, fields, headers)
    trail(request).name(object_draft.name)
    info = await store(request, request.stream(), object_draft)
    shown: Mapping[str, str] = media_headers(info)
    return Response(b"", 200, {name: shown[name] for name in shown if name == "etag" or name.startswith("x-goog-")})


async def delete(request: Request) -> Response:
    await run_in_threadpool(services(request).objects.delete, source(request, parameters(request)))
    return Response(status_code=204)


ROUTES = (
    Route(method="PUT", path=_OBJECT, access=Access.WRITE_OBJECTS, scope=ProjectScope.BUCKET, handler=put),
    Route(method="DELETE", path=_OBJECT, access=Access.WRITE_OBJECTS, scope=ProjectScope.BUCKET, handler=delete),
)
