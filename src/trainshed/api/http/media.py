"""Sending an object's bytes: one range at most, in pieces, and never as something that a browser would run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trainshed.domain.objects import ObjectInfo
from trainshed.errors import OutOfRangeError, PermissionDeniedError
from trainshed.services.storage.objects import PIECE, ObjectReader, Objects, ObjectSource

_HARMLESS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "text/plain"})
#: what browsers want an object for, with a session: a script's own use, a window, a picture. Never as a part of a page.
_USES = frozenset({"", "empty", "document", "image"})
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes to send, from `start` up to but not including `stop`."""

    start: int
    stop: int
    partial: bool


def parse_range(header: str, size: int) -> ByteRange:
    """What a Range header asks for. Several ranges, and what is no range, ask for the whole; RFC 9110 allows it."""
    match = _RANGE.fullmatch(header.replace(" ", ""))
    if match is None or match[0] == "bytes=-":
        return ByteRange(0, size, partial=False)
    first, last = match[1], match[2]
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return ByteRange(0, size, partial=False)
    if start >= size:
        raise OutOfRangeError(f"The range {header!r} lies outside the object, which has {size:,} bytes.", size=size)
    return ByteRange(start, stop, partial=True)


async def media(request: Request, objects: Objects, source: ObjectSource) -> Response:
    """The answer to a read of an object's bytes."""
    _check_use(request)
    asked = request.headers.get("range", "")
    reader, part, data = await run_in_threadpool(_opened, objects, source, asked)
    headers = _headers(reader.info, part) | _shown(reader.info, request)
    status = 206 if part.partial else 200
    if data is not None:
        return Response(data, status, headers)
    return StreamedResponse(reader, part, status, headers)


def _opened(objects: Objects, source: ObjectSource, asked: str) -> tuple[ObjectReader, ByteRange, bytes | None]:
    """The object and the part of it to send; with the bytes, and closed, if they're few."""
    reader = objects.open(source)
    try:
        part = parse_range(asked, reader.info.size)
        if part.stop - part.start > PIECE:
            return reader, part, None
        data = reader.read(part.start, part.stop - part.start)
    except BaseException:
        reader.close()
        raise
    reader.close()
    return reader, part, data


class SeekableBytes(Protocol):
    """Bytes of which any part can be read."""

    def read(self, offset: int, size: int) -> bytes:
        """So many bytes from there on. Blocks."""

    def close(self) -> None:
        """Nobody reads any more."""


class StreamedResponse(Response):
    """Sends the pieces one by one. If the bytes turn out to be damaged, the connection is cut before the last."""

    def __init__(self, reader: SeekableBytes, part: ByteRange, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(None, status, headers)
        self._reader = reader
        self._part = part

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = Request(scope, receive)
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            offset = self._part.start
            if offset == self._part.stop:
                await send({"type": "http.response.body", "body": b""})
            while offset < self._part.stop and not await client.is_disconnected():
                size = min(PIECE, self._part.stop - offset)
                piece = await run_in_threadpool(self._reader.read, offset, size)
                offset += size
                await send({"type": "http.response.body", "body": piece, "more_body": offset < self._part.stop})
        finally:
            self._reader.close()


def _check_use(request: Request) -> None:
    """`PermissionDeniedError` where a page would run an object, or dress in it: to browsers it is a file of its own
    server.
    """
    use = request.headers.get("sec-fetch-dest", "")
    if request.scope.get("trainshed.session") is not None and use not in _USES:
        raise PermissionDeniedError(f"An object is not for use as a {use[:20]} of a page.")


def _shown(info: ObjectInfo, request: Request) -> dict[str, str]:
    """An object is anyone's content on the console's own origin: nothing in it may run. A browser with a session may
    look at pictures and plain text, for which it needs no program, and saves the rest.
    """
    whole = info.traits.content_type
    kind = "" if "," in whole else whole.partition(";")[0].strip().lower()  # of several, browsers take the last
    signed_in = request.scope.get("trainshed.session") is not None
    harmless = signed_in and kind in _HARMLESS
    own = {"cache-control": "private, no-cache, no-transform"} if signed_in else {}  # whatever the writer said
    return own | {
        "content-disposition": "inline" if harmless else "attachment",
        "x-content-type-options": "nosniff",
        "content-security-policy": "sandbox; default-src 'none'",
    }


def _headers(info: ObjectInfo, part: ByteRange) -> dict[str, str]:
    traits = info.traits
    hashes = [f"{name}={value}" for name, value in (("crc32c", info.crc32c), ("md5", info.md5)) if value]
    headers = {
        "content-type": traits.content_type,
        "content-length": str(part.stop - part.start),
        "accept-ranges": "bytes",
        "etag": f'"{info.etag}"',
        "x-goog-generation": str(info.generation),
        "x-goog-metageneration": str(info.metageneration),
        "x-goog-storage-class": traits.storage_class,
        "x-goog-stored-content-encoding": traits.content_encoding or "identity",
        "x-goog-stored-content-length": str(info.size),
        "cache-control": traits.cache_control or "no-cache, no-transform",
    }
    if hashes:
        headers["x-goog-hash"] = ",".join(hashes)
    if traits.content_encoding:
        headers["content-encoding"] = traits.content_encoding
    if traits.content_language:
        headers["content-language"] = traits.content_language
    if part.partial:
        headers["content-range"] = f"bytes {part.start}-{part.stop - 1}/{info.size}"
    return headers
