"""Request bodies: limits first, then parsing."""

from __future__ import annotations

import re
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request

from trainshed.errors import Invalid, TooLarge

MAX_DEPTH = 64
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)


async def read_body(request: Request, *, limit: int) -> bytes:
    """The body, or `TooLarge` after at most `limit` bytes of it."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
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
        raise Invalid("The request ended before its body was complete.") from None
    return b"".join(parts)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The request body is larger than {limit:,} bytes.")


def parse_json(body: bytes) -> Any:
    """Strict JSON of bounded depth: no NaN, no lone surrogates."""
    depth = 0
    for token in re.finditer(rb"[\[\]{}]", _STRINGS.sub(b'""', body)):
        depth += 1 if token[0] in b"[{" else -1
        if depth > MAX_DEPTH:
            raise Invalid(f"The request body is nested more than {MAX_DEPTH} deep.")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise Invalid(f"The request body is not JSON: {exc}.") from None


async def read_json_object(request: Request, *, limit: int | None = None) -> dict[str, Any]:
    """The JSON object in a request; no body at all counts as an empty one. The limit is the server's unless given."""
    body = await read_body(request, limit=limit or request.scope["trainshed.body_limit"])
    value = parse_json(body) if body.strip() else {}
    if not isinstance(value, dict):
        raise Invalid("The request body must be a JSON object.")
    return value
