"""A parser of protocol buffers, without generated classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  #: wire types


class BadMessageError(ValueError):
    """The bytes are not of the expected format. The message says where."""


def wire_fields(message: bytes | memoryview) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value of each field, in order. The value is an int for a varint, otherwise a part
    of the message.

    Raises `BadMessageError` where the message is damaged.
    """
    offset = 0
    while offset < len(message):
        tag, offset = _varint(message, offset)
        kind = tag & 7
        if kind == VARINT:
            number, offset = _varint(message, offset)
            yield tag >> 3, kind, number
            continue
        if kind == BYTES:
            size, offset = _varint(message, offset)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise BadMessageError(f"Wire type {kind} in a protocol buffer is not known.")
        if offset + size > len(message):
            raise BadMessageError("A protocol buffer's field is cut short.")
        yield tag >> 3, kind, message[offset : offset + size]
        offset += size


def fields(message: bytes | memoryview) -> dict[int, list[Any]]:
    """The values of `wire_fields` by number. Raises `BadMessageError` if the message is damaged."""
    values: dict[int, list[Any]] = {}
    for number, _, value in wire_fields(message):
        values.setdefault(number, []).append(value)
    return values


def packed(message: bytes) -> Iterator[int]:
    """The numbers of a packed repeated field."""
    offset = 0
    while offset < len(message):
        value, offset = _varint(message, offset)
        yield value


def signed(value: int) -> int:
    """The value of a signed field."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _varint(message: bytes | memoryview, offset: int) -> tuple[int, int]:
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
