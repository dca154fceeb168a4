"""Routes of uploads: media alone, multipart with metadata, and resumable.

Bytes are written to disk as they arrive, in chunks of a megabyte, whatever the size of the object.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from trainshed.api.http.bodies import parse_json, read_json_object
from trainshed.api.http.multipart import Related
from trainshed.api.http.request import principal, project, services, trail
from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.api.http.slow_work import TRANSFERS, slow_work
from trainshed.api.storage.buckets import acls_ignored
from trainshed.api.storage.requests import draft, parameters
from trainshed.api.storage.resources import base_url, object_body, storage_response
from trainshed.domain.iam import Access
from trainshed.domain.objects import ObjectDraft, ObjectInfo
from trainshed.errors import InvalidArgumentError
from trainshed.services.storage.objects import PIECE, StagedObject, UploadSession

_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,19})-(\d{1,19}|\*)|\*)/(\d{1,19}|\*)")


async def insert(request: Request) -> Response:
    """Upload an object, or start a resumable upload. Some clients also continue a resumable upload by POST."""
    query = parameters(request)
    if "upload_id" in query:
        return await resume(request)
    kind = query.get("uploadType", "multipart")
    if kind not in _KINDS:
        raise InvalidArgumentError(f"The uploadType is {kind!r}; it can be {', '.join(_KINDS)}.")
    return await _KINDS[kind](request, query)


async def _insert_media(request: Request, query: Mapping[str, str]) -> Response:
    """Upload a body that is only the object's bytes."""
    body = {"contentType": request.headers.get("content-type", "")}
    if encoding := query.get("contentEncoding"):
        body["contentEncoding"] = encoding
    object_draft = draft(request.path_params["bucket"], query, body, request.headers)
    trail(request).name(object_draft.name)
    info = await store(request, request.stream(), object_draft)
    return _object_response(request, query, info)


async def _insert_multipart(request: Request, query: Mapping[str, str]) -> Response:
    """Upload metadata in JSON, then the bytes."""
    related = Related(request.headers.get("content-type", ""), request.stream())
    try:
        text = await related.description()
        await related.begin_media()
    except ClientDisconnect:
        raise _incomplete_body() from None
    body = parse_json(text) if text.strip() else {}
    if not isinstance(body, dict):
        raise InvalidArgumentError("The first part of a multipart upload must be a JSON object.")
    body.setdefault("contentType", related.media_type)
    object_draft = draft(request.path_params["bucket"], query, body, request.headers)
    trail(request).name(object_draft.name)
    info = await store(request, related.media(), object_draft)
    return _object_response(request, query, info, headers=acls_ignored(body))


async def _begin(request: Request, query: Mapping[str, str]) -> Response:
    """Start a resumable upload. The response has the URL for the bytes."""
    body = await read_json_object(request)
    body.setdefault("contentType", request.headers.get("x-upload-content-type", ""))
    object_draft = draft(request.path_params["bucket"], query, body, request.headers)
    trail(request).name(object_draft.name)
    upload = await run_in_threadpool(services(request).objects.begin, object_draft, user=principal(request).user)
    repeated = {key: query[key] for key in ("projection", "alt") if key in query}
    location_query = urlencode({"uploadType": "resumable", "name": object_draft.name, "upload_id": upload, **repeated})
    location = f"{base_url(request)}{request.scope['raw_path'].decode('ascii')}?{location_query}"
    headers = {"location": location, "x-guploader-uploadid": upload}
    return Response(b"", 200, headers | acls_ignored(body))


async def store(request: Request, stream: AsyncIterator[bytes], object_draft: ObjectDraft) -> ObjectInfo:
    """Write bytes to disk as they arrive, and make them the object."""
    async with staged_bytes(request, stream, object_draft) as (staged, last):
        return await slow_work(request, TRANSFERS).piece(
            request, services(request).objects.store, staged, last, object_draft
        )


@asynccontextmanager
async def staged_bytes(
    request: Request, stream: AsyncIterator[bytes], object_draft: ObjectDraft
) -> AsyncIterator[tuple[StagedObject | None, bytes]]:
    """Write bytes to disk as they arrive, but the last of them: few bytes need no file before they are all there."""
    objects, transfers = services(request).objects, slow_work(request, TRANSFERS)
    staged: StagedObject | None = None
    try:
        last = b""
        async for chunk in _chunks(stream):
            if last:
                if staged is None:
                    staged = await transfers.piece(request, objects.stage, object_draft)
                await transfers.piece(request, staged.write, last)
            last = chunk
        yield staged, last
    except BaseException:
        if staged is not None:
            staged.discard()
        raise


