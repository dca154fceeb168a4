"""Buckets in Cloud Storage's XML API: lists of objects and uploads, settings that it shows, PUT and DELETE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.auth import project_id
from trainshed.api.http.request import principal, project, services, trail
from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.api.http.slow_work import BUCKET_DELETES, slow_work
from trainshed.api.storage import xml_policies
from trainshed.api.storage.objects import list_page
from trainshed.api.storage.requests import number, page_start, page_token, parameters, preconditions
from trainshed.api.storage.xml_documents import Node, bare, document, named, read_elements
from trainshed.domain.iam import ALL_PROJECTS, Access, Principal
from trainshed.domain.objects import Bucket, ListQuery, ObjectInfo, ObjectPage
from trainshed.domain.storage import xml_paths
from trainshed.domain.times import rfc3339
from trainshed.errors import InvalidArgumentError, PermissionDeniedError
from trainshed.services.registry import Services

MAX_KEYS = 1000
_PROJECT = "x-goog-project-id"


async def get(request: Request) -> Response:
    """List objects or uploads, or show a setting. HEAD says that the bucket is there."""
    query = parameters(request)
    name = request.path_params["bucket"]
    if request.method == "HEAD":
        await run_in_threadpool(services(request).buckets.get, name)
        return Response(b"", 200, media_type="application/xml; charset=UTF-8")
    if "uploads" in query:
        return await _uploads(request, query)
    if "acl" in query:
        return xml_policies.access_list(project(request))
    for setting, show in _SETTINGS.items():
        if setting in query:
            return show(await run_in_threadpool(services(request).buckets.get, name))
    xml_policies.refuse_others(query)
    return await _objects(request, query)


async def _objects(request: Request, query: Mapping[str, str]) -> Response:
    second = query.get("list-type") == "2"
    versions = "versions" in query
    limit = min(MAX_KEYS if (given := number(query, "max-keys")) is None else given, MAX_KEYS)
    after = page_start({"pageToken": query.get("continuation-token", "")}) if second else query.get("marker", "")
    wanted = ListQuery(
        prefix=query.get("prefix", ""),
        delimiter=query.get("delimiter", ""),
        after=after or query.get("start-after", ""),
        limit=max(1, limit),
        versions=versions,
        checksums=False,
    )
    page = await list_page(request, request.path_params["bucket"], wanted) if limit else ObjectPage()
    encode = quote if query.get("encoding-type") == "url" else str
    head: list[Node] = [
        ("Name", request.path_params["bucket"]),
        ("Prefix", encode(wanted.prefix)),
        ("Delimiter", encode(wanted.delimiter)),
        ("MaxKeys", limit),
        ("EncodingType", query.get("encoding-type", "")),
        ("IsTruncated", "true" if page.next else "false"),
    ]
    if second:
        head += [("KeyCount", len(page.items) + len(page.prefixes)), ("StartAfter", query.get("start-after", ""))]
        head += [("NextContinuationToken", page_token(page.next) if page.next else "")]
    else:
        head += [("Marker", encode(wanted.after)), ("NextMarker", encode(page.next))]
    items: list[Node] = [("Version" if versions else "Contents", _item(info, encode)) for info in page.items]
    items += [("CommonPrefixes", [("Prefix", encode(prefix))]) for prefix in page.prefixes]
    return document("ListVersionsResult" if versions else "ListBucketResult", [*named(head), *items])


def _item(info: ObjectInfo, encode: Callable[[str], str]) -> Sequence[Node]:
    return [
        ("Key", encode(info.name)),
        ("Generation", info.generation),
        ("MetaGeneration", info.metageneration),
        ("LastModified", rfc3339(info.updated_us, digits=3)),
        ("ETag", f'"{info.etag}"'),
        ("Size", info.size),
        ("StorageClass", info.traits.storage_class),
        *([("DeletedTime", rfc3339(info.deleted_us, digits=3))] if info.deleted_us else []),
    ]


async def _uploads(request: Request, query: Mapping[str, str]) -> Response:
    bucket = request.path_params["bucket"]
    list_uploads = services(request).part_uploads.uploads
    found = await run_in_threadpool(list_uploads, bucket, prefix=query.get("prefix", ""))
    if len(found) > MAX_KEYS:
        raise InvalidArgumentError(f"The bucket has more than {MAX_KEYS:,} uploads. List those of a prefix.")
    body: list[Node] = [("Bucket", bucket), ("MaxUploads", MAX_KEYS), ("IsTruncated", "false")]
    for each in found:
        begun = rfc3339(each.begun_us, digits=3)
        body.append(("Upload", [("Key", each.name), ("UploadId", each.upload), ("Initiated", begun)]))
    return document("ListMultipartUploadsResult", body)


def _location(bucket: Bucket) -> Response:
    return document("LocationConstraint", bucket.location)


def _storage_class(bucket: Bucket) -> Response:
    return document("StorageClass", bucket.storage_class)


def _versioning(bucket: Bucket) -> Response:
    enabled = bucket.settings.get("versioning", {}).get("enabled")
    return document("VersioningConfiguration", [("Status", "Enabled" if enabled else "Suspended")])


_SETTINGS: Mapping[str, Callable[[Bucket], Response]] = {
    "location": _location,
    "storageClass": _storage_class,
    "versioning": _versioning,
}


async def put(request: Request) -> Response:
    """Create a bucket in the project of the header, or of the token."""
    query = parameters(request)
    xml_policies.refuse_writes(query)
    if any(name in query for name in _SETTINGS):
        raise InvalidArgumentError("Settings of a bucket are changed by the JSON API.")
    name, caller = request.path_params["bucket"], principal(request)
    owner = await run_in_threadpool(_project_of, request.headers.get(_PROJECT, ""), caller, services(request))
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    elements = await read_elements(request, "CreateBucketConfiguration") if has_body else []
    given = {bare(element.tag): element.text or "" for element in elements}
    trail(request).name(name)
    make = partial(services(request).buckets.make, owner, name)
    location, storage_class = given.get("LocationConstraint", ""), given.get("StorageClass", "")
    await run_in_threadpool(make, location=location, storage_class=storage_class)
    return Response(b"", 200)


def _project_of(named_project: str, caller: Principal, services: Services) -> str:
    """Return the project of a new bucket. Raises `PermissionDeniedError` if the caller may not write there."""
    if not named_project and caller.project == ALL_PROJECTS:
        raise InvalidArgumentError(f"Name the project of the bucket in the header {_PROJECT}.", field=_PROJECT)
    owner = project_id(named_project or caller.project, caller, services)
    if not caller.may(Access.WRITE, owner):
        raise PermissionDeniedError(f"This token ({caller.role}) may not make buckets in project {owner}.")
    return owner


async def delete(request: Request) -> Response:
    query = parameters(request)
    xml_policies.refuse_writes(query)
    work = partial(services(request).buckets.delete, request.path_params["bucket"], preconditions({}))
    await slow_work(request, BUCKET_DELETES).run(request, work)
    return Response(status_code=204)


def _route(method: str, access: Access, scope: ProjectScope, handler: Handler) -> Route:
    return Route(method=method, path=xml_paths.BUCKET, access=access, scope=scope, handler=handler, xml_errors=True)


ROUTES = (
    _route("GET", Access.READ_OBJECTS, ProjectScope.BUCKET, get),
    _route("PUT", Access.WRITE, ProjectScope.BODY, put),
    _route("DELETE", Access.WRITE, ProjectScope.BUCKET, delete),
)
