"""Objects that are stored with gzip are unpacked for clients that do not accept it, as Cloud Storage does."""

from __future__ import annotations

import zlib
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trainshed.api.http.slow_work import TRANSFERS, slow_work
from trainshed.domain.objects import ObjectInfo
from trainshed.errors import DataLossError

CHUNK_BYTES = 256 << 10  #: of compressed bytes per read, and at most of unpacked ones per send
_GZIP = 16 + zlib.MAX_WBITS
_MAGIC = b"\x1f\x8b"


class GzipReader(Protocol):
    """Bytes with random access, and what is known of them."""

    @property
    def info(self) -> ObjectInfo: ...

    def read(self, offset: int, size: int) -> bytes:
        """Read `size` bytes at `offset`. Blocks."""

    def close(self) -> None:
        """Release the bytes."""


def wants_unpacked(request: Request, info: ObjectInfo) -> bool:
    """Return whether an object has to be unpacked for this client."""
    if info.traits.content_encoding.lower() != "gzip" or "no-transform" in info.traits.cache_control.lower():
        return False
    codings = request.headers.get("accept-encoding", "").lower().split(",")
    accepted = {
        name.strip(): quality.replace(" ", "") for name, _, quality in (each.partition(";") for each in codings)
    }
    return accepted.get("gzip", accepted.get("*", "q=0")) in ("q=0", "q=0.0", "q=0.00", "q=0.000")


class Unpacking:
    """Unpacks a reader piece by piece. What is not gzip comes as it is stored."""

    def __init__(self, reader: GzipReader) -> None:
        self._reader = reader
        self._offset = 0
        self._input = b""
        self._packed: bool | None = None  #: None before the first read
        self._unpack = zlib.decompressobj(_GZIP)

    def next(self) -> bytes:
        """Return the next bytes, at most CHUNK_BYTES of them. Returns none at the end. Blocks.

        Raises `DataLossError` if the object is damaged.
        """
        while True:
            if not self._input:
                self._input = self._read()
            if self._packed is None:
                self._packed = self._input.startswith(_MAGIC)
            if not self._packed:
                data, self._input = self._input, b""
                return data
            if self._unpack.eof and self._input:
                self._unpack = zlib.decompressobj(_GZIP)  # the next member
            is_last = not self._input
            try:
                data = self._unpack.decompress(self._input, CHUNK_BYTES)
            except zlib.error as exc:
                raise self._damaged(str(exc)) from None
            self._input = self._unpack.unconsumed_tail or self._unpack.unused_data
            if not data and is_last and not self._unpack.eof:
                raise self._damaged("it is cut off")
            if data or is_last:
                return data

    def _damaged(self, reason: str) -> DataLossError:
        info = self._reader.info
        return DataLossError(f"gs://{info.bucket}/{info.name} can't be unpacked: {reason}.")

    def _read(self) -> bytes:
        size = min(CHUNK_BYTES, self._reader.info.size - self._offset)
        data = self._reader.read(self._offset, size) if size else b""
        self._offset += size
        return data

    def close(self) -> None:
        self._reader.close()


class UnpackedResponse(Response):
    """Streams the unpacked bytes. Cuts the connection if the object is damaged."""

    def __init__(self, reader: GzipReader, headers: dict[str, str]) -> None:
        gone = ("content-length", "content-encoding", "accept-ranges", "x-goog-hash")
        kept = {name: value for name, value in headers.items() if name not in gone}
        super().__init__(None, 200, kept | {"warning": '214 trainshed "gunzipped"', "vary": "accept-encoding"})
        del self.headers["content-length"]
        self._unpacking = Unpacking(reader)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client, connection = Request(scope, receive), scope.get("trainshed.client")
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            while not await client.is_disconnected():
                if connection is not None:
                    await connection.drained()  # a client that does not read costs one piece
                data = await slow_work(client, TRANSFERS).piece(client, self._unpacking.next)
                await send({"type": "http.response.body", "body": data, "more_body": bool(data)})
                if not data:
                    return
        finally:
            self._unpacking.close()
