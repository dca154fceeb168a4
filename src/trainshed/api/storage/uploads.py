"""Routes by which objects come in: in one piece, with their description before them, or in pieces over time.

Bytes go to the disk as they come, a megabyte at a time, whatever the size of the object.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from trainshed.api.http.bodies import parse_json, read_json_object
from trainshed.api.http.multipart import Related
from trainshed.api.http.request import project, services
from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.api.storage.buckets import acls_ignored
from trainshed.api.storage.requests import draft, parameters
from trainshed.api.storage.resources import base_url, json_answer, object_body
from trainshed.domain.iam import Access
from trainshed.domain.objects import ObjectDraft, ObjectInfo
from trainshed.errors import InvalidArgumentError
from trainshed.services.storage.objects import PIECE, Objects, StagedObject, UploadSession

_SPAN = re.compile(r"bytes (?:(\d{1,19})-(\d{1,19}|\*)|\*)/(\d{1,19}|\*)")


async def insert(request: Request) -> Response:
    """One upload, or the beginning of a resumable one. Some clients also go on with those by POST."""
    query = parameters(request)
    if "upload_id" in query:
        return await resume(request)
    kind = query.get("uploadType", "multipart")
    if kind not in _KINDS:
        raise InvalidArgumentError(f"The uploadType is {kind!r}; it can be {', '.join(_KINDS)}.")
    return await _KINDS[kind](request, query)


async def _insert_media(request: Request, query: Mapping[str, str]) -> Response:
    """The body is the object's bytes and nothing else."""
    body = {"contentType": request.headers.get("content-type", "")}
    if encoding := query.get("contentEncoding"):
        body["contentEncoding"] = encoding
    wanted = draft(request.path_params["bucket"], query, body, request.headers)
    info = await _stored(services(request).objects, request.stream(), wanted)
    return _answer(request, query, info)


async def _insert_multipart(request: Request, query: Mapping[str, str]) -> Response:
    """A description in JSON, then the bytes."""
    related = Related(request.headers.get("content-type", ""), request.stream())
    try:
        text = await related.description()
        await related.begin_media()
    except ClientDisconnect:
        raise _cut_short() from None
    body = parse_json(text) if text.strip() else {}
    if not isinstance(body, dict):
        raise InvalidArgumentError("The first part of a multipart upload must be a JSON object.")
    body.setdefault("contentType", related.media_type)
    wanted = draft(request.path_params["bucket"], query, body, request.headers)
    info = await _stored(services(request).objects, related.media(), wanted)
    return _answer(request, query, info, headers=acls_ignored(body))


async def _begin(request: Request, query: Mapping[str, str]) -> Response:
    """The answer says where to send the bytes."""
    body = await read_json_object(request)
    body.setdefault("contentType", request.headers.get("x-upload-content-type", ""))
    wanted = draft(request.path_params["bucket"], query, body, request.headers)
    upload = await run_in_threadpool(services(request).objects.begin, wanted)
    again = {key: query[key] for key in ("projection", "alt") if key in query}
    address = urlencode({"uploadType": "resumable", "name": wanted.name, "upload_id": upload, **again})
    location = f"{base_url(request)}{request.scope['raw_path'].decode('ascii')}?{address}"
    headers = {"location": location, "x-guploader-uploadid": upload}
    return Response(b"", 200, headers | acls_ignored(body))


async def _stored(objects: Objects, stream: AsyncIterator[bytes], wanted: ObjectDraft) -> ObjectInfo:
    staged: StagedObject | None = None
    try:
        rest = b""
        async for piece in _pieces(stream):
            if rest:
                if staged is None:
                    staged = await run_in_threadpool(objects.stage, wanted)
                await run_in_threadpool(staged.write, rest)
            rest = piece
        return await run_in_threadpool(objects.store, staged, rest, wanted)
    except BaseException:
        if staged is not None:
            staged.discard()
        raise


