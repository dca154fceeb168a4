"""Uploads in parts of the XML API: begin, put a part, list the parts, complete and cancel."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.request import principal, services, trail
from trainshed.api.http.slow_work import COPIES, TRANSFERS, slow_work
from trainshed.api.storage.requests import draft, number
from trainshed.api.storage.resources import base_url
from trainshed.api.storage.uploads import staged_bytes
from trainshed.api.storage.xml_documents import Node, document, fields, named, read_elements
from trainshed.domain.objects import ObjectDraft
from trainshed.domain.times import rfc3339
from trainshed.errors import InvalidArgumentError
from trainshed.services.storage.objects import ObjectSource

MAX_LISTED = 1000


async def begin(request: Request, object_draft: ObjectDraft) -> Response:
    """Begin an upload in parts."""
    trail(request).name(object_draft.name)
    user = principal(request).user
    upload = await run_in_threadpool(services(request).part_uploads.begin, object_draft, user=user)
    body = [("Bucket", object_draft.bucket), ("Key", object_draft.name), ("UploadId", upload)]
    return document("InitiateMultipartUploadResult", body)


async def put_part(request: Request, query: Mapping[str, str]) -> Response:
    """Store the body as a part."""
    params = request.path_params
    part_number = number(query, "partNumber")
    if part_number is None:
        raise InvalidArgumentError("A part has a partNumber.", field="partNumber")
    part_draft = draft(params["bucket"], {"name": params["object"]}, {}, request.headers)
    uploads = services(request).part_uploads
    await run_in_threadpool(uploads.parts, _target(request), query["uploadId"])  # before its bytes
    async with staged_bytes(request, request.stream(), part_draft) as (staged, rest):
        add = partial(uploads.add, params["bucket"], query["uploadId"], part_number)
        store = partial(add, staged=staged, rest=rest, draft=part_draft)
        part = await slow_work(request, TRANSFERS).piece(request, store)
    md5 = base64.b64encode(bytes.fromhex(part.etag)).decode()
    headers = {"etag": f'"{part.etag}"', "x-goog-hash": f"crc32c={part.crc32c},md5={md5}"}
    return Response(b"", 200, headers)


async def list_parts(request: Request, query: Mapping[str, str]) -> Response:
    """Respond with the parts that were received, a page of them."""
    params = request.path_params
    after = number(query, "part-number-marker") or 0
    limit = min(number(query, "max-parts") or MAX_LISTED, MAX_LISTED)
    there = await run_in_threadpool(services(request).part_uploads.parts, _target(request), query["uploadId"])
    rest = [part for part in there if part.number > after]
    page = rest[:limit]
    body: list[Node] = [
        ("Bucket", params["bucket"]),
        ("Key", params["object"]),
        ("UploadId", query["uploadId"]),
        ("StorageClass", "STANDARD"),
        ("PartNumberMarker", after),
        ("NextPartNumberMarker", page[-1].number if page else ""),
        ("MaxParts", limit),
        ("IsTruncated", "true" if len(rest) > limit else "false"),
    ]
    parts: list[list[Node]] = [
        [
            ("PartNumber", part.number),
            ("LastModified", rfc3339(part.modified_us, digits=3)),
            ("ETag", f'"{part.etag}"'),
            ("Size", part.size),
        ]
        for part in page
    ]
    return document("ListPartsResult", [*named(body), *[("Part", part) for part in parts]])


async def complete(request: Request, query: Mapping[str, str]) -> Response:
    """Make the listed parts the object."""
    trail(request).name(request.path_params["object"])
    wanted = [_part(fields(element)) for element in await read_elements(request, "CompleteMultipartUpload")]
    join = partial(services(request).part_uploads.complete, _target(request), query["uploadId"], wanted)
    info = await slow_work(request, COPIES).run(request, join)
    body = [
        ("Location", f"{base_url(request)}/{info.bucket}/{info.name}"),
        ("Bucket", info.bucket),
        ("Key", info.name),
        ("ETag", f'"{info.etag}"'),
    ]
    headers = {"x-goog-generation": str(info.generation), "x-goog-hash": f"crc32c={info.crc32c}"}
    return document("CompleteMultipartUploadResult", body, headers=headers)


def _target(request: Request) -> ObjectSource:
    """Return the object that the path names."""
    return ObjectSource(bucket=request.path_params["bucket"], name=request.path_params["object"])


def _part(part: Mapping[str, str]) -> tuple[int, str]:
    part_number = number(part, "PartNumber")
    etag = part.get("ETag", "").strip().strip('"')
    if part_number is None or not etag:
        raise InvalidArgumentError("Each Part of a completed upload has a PartNumber and an ETag.")
    return part_number, etag


async def cancel(request: Request, query: Mapping[str, str]) -> Response:
    target = _target(request)
    trail(request).name(target.name)
    await run_in_threadpool(services(request).part_uploads.cancel, target, query["uploadId"])
    return Response(status_code=204)
