"""Request bodies: limits first, then parsing."""

from __future__ import annotations

import re
import zlib
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from trainshed.errors import InvalidArgumentError, PayloadTooLargeError

CSV = "text/csv"  #: the content type of bodies that a route of predictions may refuse
MAX_DEPTH = 64
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)  # possessive: one pass over any input
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_GZIP_WBITS = 31  #: of zlib: with the header and the checksum of gzip
_MAX_INLINE_BYTES = 65_536  #: bytes parsed on the event loop; a thread parses more, so that other requests go on


async def read_body(request: Request, *, limit: int) -> bytes:
    """Read the body, unpacked if it is compressed. Raises `PayloadTooLargeError` after at most `limit` bytes."""
    coding = request.headers.get("content-encoding", "").lower() or "identity"
    if coding not in ("identity", "gzip"):
        raise InvalidArgumentError(
            f"A body with Content-Encoding {coding[:40]!r} is not read here. Send it as it is, or with gzip."
        )
    body = await _read_body(request, limit=limit)
    return body if coding == "identity" else await run_in_threadpool(_unpack, body, limit)


def _unpack(body: bytes, limit: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=_GZIP_WBITS)
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error as exc:
        raise InvalidArgumentError(f"The request body is not what its Content-Encoding, gzip, says: {exc}.") from None
    if len(unpacked) > limit:
        raise _too_large(limit)
    if not unpacker.eof or unpacker.unused_data:
        raise InvalidArgumentError("The compressed request body is cut off, or something follows it.")
    return unpacked


async def _read_body(request: Request, *, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if len(declared) > 18 or (declared.isdigit() and declared.isascii() and int(declared) > limit):
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
    except ClientDisconnect:
        raise InvalidArgumentError("The request ended before its body was complete.") from None
    return b"".join(parts)


def _too_large(limit: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(f"The request body is larger than {limit:,} bytes.")


def parse_json(body: bytes) -> Any:
    """Parse strict JSON of bounded depth: no NaN, no lone surrogates."""
    _check_depth(body)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise InvalidArgumentError(f"The request body is not JSON: {exc}.") from None


def _check_depth(body: bytes) -> None:
    """Remove the innermost pairs of brackets level by level. What remains after MAX_DEPTH levels is too deep."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    brackets = _STRINGS.sub(b"", body).translate(None, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if not brackets:
            return
    raise InvalidArgumentError(f"The request body is nested more than {MAX_DEPTH} deep, or its brackets don't match.")


async def read_json_object(request: Request, *, limit: int | None = None) -> dict[str, Any]:
    """Read a JSON object. No body is an empty object. The default limit is the server's."""
    body = await read_body(request, limit=limit or request.scope["trainshed.body_limit"])
    if not body.strip():
        return {}
    value = parse_json(body) if len(body) <= _MAX_INLINE_BYTES else await run_in_threadpool(parse_json, body)
    if not isinstance(value, dict):
        raise InvalidArgumentError("The request body must be a JSON object.")
    return value
