"""Routes of the Cloud Storage JSON API for objects, except uploads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.media import media, media_headers
from trainshed.api.http.request import principal, project, services
from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.api.http.slow_work import CHECKSUMS, CLOUD_LISTINGS, COPIES, LISTINGS, slow_work
from trainshed.api.storage.buckets import acls_ignored
from trainshed.api.storage.requests import (
    draft,
    known_only,
    list_query,
    number,
    object_metadata,
    parameters,
    preconditions,
    source,
)
from trainshed.api.storage.resources import base_url, object_body, page_body, storage_response
from trainshed.domain.iam import Access
from trainshed.domain.objects import ListQuery, ObjectInfo, ObjectPage, Preconditions
from trainshed.errors import InvalidArgumentError
from trainshed.services.storage.objects import ObjectSource


async def index(request: Request) -> Response:
    query = parameters(request)
    page = await list_page(request, request.path_params["bucket"], list_query(query))
    return storage_response(page_body(page, base_url(request), full_for=_full_for(request, query)))


async def list_page(request: Request, bucket: str, wanted: ListQuery) -> ObjectPage:
    """Return a page of a bucket's objects."""
    objects = services(request).objects
    kind = CLOUD_LISTINGS if objects.in_cloud(bucket) else LISTINGS
    page = await slow_work(request, kind).run(request, partial(objects.list, bucket, wanted))
    if wanted.checksums:
        page = replace(page, items=tuple(await _with_checksums(request, page.items)))
    return page


async def show(request: Request) -> Response:
    query = parameters(request)
    objects = services(request).objects
    if query.get("alt") == "media":
        return _with_plain_etag(await media(request, objects, source(request, query)))
    info = await run_in_threadpool(objects.get, source(request, query))
    return _object_response(request, query, *await _with_checksums(request, [info]))


async def _with_checksums(request: Request, items: Sequence[ObjectInfo]) -> Sequence[ObjectInfo]:
    """Return objects with their checksums. Files that other programs wrote are read for them, within limits."""
    objects = services(request).objects
    if not objects.lack_checksums(items):
        return items
    return await slow_work(request, CHECKSUMS).run(request, partial(objects.with_checksums, items))


async def download(request: Request) -> Response:
    """Respond with the bytes of an object, or with the headers alone."""
    if request.method == "HEAD":
        return await _head(request)
    return _with_plain_etag(await media(request, services(request).objects, source(request, parameters(request))))


def _with_plain_etag(response: Response) -> Response:
    """Drop the quotes of the entity tag, as Google does here: clients compare it with that of the resource."""
    response.headers["etag"] = response.headers["etag"].strip('"')
    return response


async def _head(request: Request) -> Response:
    info = await run_in_threadpool(services(request).objects.get, source(request, parameters(request)))
    (info,) = await _with_checksums(request, [info])
    return _with_plain_etag(Response(headers=media_headers(info)))


def _change_handler(*, merge: bool) -> Handler:
    async def change(request: Request) -> Response:
        query = parameters(request)
        body = await read_json_object(request)
        info = await run_in_threadpool(
            services(request).objects.patch, source(request, query), lambda old: object_metadata(old, body, merge=merge)
        )
        (info,) = await _with_checksums(request, [info])
        return _object_response(request, query, info, headers=acls_ignored(body))

    return change


async def delete(request: Request) -> Response:
    await run_in_threadpool(services(request).objects.delete, source(request, parameters(request)))
    return Response(status_code=204)


async def copy(request: Request) -> Response:
    query = parameters(request)
    return _object_response(request, query, await _copy(request, query))


async def rewrite(request: Request) -> Response:
    """Copy an object. The copy is complete in the first response, so no second call is needed."""
    query = parameters(request)
    info = await _copy(request, query)
    body = {
        "kind": "storage#rewriteResponse",
        "totalBytesRewritten": str(info.size),
        "objectSize": str(info.size),
        "done": True,
        "resource": object_body(info, base_url(request), full_for=_full_for(request, query)),
    }
    return storage_response(body)


async def move(request: Request) -> Response:
    query = parameters(request)
    params = request.path_params
    destination = draft(params["bucket"], {**query, "name": params["to_object"]}, {}, {})
    move_object = partial(services(request).objects.move, _copy_source(request, query), destination, principal(request))
    info = await slow_work(request, COPIES).run(request, move_object)
    return _object_response(request, query, info)


def _copy_source(request: Request, query: Mapping[str, str]) -> ObjectSource:
    return ObjectSource(
        bucket=request.path_params["bucket"],
        name=request.path_params["object"],
        generation=number(query, "sourceGeneration"),
        conditions=preconditions(query, of="ifSource"),
    )


