"""Multipart bodies: the two parts of a streamed upload, and the requests of a batch.

Google's clients vary: lines end in CRLF or in LF; a boundary has double quotes, single quotes or none. The end of the
first line decides for all lines, so no byte of the media is guessed.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from trainshed.errors import InvalidArgumentError, PayloadTooLargeError

MAX_DESCRIPTION_BYTES = 1 << 20  #: up to the end of the first part, whatever is before it included
MAX_MEDIA_HEADERS_BYTES = 65_536  #: of the second part
MAX_PARTS = 100  #: requests in a batch, the limit of Cloud Storage

_BOUNDARY = re.compile(r"""boundary\s*=\s*("[^"]*"|'[^']*'|[^;\s]+)""", re.IGNORECASE)
_MAX_PADDING = 64  #: blanks after a boundary, which RFC 2046 allows and nobody sends


def boundaries(content_type: str) -> tuple[bytes, ...]:
    """Return the possible boundaries. One in single quotes has two forms: with the quotes and without."""
    match = _BOUNDARY.search(content_type)
    text = match[1] if match else ""
    bare = text[1:-1] if text[:1] in ('"', "'") else text
    if not bare or len(bare) > 200:
        raise InvalidArgumentError(
            "The Content-Type of a multipart request must have a boundary of at most 200 characters."
        )
    return tuple(dict.fromkeys((bare.encode(), text.strip('"').encode())))


class Related:
    """The two parts of an upload: the metadata of the object, then its bytes.

    What has been searched is not searched again, so that the work grows with the bytes and not with their chunks.
    """

    def __init__(self, content_type: str, stream: AsyncIterator[bytes]) -> None:
        self._boundaries = boundaries(content_type)
        self._stream = stream
        self._buffer = bytearray()
        self._line_end = b""
        self._delimiter = b""
        self.media_type = ""  #: the Content-Type of the second part

    async def description(self) -> bytes:
        """Return the body of the first part. Call it first."""
        await self._find_first_boundary()
        at = await self._find(self._delimiter, limit=MAX_DESCRIPTION_BYTES)
        _, _, body = self._buffer[:at].partition(self._line_end * 2)
        del self._buffer[: at + len(self._delimiter)]
        return bytes(body)

    async def begin_media(self) -> None:
        """Read the headers of the second part, which set `media_type`."""
        blank = self._line_end * 2
        at = await self._find(blank, limit=MAX_MEDIA_HEADERS_BYTES)
        self.media_type = headers_of(bytes(self._buffer[:at])).get("content-type", "")
        del self._buffer[: at + len(blank)]

    async def media(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the second part in chunks.

        Raises `InvalidArgumentError` at their end if the request was incomplete.
        """
        overlap = len(self._delimiter) - 1
        while (at := self._buffer.find(self._delimiter)) < 0:
            if len(self._buffer) > overlap:
                chunk = bytes(self._buffer[: len(self._buffer) - overlap])
                del self._buffer[: len(chunk)]
                yield chunk
            await self._read_more()
        if at:
            yield bytes(self._buffer[:at])
        del self._buffer[: at + len(self._delimiter)]
        while len(self._buffer) < 2:
            await self._read_more()
        if not self._buffer.startswith(b"--"):
            raise InvalidArgumentError("An upload has two parts, and this one has more.")

    async def _find_first_boundary(self) -> None:
        """Find the first boundary line, which shows the line ends and the boundary of this client."""
        lines = {boundary: _boundary_line(b"--" + re.escape(boundary)) for boundary in self._boundaries}
        overlap = max(map(len, self._boundaries)) + _MAX_PADDING + len(b"\n--\r\n")
        start = 0
        while True:
            for boundary, line in lines.items():
                if match := line.search(self._buffer, start):
                    self._line_end = match[1]
                    self._delimiter = self._line_end + b"--" + boundary
                    del self._buffer[: match.end() - len(self._line_end)]
                    return
            start = max(0, len(self._buffer) - overlap)
            await self._read_more(limit=MAX_DESCRIPTION_BYTES)

    async def _find(self, wanted: bytes, *, limit: int) -> int:
        """Read until the bytes are in the buffer. Returns where they begin."""
        start = 0
        while (at := self._buffer.find(wanted, start)) < 0:
            start = max(0, len(self._buffer) - len(wanted) + 1)
            await self._read_more(limit=limit)
        return at

    async def _read_more(self, *, limit: int | None = None) -> None:
        if limit is not None and len(self._buffer) > limit:
            raise PayloadTooLargeError(f"The part of an upload that describes the object has at most {limit:,} bytes.")
        try:
            self._buffer += await anext(self._stream)
        except StopAsyncIteration:
            raise InvalidArgumentError(
                "The request ended before its multipart body was complete. Nothing was stored; send it again."
            ) from None


def _boundary_line(start: bytes) -> re.Pattern[bytes]:
    """The pattern of a whole line. It begins with its fixed bytes, which `re` finds fast, and then looks back."""
    return re.compile(start + rb"(?<![^\n]" + start + rb")[ \t]{0,%d}(\r?\n)" % _MAX_PADDING)


def headers_of(head: bytes) -> dict[str, str]:
    """Parse header lines into a mapping with lower-case names."""
    headers = {}
    for line in head.splitlines():
        name, colon, value = line.decode("latin-1").partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return headers


def split_parts(content_type: str, body: bytes) -> list[tuple[dict[str, str], bytes]]:
    """Split a complete body into parts: the headers and the content of each."""
    for boundary in boundaries(content_type):
        parts = re.split(rb"(?:\A|\r?\n)--" + re.escape(boundary) + rb"(?=--|[ \t]*\r?\n)", body)
        if len(parts) > 1:
            break
    else:
        raise InvalidArgumentError("The body holds no line with the boundary that its Content-Type names.")
    if len(parts) < 3 or not parts[-1].startswith(b"--"):
        raise InvalidArgumentError("The request ended before its multipart body was complete.")
    if len(parts) - 2 > MAX_PARTS:
        raise PayloadTooLargeError(f"A batch has at most {MAX_PARTS} requests; this one has {len(parts) - 2}.")
    return [_part(part) for part in parts[1:-1]]


def _part(part: bytes) -> tuple[dict[str, str], bytes]:
    halves = re.split(rb"\r?\n\r?\n", re.sub(rb"\A[ \t]*\r?\n", b"", part), maxsplit=1)
    return headers_of(halves[0]), halves[1] if len(halves) > 1 else b""
