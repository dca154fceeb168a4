"""A writer of protocol buffers and of TFRecord's framing, for tests."""

from __future__ import annotations

import struct

from trainshed.serving.formats.tfrecord import masked_crc


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: int | bytes | str) -> bytes:
    """Encode a field: a number as a varint, anything else with its length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def framed(record: bytes) -> bytes:
    """A record of a TFRecord file."""
    header = struct.pack("<Q", len(record))
    return header + struct.pack("<I", masked_crc(header)) + record + struct.pack("<I", masked_crc(record))
