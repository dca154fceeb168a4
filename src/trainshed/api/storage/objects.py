"""Routes of the Cloud Storage JSON API that are about objects, but for uploads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.media import media
from trainshed.api.http.request import principal, project, services
from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.api.storage.buckets import acls_ignored
from trainshed.api.storage.requests import (
    conditions,
    draft,
    known_only,
    list_query,
    number,
    parameters,
    source,
    traits,
)
from trainshed.api.storage.resources import base_url, json_answer, object_body, page_body
from trainshed.domain.iam import Access
from trainshed.domain.objects import ObjectInfo, Preconditions
from trainshed.errors import InvalidArgumentError
from trainshed.services.storage.objects import ObjectSource


async def index(request: Request) -> Response:
    query = parameters(request)
    page = await run_in_threadpool(services(request).objects.list, request.path_params["bucket"], list_query(query))
    return json_answer(page_body(page, base_url(request), full_for=_full_for(request, query)))


async def show(request: Request) -> Response:
    query = parameters(request)
    objects = services(request).objects
    if query.get("alt") == "media":
        return await media(request, objects, source(request, query))
    info = await run_in_threadpool(objects.get, source(request, query))
    return _answer(request, query, info)


async def download(request: Request) -> Response:
    return await media(request, services(request).objects, source(request, parameters(request)))


def _changes(*, merge: bool) -> Handler:
    async def change(request: Request) -> Response:
        query = parameters(request)
        body = await read_json_object(request)
        info = await run_in_threadpool(
            services(request).objects.patch, source(request, query), lambda old: traits(old, body, merge=merge)
        )
        return _answer(request, query, info, headers=acls_ignored(body))

    return change


async def delete(request: Request) -> Response:
    await run_in_threadpool(services(request).objects.delete, source(request, parameters(request)))
    return Response(status_code=204)


async def copy(request: Request) -> Response:
    query = parameters(request)
    return _answer(request, query, await _copied(request, query))


async def rewrite(request: Request) -> Response:
    """A copy, done by the time it is answered: no second call is ever needed."""
    query = parameters(request)
    info = await _copied(request, query)
    body = {
        "kind": "storage#rewriteResponse",
        "totalBytesRewritten": str(info.size),
        "objectSize": str(info.size),
        "done": True,
        "resource": object_body(info, base_url(request), full_for=_full_for(request, query)),
    }
    return json_answer(body)


async def move(request: Request) -> Response:
    query = parameters(request)
    params = request.path_params
    written = draft(params["bucket"], {**query, "name": params["to_object"]}, {}, {})
    info = await run_in_threadpool(
        services(request).objects.move, _read_by_copy(request, query), written, principal(request)
    )
    return _answer(request, query, info)


def _read_by_copy(request: Request, query: Mapping[str, str]) -> ObjectSource:
    return ObjectSource(
        bucket=request.path_params["bucket"],
        name=request.path_params["object"],
        generation=number(query, "sourceGeneration"),
        conditions=conditions(query, of="ifSource"),
    )


async def _copied(request: Request, query: Mapping[str, str]) -> ObjectInfo:
    params = request.path_params
    body = await read_json_object(request)
    read = _read_by_copy(request, query)
    written = draft(params["to_bucket"], {**query, "name": params["to_object"]}, _unnamed(body), {})
    return await run_in_threadpool(
        services(request).objects.copy, read, written, principal(request), keep_traits=not _says_something(body)
    )


def _unnamed(body: Mapping[str, Any]) -> dict[str, Any]:
    """A copy goes where the path says; the checksums in its body are those of the source as the client knew it."""
    return {key: value for key, value in body.items() if key not in ("name", "md5Hash", "crc32c")}


def _says_something(body: Mapping[str, Any]) -> bool:
    """Whether a copy's body describes the copy. A storage class alone doesn't: the rest comes from the source."""
    return bool(set(body) - {"name", "bucket", "storageClass", "acl", "kind"})


async def compose(request: Request) -> Response:
    query = parameters(request)
    body = await read_json_object(request)
    known_only(body, {"kind", "sourceObjects", "destination", "deleteSourceObjects"}, what="a compose request")
    if body.get("deleteSourceObjects"):
        raise InvalidArgumentError("Sources of a compose stay here. Delete them yourself.", field="deleteSourceObjects")
    params = request.path_params
    written = draft(params["bucket"], {**query, "name": params["object"]}, _unnamed(_map(body, "destination")), {})
    info = await run_in_threadpool(services(request).objects.compose, _sources(params["bucket"], body), written)
    return _answer(request, query, info)


def _sources(bucket: str, body: Mapping[str, Any]) -> list[ObjectSource]:
    given = body.get("sourceObjects")
    if not isinstance(given, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) for one in given
    ):
        raise InvalidArgumentError(
            "The sourceObjects of a compose are a list of objects with a name.", field="sourceObjects"
        )
    sources = []
    for one in given:
        said = {"generation": one.get("generation"), **_map(one, "objectPreconditions")}
        texts = {key: str(value) for key, value in said.items() if value is not None}
        sources.append(
            ObjectSource(
                bucket=bucket,
                name=one["name"],
                generation=number(texts, "generation"),
                conditions=Preconditions(generation=number(texts, "ifGenerationMatch")),
            )
        )
    return sources


def _map(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = body.get(key)
    if value is not None and not isinstance(value, dict):
        raise InvalidArgumentError(f"The field {key} of a compose is a JSON object.", field=key)
    return value or {}


def _full_for(request: Request, query: Mapping[str, str]) -> str:
    return project(request) if query.get("projection") == "full" else ""


def _answer(
    request: Request, query: Mapping[str, str], info: ObjectInfo, *, headers: Mapping[str, str] | None = None
) -> Response:
    return json_answer(object_body(info, base_url(request), full_for=_full_for(request, query)), headers=headers)


_LIST = "/storage/v1/b/{bucket}/o"
_OBJECT = "/storage/v1/b/{bucket}/o/{object}"
_TO = "b/{to_bucket}/o/{to_object}"


def _route(method: str, path: str, access: Access, handler: Handler) -> Route:
    return Route(method=method, path=path, access=access, scope=ProjectScope.BUCKET, handler=handler)


ROUTES = (
    _route("GET", _LIST, Access.READ, index),
    _route("GET", _OBJECT, Access.READ, show),
    _route("GET", f"/download{_OBJECT}", Access.READ, download),
    _route("PATCH", _OBJECT, Access.WRITE, _changes(merge=True)),
    _route("PUT", _OBJECT, Access.WRITE, _changes(merge=False)),
    _route("DELETE", _OBJECT, Access.WRITE, delete),
    _route("POST", f"{_OBJECT}/copyTo/{_TO}", Access.WRITE, copy),
    _route("POST", f"{_OBJECT}/rewriteTo/{_TO}", Access.WRITE, rewrite),
    _route("POST", f"{_OBJECT}/moveTo/o/{{to_object}}", Access.WRITE, move),
    _route("POST", f"{_OBJECT}/compose", Access.WRITE, compose),
)
