"""Frames: the protocol between the gateway and a host, over a socket. Standard library only; both ends use it.

A request is a head (length of the body, id, kind) and a body. A response is a head (length of the body, id, HTTP
status) and a body. The gateway chooses ids; a host answers each id once, in any order. Bodies of responses are complete
JSON documents, forwarded unchanged. Bodies of `RAW` requests and responses begin with their content type.

A host on the network has a secret. A connection to it begins with a frame that carries the secret and has no response.
The host closes every other connection without a response.
"""

from __future__ import annotations

import struct
from enum import IntEnum

REQUEST_HEAD = struct.Struct("<IQB")  #: length of the body, id, kind
ANSWER_HEAD = struct.Struct("<IQH")  #: length of the body, id, HTTP status

_TYPE_LENGTH = struct.Struct("<H")
_JSON_LENGTH = struct.Struct("<I")
_MAX_JSON_BYTES = 0xFFFFFFFF
_MAX_TYPE_BYTES = 0xFFFF
_MAX_SHORT_BYTES = 1 << 16  #: of a body; longer ones are received in place
MAX_RAW_HEAD_BYTES = _TYPE_LENGTH.size + _MAX_TYPE_BYTES  #: of a `RAW` body, before the caller's bytes


class FrameKind(IntEnum):
    PREDICT = 1  #: body: the JSON that the caller sent
    EXPLAIN = 2  #: body: the JSON that the caller sent
    RAW = 3  #: body: `pack_raw`, as is the body of a response with status 200
    CANCEL = 4  #: cancel the request of this id unless it is running; empty body, no response
    PARITY = 5  #: body: path of a reference file; response: {"difference": float, "within": bool, "message": str}
    STATS = 6  #: empty body; answered immediately, even while the model hangs
    SECRET = 7  #: body: the secret of the host; the first frame of a connection, no response
    PARITY_WITH = 8  #: like `PARITY`, with the content of the reference file as body
    TF_SERVING = 9  #: body: the JSON that a client of TensorFlow Serving sent
    INFER = 10  #: body: `infer_head` and what the client sent; of a response with status 200: `pack_infer`
    MLFLOW = 11  #: body: the JSON that a client of MLflow's scoring protocol sent


class BadFrameError(ValueError):
    """The bytes are not a frame. The connection must be closed."""


def pack_request(request_id: int, kind: FrameKind, body: bytes) -> bytes:
    return REQUEST_HEAD.pack(len(body), request_id, kind) + body


def auth_frame(secret: str) -> bytes:
    """The first frame of a connection to a host with this secret. Empty if there is none."""
    return pack_request(0, FrameKind.SECRET, secret.encode()) if secret else b""


def pack_raw(content_type: str, data: bytes) -> bytes:
    """The body of a `RAW` frame."""
    name = content_type.encode("latin-1", "replace")[:_MAX_TYPE_BYTES]
    return _TYPE_LENGTH.pack(len(name)) + name + data


def unpack_raw(body: bytes) -> tuple[str, bytes]:
    """Content type and bytes of a `RAW` body. Raises `BadFrameError` if it is truncated."""
    if len(body) < _TYPE_LENGTH.size:
        raise BadFrameError("A raw body must begin with the length of its content type.")
    (length,) = _TYPE_LENGTH.unpack_from(body)
    start = _TYPE_LENGTH.size + length
    if len(body) < start:
        raise BadFrameError("A raw body ends within its content type.")
    return body[_TYPE_LENGTH.size : start].decode("latin-1"), body[start:]


def infer_head(length: int) -> bytes:
    """The start of an `INFER` body: the length of the JSON that is before binary data; 0 if all is JSON."""
    return _JSON_LENGTH.pack(min(length, _MAX_JSON_BYTES))


def pack_infer(document: bytes, data: bytes | None) -> bytes:
    """The body of an `INFER` response. Without `data` all is JSON."""
    return document.join((infer_head(0 if data is None else len(document)), data or b""))


def unpack_infer(body: bytes) -> tuple[int, memoryview]:
    """The length of the JSON, and what follows the head. Raises `BadFrameError` if the body is truncated."""
    if len(body) < _JSON_LENGTH.size:
        raise BadFrameError("The body of an infer request must begin with the length of its JSON.")
    return _JSON_LENGTH.unpack_from(body)[0], memoryview(body)[_JSON_LENGTH.size :]


Frame = tuple[int, int, bytes]  #: id, kind or status, body


class FrameReader:
    """Splits the byte stream of one connection into frames.

    A long body is received in place: while `buffer` is not None, receive into it and report the size to `filled`.
    Pass all other bytes to `feed`.
    """

    def __init__(self, head: struct.Struct, *, body_limit: int) -> None:
        self._head = head
        self._body_limit = body_limit
        self._rest = b""  # an incomplete head or short frame
        self._long_frame: _LongFrame | None = None

    @property
    def buffer(self) -> memoryview | None:
        """Where to receive the rest of a long body. Returns None if none is incomplete."""
        return self._long_frame.buffer if self._long_frame is not None else None

    def filled(self, size: int) -> list[Frame]:
        """Report that `size` bytes were received into `buffer`. Returns the frame that they complete, if any."""
        assert self._long_frame is not None
        frame = self._long_frame.filled(size)
        if frame is None:
            return []
        self._long_frame = None
        return [frame]

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes. Raises `BadFrameError` if one is longer than the limit."""
        frames: list[Frame] = []
        if (buffer := self.buffer) is not None:
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            frames, data = self.filled(size), data[size:]
        elif self._rest:
            data = self._rest + data
        self._rest = b""
        if data:
            self._split(data, frames)
        return frames

    def _split(self, data: bytes, frames: list[Frame]) -> None:
        offset, size, end = 0, self._head.size, len(data)
        while end - offset >= size:
            length, request_id, code = self._head.unpack_from(data, offset)
            if length > self._body_limit:
                raise BadFrameError(
                    f"A frame of {length:,} bytes is longer than the {self._body_limit:,} that are taken."
                )
            if end - offset - size < length:
                if length > _MAX_SHORT_BYTES:
                    self._long_frame = _LongFrame(request_id, code, length, data[offset + size :])
                    return
                break
            offset += size + length
            frames.append((request_id, code, data[offset - length : offset]))
        self._rest = data[offset:]


class _LongFrame:
    """An incomplete frame with a long body."""

    def __init__(self, request_id: int, code: int, length: int, start: bytes) -> None:
        self._request_id = request_id
        self._code = code
        self._body = bytearray(length)
        self._body[: len(start)] = start
        self._offset = len(start)

    @property
    def buffer(self) -> memoryview:
        return memoryview(self._body)[self._offset :]

    def filled(self, size: int) -> Frame | None:
        self._offset += size
        return (self._request_id, self._code, bytes(self._body)) if self._offset == len(self._body) else None
