"""Frames: how the gateway and a host talk over a unix socket. Standard library only; both ends use it.

A request is a head (length of the body, id, kind) and a body, an answer a head (length of the body, id, HTTP status)
and a body. The gateway chooses ids; a host answers each id once, in any order. Bodies of answers are whole JSON
documents, to be passed on as they are, but for `RAW`, whose bodies begin with their content type, both ways.
"""

from __future__ import annotations

import struct
from enum import IntEnum

REQUEST_HEAD = struct.Struct("<IQB")  #: length of the body, id, kind
ANSWER_HEAD = struct.Struct("<IQH")  #: length of the body, id, HTTP status

_TYPE_LENGTH = struct.Struct("<H")
_TYPE_BYTES = 0xFFFF
RAW_HEAD = _TYPE_LENGTH.size + _TYPE_BYTES  #: by how much a `RAW` body may be longer than what the caller sent


class Kind(IntEnum):
    PREDICT = 1  #: body: the JSON that the caller sent
    EXPLAIN = 2  #: body: the JSON that the caller sent
    RAW = 3  #: body: `pack_raw`; so is the body of an answer with status 200
    CANCEL = 4  #: forget the request of this id if it has not started; empty body, no answer
    PARITY = 5  #: body: path of a reference file; answer: {"difference": float, "within": bool, "text": sentence}
    STATS = 6  #: empty body; answered at once, also while the model hangs


class BadFrame(ValueError):
    """Bytes that can't be a frame. The connection is of no more use: close it."""


def pack_request(request_id: int, kind: Kind, body: bytes) -> bytes:
    return REQUEST_HEAD.pack(len(body), request_id, kind) + body


def pack_raw(content_type: str, data: bytes) -> bytes:
    """The body of a `RAW` frame."""
    name = content_type.encode("latin-1", "replace")[:_TYPE_BYTES]
    return _TYPE_LENGTH.pack(len(name)) + name + data


def unpack_raw(body: bytes) -> tuple[str, bytes]:
    """Content type and bytes of a `RAW` body. `BadFrame` if it is cut short."""
    if len(body) < _TYPE_LENGTH.size:
        raise BadFrame("A raw body must begin with the length of its content type.")
    (length,) = _TYPE_LENGTH.unpack_from(body)
    start = _TYPE_LENGTH.size + length
    if len(body) < start:
        raise BadFrame("A raw body ends within its content type.")
    return body[_TYPE_LENGTH.size : start].decode("latin-1"), body[start:]


class FrameReader:
    """Cuts what arrives on one connection into frames, however the bytes were split on their way."""

    def __init__(self, head: struct.Struct, *, body_limit: int) -> None:
        self._head = head
        self._body_limit = body_limit
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """The frames that `data` completes: id, kind or status, body. `BadFrame` if one is longer than the limit."""
        if self._rest:
            self._rest += data
            data = bytes(self._rest) if self._whole() else b""
        frames, used = self._cut(data)
        if data:
            self._rest = bytearray(data[used:])
        return frames

    def _whole(self) -> bool:
        """Whether the bytes kept hold a frame: so that a long body is not copied at every piece of it."""
        return len(self._rest) >= self._head.size and len(self._rest) >= self._head.size + self._length(self._rest, 0)

    def _length(self, data: bytes | bytearray, at: int) -> int:
        length = int(self._head.unpack_from(data, at)[0])
        if length > self._body_limit:
            raise BadFrame(f"A frame of {length:,} bytes is longer than the {self._body_limit:,} that are taken.")
        return length

    def _cut(self, data: bytes) -> tuple[list[tuple[int, int, bytes]], int]:
        frames: list[tuple[int, int, bytes]] = []
        at, size, end = 0, self._head.size, len(data)
        while end - at >= size:
            length, request_id, word = self._head.unpack_from(data, at)
            if length > self._body_limit:
                raise BadFrame(f"A frame of {length:,} bytes is longer than the {self._body_limit:,} that are taken.")
            if end - at - size < length:
                break
            at += size + length
            frames.append((request_id, word, data[at - length : at]))
        return frames, at
