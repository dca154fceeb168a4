"""Multipart bodies: an upload's two parts as they stream in, and the requests in a batch.

Clients of Google's write them in two ways: lines that end in CRLF, or in LF alone; a boundary in double quotes, in
single quotes, or in none. How the first line ends says how all of them do, so that no byte of the media is guessed at.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from trainshed.errors import InvalidArgumentError, PayloadTooLargeError

MAX_HEAD = 1 << 20  #: bytes before the media begins
MAX_PARTS = 100  #: requests in a batch, as many as Cloud Storage takes

_BOUNDARY = re.compile(r"""boundary\s*=\s*("[^"]*"|'[^']*'|[^;\s]+)""", re.IGNORECASE)


def boundaries(content_type: str) -> tuple[bytes, ...]:
    """What may separate the parts. In single quotes it is one of two: with the quotes and without."""
    match = _BOUNDARY.search(content_type)
    text = match[1] if match else ""
    bare = text[1:-1] if text[:1] in ('"', "'") else text
    if not bare or len(bare) > 200:
        raise InvalidArgumentError(
            "The Content-Type of a multipart request must have a boundary of at most 200 characters."
        )
    return tuple(dict.fromkeys((bare.encode(), text.strip('"').encode())))


class Related:
    """The two parts of an upload: what the object is, then its bytes."""

    def __init__(self, content_type: str, stream: AsyncIterator[bytes]) -> None:
        self._boundaries = boundaries(content_type)
        self._stream = stream
        self._buffer = b""
        self._line_end = b""
        self._delimiter = b""
        self.media_type = ""  #: what the second part says that it is

    async def description(self) -> bytes:
        """The body of the first part. Read it first."""
        await self._find_beginning()
        while (at := self._buffer.find(self._delimiter)) < 0:
            await self._more(limit=MAX_HEAD)
        _, _, body = self._buffer[:at].partition(self._line_end * 2)
        self._buffer = self._buffer[at + len(self._delimiter) :]
        return body

    async def begin_media(self) -> None:
        """Read the head of the second part. Then `media_type` is known."""
        blank = self._line_end * 2
        while blank not in self._buffer:
            await self._more(limit=MAX_HEAD)
        head, _, self._buffer = self._buffer.partition(blank)
        self.media_type = headers_of(head).get("content-type", "")

    async def media(self) -> AsyncIterator[bytes]:
        """The bytes of the second part, in pieces.

        `InvalidArgumentError` at their end if the request was not complete.
        """
        keep = len(self._delimiter) - 1
        while (at := self._buffer.find(self._delimiter)) < 0:
            if len(self._buffer) > keep:
                yield self._buffer[: len(self._buffer) - keep]
                self._buffer = self._buffer[len(self._buffer) - keep :]
            await self._more()
        if at:
            yield self._buffer[:at]
        self._buffer = self._buffer[at + len(self._delimiter) :]
        while len(self._buffer) < 2:
            await self._more()
        if not self._buffer.startswith(b"--"):
            raise InvalidArgumentError("An upload has two parts, and this one has more.")

    async def _find_beginning(self) -> None:
        """Find the first boundary line and see by it how this client writes them."""
        while True:
            for boundary in self._boundaries:
                match = re.search(rb"(?:\A|\n)--" + re.escape(boundary) + rb"[ \t]*(\r?\n)", self._buffer)
                if match:
                    self._line_end = match[1]
                    self._delimiter = self._line_end + b"--" + boundary
                    self._buffer = self._line_end + self._buffer[match.end() :]
                    return
            await self._more(limit=MAX_HEAD)

    async def _more(self, *, limit: int | None = None) -> None:
        if limit is not None and len(self._buffer) > limit:
            raise PayloadTooLargeError(f"The part of an upload that describes the object has at most {limit:,} bytes.")
        try:
            self._buffer += await anext(self._stream)
        except StopAsyncIteration:
            raise InvalidArgumentError(
                "The request ended before its multipart body was complete. Nothing was stored; send it again."
            ) from None


def headers_of(head: bytes) -> dict[str, str]:
    """The lines of a head as a map with lower-case names."""
    found = {}
    for line in head.splitlines():
        name, colon, value = line.decode("latin-1").partition(":")
        if colon:
            found[name.strip().lower()] = value.strip()
    return found


def split_parts(content_type: str, body: bytes) -> list[tuple[dict[str, str], bytes]]:
    """The parts of a body that is all there: the headers of each, and what is behind them."""
    for boundary in boundaries(content_type):
        pieces = re.split(rb"(?:\A|\r?\n)--" + re.escape(boundary) + rb"(?=--|[ \t]*\r?\n)", body)
        if len(pieces) > 1:
            break
    else:
        raise InvalidArgumentError("The body holds no line with the boundary that its Content-Type names.")
    if len(pieces) < 3 or not pieces[-1].startswith(b"--"):
        raise InvalidArgumentError("The request ended before its multipart body was complete.")
    if len(pieces) - 2 > MAX_PARTS:
        raise PayloadTooLargeError(f"A batch has at most {MAX_PARTS} requests; this one has {len(pieces) - 2}.")
    return [_part(piece) for piece in pieces[1:-1]]


def _part(piece: bytes) -> tuple[dict[str, str], bytes]:
    halves = re.split(rb"\r?\n\r?\n", re.sub(rb"\A[ \t]*\r?\n", b"", piece), maxsplit=1)
    return headers_of(halves[0]), halves[1] if len(halves) > 1 else b""