async def _copy(request: Request, query: Mapping[str, str]) -> ObjectInfo:
    params = request.path_params
    body = await read_json_object(request)
    source_object = _copy_source(request, query)
    destination = draft(params["to_bucket"], {**query, "name": params["to_object"]}, _copy_metadata(body), {})
    copy_object = partial(services(request).objects.copy, source_object, destination, principal(request))
    storage_class = destination.traits.storage_class if body.get("storageClass") else ""
    work = partial(copy_object, keep_traits=not _has_metadata(body), storage_class=storage_class)
    return await slow_work(request, COPIES).run(request, work)


def _copy_metadata(body: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the name, which the path sets, and the checksums, which are those of the source as the client knew it."""
    return {key: value for key, value in body.items() if key not in ("name", "md5Hash", "crc32c")}


def _has_metadata(body: Mapping[str, Any]) -> bool:
    """Return whether a copy's body describes the copy. A storage class alone does not: the source supplies the rest."""
    return bool(set(body) - {"name", "bucket", "storageClass", "acl", "kind"})


async def compose(request: Request) -> Response:
    query = parameters(request)
    body = await read_json_object(request)
    known_only(body, {"kind", "sourceObjects", "destination", "deleteSourceObjects"}, what="a compose request")
    delete_sources = body.get("deleteSourceObjects") or False
    if not isinstance(delete_sources, bool):
        raise InvalidArgumentError("deleteSourceObjects is true or false.", field="deleteSourceObjects")
    params = request.path_params
    destination = draft(
        params["bucket"], {**query, "name": params["object"]}, _copy_metadata(_map(body, "destination")), {}
    )
    sources = _sources(params["bucket"], body)
    compose_object = partial(services(request).objects.compose, sources, destination)
    work = partial(compose_object, delete_sources=delete_sources)
    info = await slow_work(request, COPIES).run(request, work)
    return _object_response(request, query, info)


def _sources(bucket: str, body: Mapping[str, Any]) -> list[ObjectSource]:
    items = body.get("sourceObjects")
    if not isinstance(items, list) or not all(
        isinstance(item, dict) and isinstance(item.get("name"), str) for item in items
    ):
        raise InvalidArgumentError(
            "The sourceObjects of a compose are a list of objects with a name.", field="sourceObjects"
        )
    sources = []
    for item in items:
        fields = {"generation": item.get("generation"), **_map(item, "objectPreconditions")}
        parameters = {key: str(value) for key, value in fields.items() if value is not None}
        sources.append(
            ObjectSource(
                bucket=bucket,
                name=item["name"],
                generation=number(parameters, "generation"),
                conditions=Preconditions(generation=number(parameters, "ifGenerationMatch")),
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


def _object_response(
    request: Request, query: Mapping[str, str], info: ObjectInfo, *, headers: Mapping[str, str] | None = None
) -> Response:
    return storage_response(object_body(info, base_url(request), full_for=_full_for(request, query)), headers=headers)


_LIST = "/storage/v1/b/{bucket}/o"
_OBJECT = "/storage/v1/b/{bucket}/o/{object}"
_DESTINATION = "b/{to_bucket}/o/{to_object}"


def _route(method: str, path: str, access: Access, handler: Handler) -> Route:
    return Route(method=method, path=path, access=access, scope=ProjectScope.BUCKET, handler=handler)


ROUTES = (
    _route("GET", _LIST, Access.READ_OBJECTS, index),
    _route("GET", _OBJECT, Access.READ_OBJECTS, show),
    _route("GET", f"/download{_OBJECT}", Access.READ_OBJECTS, download),
    _route("PATCH", _OBJECT, Access.WRITE_OBJECTS, _change_handler(merge=True)),
    _route("PUT", _OBJECT, Access.WRITE_OBJECTS, _change_handler(merge=False)),
    _route("DELETE", _OBJECT, Access.WRITE_OBJECTS, delete),
    _route("POST", f"{_OBJECT}/copyTo/{_DESTINATION}", Access.WRITE_OBJECTS, copy),
    _route("POST", f"{_OBJECT}/rewriteTo/{_DESTINATION}", Access.WRITE_OBJECTS, rewrite),
    _route("POST", f"{_OBJECT}/moveTo/o/{{to_object}}", Access.WRITE_OBJECTS, move),
    _route("POST", f"{_OBJECT}/compose", Access.WRITE_OBJECTS, compose),
)
