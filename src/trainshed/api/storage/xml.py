"""Objects in Cloud Storage's XML API: GET, HEAD, PUT (also a copy), DELETE, and POST, which begins uploads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.media import media_headers
from trainshed.api.http.request import principal, project, services, trail
from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.api.http.slow_work import COPIES, slow_work
from trainshed.api.storage import xml_parts, xml_policies
from trainshed.api.storage.objects import download
from trainshed.api.storage.requests import draft, not_public, number, parameters, source
from trainshed.api.storage.resources import base_url
from trainshed.api.storage.uploads import resume_upload, store
from trainshed.api.storage.xml_documents import document
from trainshed.domain.iam import Access
from trainshed.domain.objects import ObjectDraft, ObjectInfo, Preconditions
from trainshed.domain.storage import xml_paths
from trainshed.domain.times import rfc3339
from trainshed.errors import InvalidArgumentError
from trainshed.services.storage.objects import ObjectSource

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
_COPY = "x-goog-copy-source"
_SOURCE_CONDITIONS = {
    f"{_COPY}-if-generation-match": "ifGenerationMatch",
    f"{_COPY}-if-metageneration-match": "ifMetagenerationMatch",
}
_ANSWERED_HEADERS = ("etag", "x-goog-generation", "x-goog-metageneration", "x-goog-hash", "x-goog-storage-class")
_PRIVATE_ACLS = frozenset({"private", "projectprivate", "bucketownerfullcontrol", "bucketownerread"})
#: parameters of signed downloads that set a header of the response
_OVERRIDES = {"response-content-disposition": "content-disposition", "response-content-type": "content-type"}


async def get(request: Request) -> Response:
    """Respond with an object, its access list, or the parts of an upload."""
    query = parameters(request)
    if "uploadId" in query:
        return await xml_parts.list_parts(request, query)
    if "acl" in query:
        return xml_policies.access_list(project(request))
    xml_policies.refuse_others(query)
    response = await download(request)
    for name, header in _OVERRIDES.items():
        if (value := query.get(name)) and request.scope.get("trainshed.session") is None:
            response.headers[header] = _shown(value, header)
    return response


def _shown(value: str, header: str) -> str:
    """Check a header that a URL sets. A browser saves what it gets, whatever its type."""
    if not value.isascii() or not value.isprintable() or len(value) > 1024:
        raise InvalidArgumentError(f"The URL sets a {header} with other characters than ASCII, or a long one.")
    if header == "content-disposition" and not value.lower().startswith("attachment"):
        return "attachment"
    return value


async def put(request: Request) -> Response:
    """Store the body as an object or as a part of an upload, or copy an object. Metadata is in headers."""
    query = parameters(request)
    if "upload_id" in query:
        return await _continue(request)
    if "uploadId" in query:
        return await xml_parts.put_part(request, query)
    xml_policies.refuse_writes(query)
    if _COPY in request.headers:
        return await _copy(request, query)
    object_draft = object_draft_of(request, query)
    trail(request).name(object_draft.name)
    return Response(b"", 200, answered_headers(await store(request, request.stream(), object_draft)))


def object_draft_of(request: Request, query: Mapping[str, str]) -> ObjectDraft:
    """Describe an object by the headers of a request. Raises `InvalidArgumentError` if it should be public."""
    headers, params = request.headers, request.path_params
    if headers.get("x-goog-acl", "private").replace("-", "").lower() not in _PRIVATE_ACLS:
        raise not_public("x-goog-acl")
    fields: dict[str, Any] = {field: headers[name] for name, field in _FIELDS.items() if name in headers}
    fields["metadata"] = {name.removeprefix(_META): headers[name] for name in headers if name.startswith(_META)}
    conditions = {field: headers[name] for name, field in _CONDITIONS.items() if name in headers}
    return draft(params["bucket"], {**query, **conditions, "name": params["object"]}, fields, headers)


def answered_headers(info: ObjectInfo) -> dict[str, str]:
    """Return what the response to a write says of the object."""
    shown = media_headers(info)
    return {name: shown[name] for name in _ANSWERED_HEADERS if name in shown}


async def _copy(request: Request, query: Mapping[str, str]) -> Response:
    bucket, _, name = unquote(request.headers[_COPY]).removeprefix("/").partition("/")
    await xml_policies.check_readable(request, bucket)
    headers = request.headers
    conditions = {field: headers[key] for key, field in _SOURCE_CONDITIONS.items() if key in headers}
    source_object = ObjectSource(
        bucket=bucket,
        name=name,
        generation=number({"generation": headers.get(f"{_COPY}-generation", "")}, "generation"),
        conditions=Preconditions(
            generation=number(conditions, "ifGenerationMatch"),
            metageneration=number(conditions, "ifMetagenerationMatch"),
        ),
    )
    directive = headers.get("x-goog-metadata-directive", "COPY").upper()
    if directive not in ("COPY", "REPLACE"):
        raise InvalidArgumentError("The x-goog-metadata-directive is COPY or REPLACE.")
    copy = partial(services(request).objects.copy, source_object, object_draft_of(request, query), principal(request))
    info = await slow_work(request, COPIES).run(request, partial(copy, keep_traits=directive == "COPY"))
    body = [("LastModified", rfc3339(info.updated_us, digits=3)), ("ETag", f'"{info.etag}"')]
    return document("CopyObjectResult", body, headers=answered_headers(info))


async def post(request: Request) -> Response:
    """Begin an upload, resumable or in parts, or complete one in parts."""
    query = parameters(request)
    if "uploads" in query:
        return await xml_parts.begin(request, object_draft_of(request, query))
    if "uploadId" in query:
        return await xml_parts.complete(request, query)
    if request.headers.get("x-goog-resumable", "").lower() != "start":
        raise InvalidArgumentError(
            "A POST to an object begins an upload (x-goog-resumable: start, or ?uploads) or completes one (?uploadId=)."
        )
    object_draft = object_draft_of(request, query)
    trail(request).name(object_draft.name)
    upload = await run_in_threadpool(services(request).objects.begin, object_draft, user=principal(request).user)
    headers = {"location": f"{_own_url(request)}?upload_id={upload}", "x-guploader-uploadid": upload}
    return Response(b"", 201, headers)


def _own_url(request: Request) -> str:
    """Return the URL of the object, as the client named it."""
    params = request.path_params
    path = quote(params["object"])
    if not xml_paths.host_bucket(request.headers.get("host", "")):
        path = f"{params['bucket']}/{path}"
    return f"{base_url(request)}/{path}"


async def _continue(request: Request) -> Response:
    """Append bytes to a resumable upload. Its end has headers only."""
    outcome = await resume_upload(request, name=request.path_params["object"])
    return outcome if isinstance(outcome, Response) else Response(b"", 200, answered_headers(outcome))


async def delete(request: Request) -> Response:
    query = parameters(request)
    if "uploadId" in query:
        return await xml_parts.cancel(request, query)
    xml_policies.refuse_writes(query)
    await run_in_threadpool(services(request).objects.delete, source(request, query))
    return Response(status_code=204)


def _route(method: str, access: Access, handler: Handler) -> Route:
    return Route(
        method=method, path=xml_paths.OBJECT, access=access, scope=ProjectScope.BUCKET, handler=handler, xml_errors=True
    )


ROUTES = (
    _route("GET", Access.READ_OBJECTS, get),
    _route("PUT", Access.WRITE_OBJECTS, put),
    _route("POST", Access.WRITE_OBJECTS, post),
    _route("DELETE", Access.WRITE_OBJECTS, delete),
)
