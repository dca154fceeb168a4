"""A small writer of event files, for tests: protocol buffers, TFRecord framing, scalar events of TF1 and TF2."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from trainshed.serving.formats.tfrecord import masked_crc


def simple_value(tag: str, value: float) -> bytes:
    """Encode a Summary.Value of TF1."""
    return field(1, tag) + varint(2 << 3 | 5) + struct.pack("<f", value)


def tensor_value(tag: str, tensor: bytes, *, plugin: str = "scalars") -> bytes:
    """Encode a Summary.Value of TF2, around a TensorProto. Without a plugin: as a later value of a known tag."""
    metadata = field(9, field(1, field(1, plugin))) if plugin else b""
    return field(1, tag) + field(8, tensor) + metadata


def float_tensor(value: float) -> bytes:
    return field(1, 1) + field(4, struct.pack("<f", value))


def event(time_s: float, step: int, *values: bytes) -> bytes:
    summary = b"".join(field(1, value) for value in values)
    head = varint(1 << 3 | 1) + struct.pack("<d", time_s) + field(2, step)
    return head + (field(5, summary) if values else field(3, b"brain.Event:2"))


def write_events(folder: Path, *steps: tuple[float, int, Mapping[str, float]], name: str = "1.host") -> Path:
    """Write an event file with `(time in seconds, step, {tag: value})` each. Appends if it exists."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{name}"
    with path.open("ab") as file:
        for time_s, step, values in steps:
            file.write(framed(event(time_s, step, *(simple_value(tag, value) for tag, value in values.items()))))
    return path


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
