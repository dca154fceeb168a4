"""CPU and memory of an attempt's replicas, as its supervisor wrote them down, line by line."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

import orjson

LOOK_BYTES = 4 << 20
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
_MAX_SPAN_S = 3600.0


class ResourceSample(NamedTuple):
    """One replica over `span_s` seconds up to a time: cores in use, and the most bytes and processes seen."""

    time_us: int
    replica: str
    cpu: float
    memory_bytes: int
    processes: int
    span_s: float


def samples_since(attempt: Path, offset: int = 0) -> tuple[list[ResourceSample], int, bool]:
    """What comes after `offset`, the offset behind it, and whether that is all there is now.

    The folder is the trainer's too: a line that is none of ours is passed over, and anything but a plain file is empty.
    """
    try:
        fd = os.open(attempt / "samples.jsonl", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno in _ABSENT:
            return [], offset, True
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return [], offset, True
        data = os.pread(fd, LOOK_BYTES, offset)
    finally:
        os.close(fd)
    complete = offset + len(data) >= status.st_size
    whole, end, _torn = data.rpartition(b"\n")
    if not end:  # a line that is longer than a look is none of ours
        return [], offset if complete else offset + len(data), complete
    read = map(_sample, whole.split(b"\n"))
    return [sample for sample in read if sample is not None], offset + len(whole) + 1, complete


def _sample(line: bytes) -> ResourceSample | None:
    try:
        given = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(given, dict) or not isinstance(name := given.get("r"), str) or len(name) > 128:
        return None
    numbers = [_number(given.get(key, 1)) for key in ("t", "cpu", "rss", "processes", "span")]
    if any(number is None for number in numbers):
        return None
    time_us, cpu, rss, processes, span_s = (number or 0 for number in numbers)
    return ResourceSample(int(time_us), name, cpu, int(rss), int(processes), min(max(span_s, 0.001), _MAX_SPAN_S))


def _number(value: Any) -> float | None:
    """A number that fits everywhere; JSON has no infinities, but large ones."""
    return value if type(value) in (int, float) and 0 <= value < 1 << 62 else None
