"""Sending an object's bytes: at most one range, in chunks, and never in a form that a browser would run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trainshed.api.http.gunzip import UnpackedResponse, wants_unpacked
from trainshed.api.http.slow_work import TRANSFERS, slow_work
from trainshed.domain.objects import ObjectInfo
from trainshed.errors import OutOfRangeError, PermissionDeniedError
from trainshed.services.storage.objects import PIECE, ObjectReader, Objects, ObjectSource

_INLINE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "text/plain"})
#: what a browser with a session may use an object for: a script's fetch, a window, an image. Never a part of a page.
_ALLOWED_USES = frozenset({"", "empty", "document", "image"})
SMALL_PIECE = PIECE // 8  #: while the memory for responses is scarce
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes to send, from `start` up to but excluding `stop`."""

    start: int
    stop: int
    partial: bool


def parse_range(header: str, size: int) -> ByteRange:
    """Parse a Range header. Several ranges, and invalid ones, mean the whole object, as RFC 9110 allows."""
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
    """Respond to a read of an object's bytes."""
    _check_use(request)
    reader, part, data = await slow_work(request, TRANSFERS).piece(request, _open, objects, source, request)
    if part is None:
        whole = ByteRange(0, reader.info.size, partial=False)
        return UnpackedResponse(reader, _headers(reader.info, whole) | _display_headers(reader.info, request))
    headers = _headers(reader.info, part) | _display_headers(reader.info, request)
    status = 206 if part.partial else 200
    if data is not None:
        return Response(data, status, headers)
    return StreamedResponse(reader, part, status, headers)


def _open(
    objects: Objects, source: ObjectSource, request: Request
) -> tuple[ObjectReader, ByteRange | None, bytes | None]:
    """Open the object and find the range to send. Short ranges are read here, and the object is closed.

    The range is None if the object is unpacked for the client. A range of that is not known before.
    """
    reader = objects.open(source)
    try:
        if wants_unpacked(request, reader.info):
            return reader, None, None
        part = parse_range(request.headers.get("range", ""), reader.info.size)
        if part.stop - part.start > PIECE:
            return reader, part, None
        data = reader.read(part.start, part.stop - part.start)
    except BaseException:
        reader.close()
        raise
    reader.close()
    return reader, part, data


class SeekableBytes(Protocol):
    """Bytes with random access."""

    def read(self, offset: int, size: int) -> bytes:
        """Read `size` bytes at `offset`. Blocks."""

    def close(self) -> None:
        """Release the bytes."""


class StreamedResponse(Response):
    """Streams a range in chunks. Cuts the connection before the last chunk if the bytes are damaged."""

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
            connection = scope.get("trainshed.client")
            while offset < self._part.stop and not await client.is_disconnected():
                piece = PIECE
                if connection is not None:
                    await connection.drained()  # a client that does not read costs one piece
                    piece = SMALL_PIECE if connection.unread.is_scarce else PIECE
                size = min(piece, self._part.stop - offset)
                chunk = await slow_work(client, TRANSFERS).piece(client, self._reader.read, offset, size)
                offset += size
                await send({"type": "http.response.body", "body": chunk, "more_body": offset < self._part.stop})
        finally:
            self._reader.close()


def _check_use(request: Request) -> None:
    """Raises `PermissionDeniedError` if a page would run an object or use it as a style.

    To browsers an object is a file of the console's own server.
    """
    use = request.headers.get("sec-fetch-dest", "")
    if request.scope.get("trainshed.session") is not None and use not in _ALLOWED_USES:
        raise PermissionDeniedError(f"An object is not for use as a {use[:20]} of a page.")


def _display_headers(info: ObjectInfo, request: Request) -> dict[str, str]:
    """Return the headers that keep a browser from running an object.

    An object is anyone's content on the console's own origin. A browser with a session shows images and plain text,
    which run nothing, and saves the rest.
    """
    content_type = info.traits.content_type
    kind = (
        "" if "," in content_type else content_type.partition(";")[0].strip().lower()
    )  # of several types browsers use the last
    signed_in = request.scope.get("trainshed.session") is not None
    inline = signed_in and kind in _INLINE_TYPES
    cache_headers = (
        {"cache-control": "private, no-cache, no-transform"} if signed_in else {}
    )  # overrides what the writer set
    return cache_headers | {
        "content-disposition": "inline" if inline else "attachment",
        "x-content-type-options": "nosniff",
        "content-security-policy": "sandbox; default-src 'none'",
    }


def media_headers(info: ObjectInfo) -> dict[str, str]:
    """Return the headers of a download of the whole object."""
    return _headers(info, ByteRange(0, info.size, partial=False))


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
