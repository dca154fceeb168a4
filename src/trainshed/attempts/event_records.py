"""TensorBoard's event records without TensorFlow: the framing of a record, and the scalars in its protobuf.

The bytes are not trusted. Functions here take bytes, and return values or raise `BadRecordError`. They open nothing and
keep nothing, and their work is bounded by the length of the input.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import google_crc32c

HEADER_BYTES = 12  #: bytes: length of a record, and its checksum
FOOTER_BYTES = 4  #: bytes: checksum of the record
_CRC_MASK = 0xA282EAD8
MAX_VALUES = 256  #: of one record
MAX_TAG = 200

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT_FIELDS = {1: (5, "<f"), 2: (6, "<d")}  #: float, double: their repeated field in TensorProto, and its format
_INTEGER_FIELDS = {3: 7, 9: 10, 4: 7, 6: 7, 5: 7}  #: int32, int64, uint8, int8, int16: repeated varints
_CONTENT_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 4: "<B", 6: "<b", 5: "<h", 19: "<e"}
_HALF, _HALF_FIELD, _BFLOAT16 = 19, 13, 14


class BadRecordError(Exception):
    """Bytes that are no record, or no event."""


class ScalarEvent(NamedTuple):
    """The scalars of one event, each with its tag."""

    time_s: float
    step: int
    values: tuple[tuple[str, float], ...]


def masked_crc(data: bytes) -> int:
    """The masked checksum of the framing."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _CRC_MASK) & 0xFFFFFFFF


def record_length(header: bytes) -> int:
    """The length of the record after a header. Raises `BadRecordError` if the header is invalid."""
    length, crc = struct.unpack("<QI", header)
    if masked_crc(header[:8]) != crc:
        raise BadRecordError("the header of a record has a wrong checksum")
    return int(length)


def check_record(record: bytes, footer: bytes) -> None:
    if masked_crc(record) != struct.unpack("<I", footer)[0]:
        raise BadRecordError("a record has a wrong checksum")


def scalars(record: bytes, scalar_tags: set[str]) -> ScalarEvent:
    """The scalars of an event: TF1's `simple_value` and TF2's tensors with the scalars plugin.

    `scalar_tags` are tags that were scalars before; new ones are added. Some writers name the plugin of a tag only
    once. Raises `BadRecordError` if the record is no event.
    """
    time_s, step = 0.0, 0
    values: list[tuple[str, float]] = []
    for number, kind, value in _fields(record):
        if number == 1 and kind == _FIXED64:
            time_s = struct.unpack("<d", value)[0]
        elif number == 2 and kind == _VARINT:
            step = _signed(value)
        elif number == 5 and kind == _BYTES:
            for inner, inner_kind, part in _fields(value):
                if inner == 1 and inner_kind == _BYTES and len(values) < MAX_VALUES:
                    values.extend(_value(part, scalar_tags))
    return ScalarEvent(time_s, step, tuple(values))


def _value(data: bytes, scalar_tags: set[str]) -> Iterator[tuple[str, float]]:
    """One Summary.Value, if it is a scalar."""
    tag, plugin, simple, tensor = "", b"", None, None
    for number, kind, value in _fields(data):
        if number == 1 and kind == _BYTES:
            tag = value.decode("utf-8", "replace")
        elif number == 2 and kind == _FIXED32:
            simple = struct.unpack("<f", value)[0]
        elif number == 8 and kind == _BYTES:
            tensor = value
        elif number == 9 and kind == _BYTES:
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
    for number, kind, value in _fields(metadata):
        if number == 1 and kind == _BYTES:
            return next(
                (bytes(name) for field, inner_kind, name in _fields(value) if field == 1 and inner_kind == _BYTES), b""
            )
    return b""


def _scalar(tensor: bytes) -> float | None:
    """The only element of a TensorProto. Returns None if there are more, or its type is not that of a scalar."""
    dtype, content = 0, b""
    fields: dict[int, tuple[int, bytes | int]] = {}
    for number, kind, value in _fields(tensor):
        if number == 1 and kind == _VARINT:
            dtype = value
        elif number == 4 and kind == _BYTES:
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
        packed = value if isinstance(value, bytes) and len(value) == struct.calcsize(format_) else None
        return None if packed is None else float(struct.unpack(format_, packed)[0])
    if dtype in _INTEGER_FIELDS or dtype in (_HALF, _BFLOAT16):
        return _from_varint(dtype, *fields.get(_INTEGER_FIELDS.get(dtype, _HALF_FIELD), (_VARINT, 0)))
    return None


def _from_content(dtype: int, content: bytes) -> float | None:
    if dtype == _BFLOAT16 and len(content) == 2:
        return float(struct.unpack("<f", b"\0\0" + content)[0])
    format_ = _CONTENT_FORMATS.get(dtype)
    return float(struct.unpack(format_, content)[0]) if format_ and len(content) == struct.calcsize(format_) else None


def _from_varint(dtype: int, kind: int, value: bytes | int) -> float | None:
    if isinstance(value, bytes):
        number, end = _varint(value, 0)
        if end != len(value):
            return None  # more than one
        value = number
    if dtype in (_HALF, _BFLOAT16):
        return _from_content(dtype, struct.pack("<H", value & 0xFFFF))
    return float(_signed(value)) if kind in (_VARINT, _BYTES) else None


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """(number, wire type, value) of each field of a message: an int for varints, else bytes."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield key >> 3, kind, value
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise BadRecordError(f"a field has the wire type {kind}")
        if size > len(data) - position:
            raise BadRecordError("a field is longer than its message")
        yield key >> 3, kind, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise BadRecordError("a number has no end")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