async def _pieces(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, gathered to pieces that are worth a trip to the disk."""
    gathered = bytearray()
    try:
        async for data in stream:
            gathered += data
            if len(gathered) >= PIECE:
                yield bytes(gathered)
                gathered.clear()
    except ClientDisconnect:
        if gathered:
            yield bytes(gathered)  # a resumable upload keeps what has come
        raise _cut_short() from None
    if gathered:
        yield bytes(gathered)


def _cut_short() -> InvalidArgumentError:
    return InvalidArgumentError("The request ended before its body was complete.")


@dataclass(frozen=True, slots=True)
class UploadRange:
    """Which bytes of the whole a request brings. `total` is None while the client doesn't know it."""

    start: int | None  #: None: it brings none, and asks how far the upload is
    stop: int | None  #: None: as many as come
    total: int | None


def parse_content_range(header: str) -> UploadRange:
    """What a Content-Range says. Without one, the request brings the whole from its beginning."""
    if not header:
        return UploadRange(0, None, None)
    match = _SPAN.fullmatch(header.strip())
    if match is None:
        raise InvalidArgumentError(
            f"The Content-Range {header!r} is not like 'bytes 0-99/100', 'bytes 0-99/*' or 'bytes */100'."
        )
    first, last, total = match.groups()
    found = UploadRange(
        None if first is None else int(first),
        None if last in (None, "*") else int(last) + 1,
        None if total == "*" else int(total),
    )
    if found.start is not None and found.stop is not None and found.stop <= found.start:
        raise InvalidArgumentError(f"The Content-Range {header!r} ends before it begins.")
    return found


async def resume(request: Request) -> Response:
    """Bytes of a resumable upload, or the question how far it is."""
    query = parameters(request)
    objects = services(request).objects
    sent = parse_content_range(request.headers.get("content-range", ""))
    found = await run_in_threadpool(
        objects.resume, request.path_params["bucket"], query.get("upload_id", ""), query.get("name", "")
    )
    if isinstance(found, ObjectInfo):
        return _answer(request, query, found)
    try:
        complete = await _received(request, found, sent)
        hashes = draft(found.draft.bucket, {}, {"name": found.draft.name}, request.headers)
    except BaseException:
        await run_in_threadpool(objects.keep, found)
        raise
    if not complete:
        size = found.size
        await run_in_threadpool(objects.keep, found)
        return Response(b"", 308, {"range": f"bytes=0-{size - 1}"} if size else {})
    found.draft = replace(found.draft, md5=found.draft.md5 or hashes.md5, crc32c=found.draft.crc32c or hashes.crc32c)
    return _answer(request, query, await run_in_threadpool(objects.finish, found))


async def _received(request: Request, session: UploadSession, sent: UploadRange) -> bool:
    """Write what the request brings behind what is there. Whether the upload is complete now."""
    if sent.start is None:
        return sent.total is not None and session.size == sent.total
    if not request.headers.get("content-range"):
        await run_in_threadpool(session.restart)
    if sent.start > session.size:
        raise InvalidArgumentError(
            f"This request brings bytes from {sent.start:,} on, but the upload has only the first {session.size:,}. "
            f"Ask how far it is with 'Content-Range: bytes */*'."
        )
    at = sent.start
    async for piece in _pieces(request.stream()):
        fresh = piece[max(0, session.size - at) :]
        at += len(piece)
        if sent.stop is not None and at > sent.stop:
            raise InvalidArgumentError("The request brings more bytes than its Content-Range says.")
        if fresh:
            await run_in_threadpool(session.write, fresh)
    if sent.stop is not None and at < sent.stop:
        raise InvalidArgumentError("The request brings fewer bytes than its Content-Range says.")
    if sent.total is not None and session.size > sent.total:
        raise InvalidArgumentError(
            f"The upload has {session.size:,} bytes already, more than the {sent.total:,} it should have."
        )
    return session.size == sent.total if sent.total is not None else sent.stop is None


async def cancel(request: Request) -> Response:
    query = parameters(request)
    await run_in_threadpool(services(request).objects.cancel, request.path_params["bucket"], query.get("upload_id", ""))
    return Response(status_code=499)  # what Cloud Storage answers, and clients look for


def _answer(
    request: Request, query: Mapping[str, str], info: ObjectInfo, *, headers: Mapping[str, str] | None = None
) -> Response:
    full_for = project(request) if query.get("projection") == "full" else ""
    return json_answer(object_body(info, base_url(request), full_for=full_for), headers=headers)


_KINDS: Mapping[str, Callable[[Request, Mapping[str, str]], Awaitable[Response]]] = {
    "media": _insert_media,
    "multipart": _insert_multipart,
    "resumable": _begin,
}

_METHODS: tuple[tuple[str, Handler], ...] = (("POST", insert), ("PUT", resume), ("DELETE", cancel))

ROUTES = tuple(
    Route(method=method, path=path, access=Access.WRITE, scope=ProjectScope.BUCKET, handler=handler)
    for path in ("/upload/storage/v1/b/{bucket}/o", "/resumable/upload/storage/v1/b/{bucket}/o")
    for method, handler in _METHODS
)
