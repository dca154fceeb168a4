"""A small writer of event files, for tests: TFRecord framing around scalar events, as TF1 and TF2 write them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from trainshed.testing.workloads.records import field, framed, varint


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
