"""Forwards requests to processes on loopback or unix sockets, or over connections that others open, and streams the
responses."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainshed.errors import UnavailableError

MAX_HEAD_BYTES = 65_536
_RESPONSE_TIMEOUT_S = 60.0  #: for the head of a response, and for each chunk of its body
_CHUNK_BYTES = 1 << 16

#: a response that is truncated, too long, or not HTTP
_RESPONSE_ERRORS = (
    *(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError),
    *(ValueError, http.client.HTTPException),
)

Headers = Sequence[tuple[str, str]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxiedResponse:
    """A response whose body is still to be read. Callers read `pieces` to the end, or call `close`."""

    status: int
    headers: Headers
    pieces: AsyncGenerator[bytes]
    close: Callable[[], None] = lambda: None  #: closes the connection, read or not; idempotent


async def forward(address: int | Path, method: str, target: bytes, headers: Headers, body: bytes) -> ProxiedResponse:
    """Forward a request to a port of loopback, or to a unix socket. Raises `UnavailableError` if it does not respond.

    `headers` and `target` must contain no line breaks.
    """
    try:
        if isinstance(address, Path):
            streams = await asyncio.open_unix_connection(address, limit=MAX_HEAD_BYTES)
        else:
            streams = await asyncio.open_connection("127.0.0.1", address, limit=MAX_HEAD_BYTES)
    except OSError as exc:
        raise UnavailableError("The process behind this address does not answer.") from exc
    length = [("content-length", str(len(body)))] if body or method == "POST" else []
    host = "localhost" if isinstance(address, Path) else f"127.0.0.1:{address}"
    try:
        return await exchange(streams, method, target, [("host", host), *headers, *length], body)
    except ResponseError as exc:
        raise UnavailableError("The process behind this address broke off.") from exc


class ResponseError(Exception):
    """There was no response, or none that can be passed on."""


async def exchange(
    streams: Streams, method: str, target: bytes, headers: Headers, body: bytes = b""
) -> ProxiedResponse:
    """Send a request over a new connection. Raises `ResponseError`; the connection is closed then.

    `headers` and `target` must contain no line breaks. The request is HTTP/1.0: the response ends with the connection,
    so its body needs no parsing.
    """
    reader, writer = streams
    lines = [f"{method} ".encode() + target + b" HTTP/1.0"]
    lines += [f"{name}: {value}".encode("latin-1") for name, value in headers]
    try:
        writer.write(b"\r\n".join([*lines, b"", b""]) + body)
        async with asyncio.timeout(_RESPONSE_TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
        status, response_headers = _parse_head(head)
    except _RESPONSE_ERRORS as exc:
        writer.close()
        raise ResponseError(f"{type(exc).__name__}: {exc}") from exc
    except BaseException:
        writer.close()
        raise
    return ProxiedResponse(status=status, headers=response_headers, pieces=_chunks(reader, writer), close=writer.close)


async def _chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncGenerator[bytes]:
    try:
        while True:
            async with asyncio.timeout(_RESPONSE_TIMEOUT_S):
                chunk = await reader.read(_CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
    finally:
        writer.close()
        with contextlib.suppress(OSError):  # the response is complete or no longer needed
            await writer.wait_closed()


def _parse_head(head: bytes) -> tuple[int, Headers]:
    first, _, rest = head.partition(b"\r\n")
    words = first.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ValueError("no HTTP")
    status, headers = int(words[1]), list(http.client.parse_headers(io.BytesIO(rest)).items())
    if not 200 <= status < 600 or any("\r" in value or "\n" in value for _, value in headers):
        raise ValueError("an answer that can't be passed on: not a final one, or with a header of several lines")
    if any(name.lower() == "transfer-encoding" for name, _ in headers):
        raise ValueError("an answer in chunks, which HTTP/1.0 does not have")
    return status, headers
