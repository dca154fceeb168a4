"""A parser of protocol buffers, without generated classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class BadMessageError(ValueError):
    """The bytes are not of the expected format. The message says where."""


def fields(message: bytes) -> dict[int, list[Any]]:
    """The fields of a message by number: integers, or bytes for values with a length or a fixed width."""
    values: dict[int, list[Any]] = {}
    offset = 0
    while offset < len(message):
        tag, offset = _varint(message, offset)
        kind = tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, offset = _varint(message, offset)
        else:
            if kind == _BYTES:
                size, offset = _varint(message, offset)
            elif kind in (_FIXED64, _FIXED32):
                size = 8 if kind == _FIXED64 else 4
            else:
                raise BadMessageError(f"Wire type {kind} in a protocol buffer is not known.")
            if offset + size > len(message):
                raise BadMessageError("A protocol buffer's field is cut short.")
            value, offset = message[offset : offset + size], offset + size
        values.setdefault(tag >> 3, []).append(value)
    return values


def _varint(message: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if offset >= len(message):
            break
        byte = message[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, offset
    raise BadMessageError("A number in a protocol buffer is cut short.")


def packed(message: bytes) -> Iterator[int]:
    """The numbers of a packed repeated field."""
    offset = 0
    while offset < len(message):
        value, offset = _varint(message, offset)
        yield value


def signed(value: int) -> int:
    """The value of a signed field."""
    return value - (1 << 64) if value >= 1 << 63 else value