async def _chunks(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Join chunks until they are large enough for a write to disk."""
    buffer = bytearray()
    try:
        async for data in stream:
            buffer += data
            if len(buffer) >= PIECE:
                yield bytes(buffer)
                buffer.clear()
    except ClientDisconnect:
        if buffer:
            yield bytes(buffer)  # a resumable upload keeps the bytes received so far
        raise _incomplete_body() from None
    if buffer:
        yield bytes(buffer)


def _incomplete_body() -> InvalidArgumentError:
    return InvalidArgumentError("The request ended before its body was complete.")


@dataclass(frozen=True, slots=True)
class UploadRange:
    """The range of bytes in a request. `total` is None while the client does not know it."""

    start: int | None  #: None: the request has no bytes and asks for the offset of the upload
    stop: int | None  #: None: open-ended
    total: int | None


def parse_content_range(header: str) -> UploadRange:
    """Parse a Content-Range. Without one, the request has the whole object from its start."""
    if not header:
        return UploadRange(0, None, None)
    match = _CONTENT_RANGE.fullmatch(header.strip())
    if match is None:
        raise InvalidArgumentError(
            f"The Content-Range {header!r} is not like 'bytes 0-99/100', 'bytes 0-99/*' or 'bytes */100'."
        )
    first, last, total = match.groups()
    upload_range = UploadRange(
        None if first is None else int(first),
        None if last in (None, "*") else int(last) + 1,
        None if total == "*" else int(total),
    )
    if upload_range.start is not None and upload_range.stop is not None and upload_range.stop <= upload_range.start:
        raise InvalidArgumentError(f"The Content-Range {header!r} ends before it begins.")
    return upload_range


async def resume(request: Request) -> Response:
    """Append bytes to a resumable upload, or return its offset."""
    query = parameters(request)
    outcome = await resume_upload(request, name=query.get("name", ""))
    return outcome if isinstance(outcome, Response) else _object_response(request, query, outcome)


async def resume_upload(request: Request, *, name: str) -> ObjectInfo | Response:
    """Append bytes to a resumable upload. Returns the object if it is complete, else a response with its offset.

    `name` is that of the object, to find it if the upload has become it.
    """
    objects = services(request).objects
    upload_range = parse_content_range(request.headers.get("content-range", ""))
    session = await run_in_threadpool(
        objects.resume, request.path_params["bucket"], request.query_params.get("upload_id", ""), name
    )
    trail(request).name(session.name if isinstance(session, ObjectInfo) else session.draft.name)
    if isinstance(session, ObjectInfo):
        return session
    try:
        complete = await _append(request, session, upload_range)
        hashes = draft(session.draft.bucket, {}, {"name": session.draft.name}, request.headers)
    except BaseException:
        await slow_work(request, TRANSFERS).piece(request, objects.keep, session)
        raise
    if not complete:
        size = session.size
        await slow_work(request, TRANSFERS).piece(request, objects.keep, session)
        return Response(b"", 308, {"range": f"bytes=0-{size - 1}"} if size else {})
    session.draft = replace(
        session.draft, md5=session.draft.md5 or hashes.md5, crc32c=session.draft.crc32c or hashes.crc32c
    )
    return await slow_work(request, TRANSFERS).run(
        request, partial(objects.finish, session), otherwise=partial(objects.suspend, session)
    )


async def _append(request: Request, session: UploadSession, span: UploadRange) -> bool:
    """Append the request's bytes to the session. Returns whether the upload is complete."""
    if span.start is None:
        return span.total is not None and session.size == span.total
    if not request.headers.get("content-range"):
        await slow_work(request, TRANSFERS).piece(request, session.restart)
    if span.start > session.size:
        raise InvalidArgumentError(
            f"This request brings bytes from {span.start:,} on, but the upload has only the first {session.size:,}. "
            f"Ask how far it is with 'Content-Range: bytes */*'."
        )
    offset = span.start
    async for chunk in _chunks(request.stream()):
        unsent = chunk[max(0, session.size - offset) :]
        offset += len(chunk)
        if span.stop is not None and offset > span.stop:
            raise InvalidArgumentError("The request brings more bytes than its Content-Range says.")
        if unsent:
            await slow_work(request, TRANSFERS).piece(request, session.write, unsent)
    if span.stop is not None and offset < span.stop:
        raise InvalidArgumentError("The request brings fewer bytes than its Content-Range says.")
    if span.total is not None and session.size > span.total:
        raise InvalidArgumentError(
            f"The upload has {session.size:,} bytes already, more than the {span.total:,} it should have."
        )
    return session.size == span.total if span.total is not None else span.stop is None


async def cancel(request: Request) -> Response:
    query = parameters(request)
    await run_in_threadpool(services(request).objects.cancel, request.path_params["bucket"], query.get("upload_id", ""))
    return Response(status_code=499)  # Cloud Storage's status code, which clients expect


def _object_response(
    request: Request, query: Mapping[str, str], info: ObjectInfo, *, headers: Mapping[str, str] | None = None
) -> Response:
    full_for = project(request) if query.get("projection") == "full" else ""
    return storage_response(object_body(info, base_url(request), full_for=full_for), headers=headers)


_KINDS: Mapping[str, Callable[[Request, Mapping[str, str]], Awaitable[Response]]] = {
    "media": _insert_media,
    "multipart": _insert_multipart,
    "resumable": _begin,
}

_METHODS: tuple[tuple[str, Handler], ...] = (("POST", insert), ("PUT", resume), ("DELETE", cancel))

ROUTES = tuple(
    Route(method=method, path=path, access=Access.WRITE_OBJECTS, scope=ProjectScope.BUCKET, handler=handler)
    for path in ("/upload/storage/v1/b/{bucket}/o", "/resumable/upload/storage/v1/b/{bucket}/o")
    for method, handler in _METHODS
)
