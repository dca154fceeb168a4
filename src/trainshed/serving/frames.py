"""Frames: how the gateway and a host talk over a socket. Standard library only; both ends use it.

A request is a head (length of the body, id, kind) and a body, an answer a head (length of the body, id, HTTP status)
and a body. The gateway chooses ids; a host answers each id once, in any order. Bodies of answers are whole JSON
documents, to be passed on as they are, but for `RAW`, whose bodies begin with their content type, both ways.

A host that others than its gateway can reach has a secret. A connection to it begins with the frame that says it, which
is not answered; what begins with anything else is closed, and not answered either.
"""

from __future__ import annotations

import struct
from enum import IntEnum

REQUEST_HEAD = struct.Struct("<IQB")  #: length of the body, id, kind
ANSWER_HEAD = struct.Struct("<IQH")  #: length of the body, id, HTTP status

_TYPE_LENGTH = struct.Struct("<H")
_TYPE_BYTES = 0xFFFF
_LONG_BYTES = 1 << 16
RAW_HEAD = _TYPE_LENGTH.size + _TYPE_BYTES  #: by how much a `RAW` body may be longer than what the caller sent


class FrameKind(IntEnum):
    PREDICT = 1  #: body: the JSON that the caller sent
    EXPLAIN = 2  #: body: the JSON that the caller sent
    RAW = 3  #: body: `pack_raw`; so is the body of an answer with status 200
    CANCEL = 4  #: forget the request of this id if it has not started; empty body, no answer
    PARITY = 5  #: body: path of a reference file; answer: {"difference": float, "within": bool, "text": sentence}
    STATS = 6  #: empty body; answered at once, also while the model hangs
    SECRET = 7  #: body: the secret of a host; the first frame of a connection, no answer
    PARITY_WITH = 8  #: as `PARITY`, with the reference file itself as the body


class BadFrameError(ValueError):
    """Bytes that can't be a frame. The connection is of no more use: close it."""


def pack_request(request_id: int, kind: FrameKind, body: bytes) -> bytes:
    return REQUEST_HEAD.pack(len(body), request_id, kind) + body


def auth_frame(secret: str) -> bytes:
    """What a connection to a host with this secret begins with; nothing if it has none."""
    return pack_request(0, FrameKind.SECRET, secret.encode()) if secret else b""


def pack_raw(content_type: str, data: bytes) -> bytes:
    """The body of a `RAW` frame."""
    name = content_type.encode("latin-1", "replace")[:_TYPE_BYTES]
    return _TYPE_LENGTH.pack(len(name)) + name + data


def unpack_raw(body: bytes) -> tuple[str, bytes]:
    """Content type and bytes of a `RAW` body. `BadFrameError` if it is cut short."""
    if len(body) < _TYPE_LENGTH.size:
        raise BadFrameError("A raw body must begin with the length of its content type.")
    (length,) = _TYPE_LENGTH.unpack_from(body)
    start = _TYPE_LENGTH.size + length
    if len(body) < start:
        raise BadFrameError("A raw body ends within its content type.")
    return body[_TYPE_LENGTH.size : start].decode("latin-1"), body[start:]


Frame = tuple[int, int, bytes]  #: id, kind or status, body


class FrameReader:
    """Cuts what arrives on one connection into frames, however the bytes were split on their way.

    A long body can be received right into its place: while `room` is not None, into that, and then `filled` says how
    much. Everything else is for `feed`.
    """

    def __init__(self, head: struct.Struct, *, body_limit: int) -> None:
        self._head = head
        self._body_limit = body_limit
        self._rest = b""  # less than a head, or the beginning of a short frame
        self._long: _Long | None = None

    @property
    def room(self) -> memoryview | None:
        """Where the next bytes belong, if they are of a long body."""
        return self._long.room if self._long is not None else None

    def filled(self, size: int) -> list[Frame]:
        """So many bytes were received into `room`. The frame that they complete, if they do."""
        assert self._long is not None
        frame = self._long.filled(size)
        if frame is None:
            return []
        self._long = None
        return [frame]

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes. `BadFrameError` if one is longer than the limit."""
        frames: list[Frame] = []
        if (room := self.room) is not None:
            size = min(len(room), len(data))
            room[:size] = data[:size]
            frames, data = self.filled(size), data[size:]
        elif self._rest:
            data = self._rest + data
        self._rest = b""
        if data:
            self._cut(data, frames)
        return frames

    def _cut(self, data: bytes, frames: list[Frame]) -> None:
        at, size, end = 0, self._head.size, len(data)
        while end - at >= size:
            length, request_id, word = self._head.unpack_from(data, at)
            if length > self._body_limit:
                raise BadFrameError(
                    f"A frame of {length:,} bytes is longer than the {self._body_limit:,} that are taken."
                )
            if end - at - size < length:
                if length > _LONG_BYTES:
                    self._long = _Long(request_id, word, length, data[at + size :])
                    return
                break
            at += size + length
            frames.append((request_id, word, data[at - length : at]))
        self._rest = data[at:]


class _Long:
    """A frame with a long body, which is put together in its place."""

    def __init__(self, request_id: int, word: int, length: int, begun: bytes) -> None:
        self._request_id = request_id
        self._word = word
        self._body = bytearray(length)
        self._body[: len(begun)] = begun
        self._at = len(begun)

    @property
    def room(self) -> memoryview:
        return memoryview(self._body)[self._at :]

    def filled(self, size: int) -> Frame | None:
        self._at += size
        return (self._request_id, self._word, bytes(self._body)) if self._at == len(self._body) else None
