"""TensorBoard's events without TensorFlow: the scalars in their protocol buffers.

The bytes are not trusted. Functions here take bytes, and return values or raise `BadMessageError`. They open nothing
and keep nothing, and their work is bounded by the length of the input.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import NamedTuple

from trainshed.serving.formats.protobuf import BYTES, FIXED32, FIXED64, VARINT, packed, signed, wire_fields

MAX_VALUES = 256  #: of one record
MAX_TAG = 200

_FLOAT_FIELDS = {1: (5, "<f"), 2: (6, "<d")}  #: float, double: their repeated field in TensorProto, and its format
_INTEGER_FIELDS = {3: 7, 9: 10, 4: 7, 6: 7, 5: 7}  #: int32, int64, uint8, int8, int16: repeated varints
_CONTENT_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 4: "<B", 6: "<b", 5: "<h", 19: "<e"}
_HALF, _HALF_FIELD, _BFLOAT16 = 19, 13, 14


class ScalarEvent(NamedTuple):
    """The scalars of one event, each with its tag."""

    time_s: float
    step: int
    values: tuple[tuple[str, float], ...]


def scalars(record: bytes, scalar_tags: set[str]) -> ScalarEvent:
    """The scalars of an event: TF1's `simple_value` and TF2's tensors with the scalars plugin.

    `scalar_tags` are tags that were scalars before; new ones are added. Some writers name the plugin of a tag only
    once. Raises `BadMessageError` if the record is no event.
    """
    time_s, step = 0.0, 0
    values: list[tuple[str, float]] = []
    for number, kind, value in wire_fields(record):
        if number == 1 and kind == FIXED64:
            time_s = struct.unpack("<d", value)[0]
        elif number == 2 and kind == VARINT:
            step = signed(value)
        elif number == 5 and kind == BYTES:
            for inner, inner_kind, part in wire_fields(value):
                if inner == 1 and inner_kind == BYTES and len(values) < MAX_VALUES:
                    values.extend(_value(part, scalar_tags))
    return ScalarEvent(time_s, step, tuple(values))


def _value(data: bytes, scalar_tags: set[str]) -> Iterator[tuple[str, float]]:
    """One Summary.Value, if it is a scalar."""
    tag, plugin, simple, tensor = "", b"", None, None
    for number, kind, value in wire_fields(data):
        if number == 1 and kind == BYTES:
            tag = value.decode("utf-8", "replace")
        elif number == 2 and kind == FIXED32:
            simple = struct.unpack("<f", value)[0]
        elif number == 8 and kind == BYTES:
            tensor = value
        elif number == 9 and kind == BYTES:
            plugin = _plugin(value)
    if not tag or len(tag) > MAX_TAG:
        return
    if simple is not None:
        yield tag, simple
    elif tensor is not None and (plugin == b"scalars" or (not plugin and tag in scalar_tags)):
        if len(scalar_tags) < MAX_VALUES:
            scalar_tags.add(tag)
        if (scalar := _scalar(tensor)) is not None:
            yield tag, scalar


def _plugin(metadata: bytes) -> bytes:
    for number, kind, value in wire_fields(metadata):
        if number == 1 and kind == BYTES:
            return next(
                (bytes(name) for field, inner_kind, name in wire_fields(value) if field == 1 and inner_kind == BYTES),
                b"",
            )
    return b""


def _scalar(tensor: bytes) -> float | None:
    """The only element of a TensorProto. Returns None if there are more, or its type is not that of a scalar."""
    dtype, content = 0, b""
    fields: dict[int, tuple[int, bytes | int]] = {}
    for number, kind, value in wire_fields(tensor):
        if number == 1 and kind == VARINT:
            dtype = value
        elif number == 4 and kind == BYTES:
            content = value
        elif number in (5, 6, 7, 10, _HALF_FIELD):
            fields[number] = (kind, value)
    if content:
        return _from_content(dtype, content)
    if dtype in _FLOAT_FIELDS:
        number, format_ = _FLOAT_FIELDS[dtype]
        value = fields.get(number, (0, b""))[1]
        if value == b"":
            return 0.0  # proto3 omits zeros
        if not isinstance(value, bytes) or len(value) != struct.calcsize(format_):
            return None
        return float(struct.unpack(format_, value)[0])
    if dtype in _INTEGER_FIELDS or dtype in (_HALF, _BFLOAT16):
        return _from_varint(dtype, *fields.get(_INTEGER_FIELDS.get(dtype, _HALF_FIELD), (VARINT, 0)))
    return None


def _from_content(dtype: int, content: bytes) -> float | None:
    if dtype == _BFLOAT16 and len(content) == 2:
        return float(struct.unpack("<f", b"\0\0" + content)[0])
    format_ = _CONTENT_FORMATS.get(dtype)
    return float(struct.unpack(format_, content)[0]) if format_ and len(content) == struct.calcsize(format_) else None


def _from_varint(dtype: int, kind: int, value: bytes | int) -> float | None:
    if isinstance(value, bytes):
        numbers = list(itertools.islice(packed(value), 2))
        if len(numbers) != 1:
            return None
        value = numbers[0]
    if dtype in (_HALF, _BFLOAT16):
        return _from_content(dtype, struct.pack("<H", value & 0xFFFF))
    return float(signed(value)) if kind in (VARINT, BYTES) else None
