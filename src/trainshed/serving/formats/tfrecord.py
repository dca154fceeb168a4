"""TFRecord files, read without TensorFlow. Each record is a length, its checksum, the data, its checksum."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

import google_crc32c

from .protobuf import BadMessageError

_HEAD = struct.Struct("<QI")
_TAIL = struct.Struct("<I")
_MAX_RECORD_BYTES = 1 << 30  #: a greater length is damage that its checksum happens to match


def records(file: BinaryIO) -> Iterator[bytes]:
    """The records of an open file. Raises `BadMessageError` where it is damaged."""
    offset = 0
    while head := _read(file, _HEAD.size):
        if len(head) < _HEAD.size:
            raise BadMessageError(f"A record's header at byte {offset} is cut short.")
        size, checksum = _HEAD.unpack(head)
        if checksum != _masked_crc(head[:8]) or size > _MAX_RECORD_BYTES:
            raise BadMessageError(
                f"The checksum of a record's length at byte {offset} is wrong: this is not a TFRecord file."
            )
        body, tail = _read(file, size), _read(file, _TAIL.size)
        if len(body) < size or len(tail) < _TAIL.size:
            raise BadMessageError(f"The record at byte {offset} is cut short.")
        if _TAIL.unpack(tail)[0] != _masked_crc(body):
            raise BadMessageError(f"The checksum of the record at byte {offset} is wrong.")
        yield body
        offset += _HEAD.size + size + _TAIL.size


def _read(file: BinaryIO, size: int) -> bytes:
    """Read `size` bytes, or up to the end of the file."""
    return file.read(size) if size else b""


def _masked_crc(data: bytes) -> int:
    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
