"""Protocol buffers read by hand: the few messages that a host looks into, without the classes of a framework."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class BadMessageError(ValueError):
    """The bytes are not what they are taken for. The message says where they stop to be."""


def fields(message: bytes) -> dict[int, list[Any]]:
    """A protocol buffer's fields by number: integers, or bytes for everything that has a length or a fixed width."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _varint(message, at)
        else:
            if kind == _BYTES:
                size, at = _varint(message, at)
            elif kind in (_FIXED64, _FIXED32):
                size = 8 if kind == _FIXED64 else 4
            else:
                raise BadMessageError(f"Wire type {kind} in a protocol buffer is not known.")
            if at + size > len(message):
                raise BadMessageError("A protocol buffer's field is cut short.")
            value, at = message[at : at + size], at + size
        found.setdefault(tag >> 3, []).append(value)
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise BadMessageError("A number in a protocol buffer is cut short.")


def packed(message: bytes) -> Iterator[int]:
    """The numbers of a repeated field that was written as one."""
    at = 0
    while at < len(message):
        value, at = _varint(message, at)
        yield value


def signed(value: int) -> int:
    """A number of a field that may be negative."""
    return value - (1 << 64) if value >= 1 << 63 else value
