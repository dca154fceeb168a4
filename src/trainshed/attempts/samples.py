"""Reads CPU and memory samples of an attempt's replicas, as its supervisor wrote them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

import orjson

READ_MAX_BYTES = 4 << 20
_ABSENT_ERRORS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
_MAX_SPAN_S = 3600.0


class ResourceSample(NamedTuple):
    """One replica over the `span_s` seconds before a time: cores in use, and maximum bytes and processes."""

    time_us: int
    replica: str
    cpu: float
    memory_bytes: int
    processes: int
    span_s: float


def samples_since(attempt: Path, offset: int = 0) -> tuple[list[ResourceSample], int, bool]:
    """The samples after `offset`, the offset behind them, and whether these are all there are now.

    The trainer can write to the folder. Invalid lines are skipped, and anything but a regular file counts as empty.
    """
    try:
        fd = os.open(attempt / "samples.jsonl", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno in _ABSENT_ERRORS:
            return [], offset, True
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return [], offset, True
        data = os.pread(fd, READ_MAX_BYTES, offset)
    finally:
        os.close(fd)
    complete = offset + len(data) >= status.st_size
    complete_lines, end, _torn = data.rpartition(b"\n")
    if not end:  # a line longer than one read is invalid
        return [], offset if complete else offset + len(data), complete
    samples = map(_parse_sample, complete_lines.split(b"\n"))
    return [sample for sample in samples if sample is not None], offset + len(complete_lines) + 1, complete


def _parse_sample(line: bytes) -> ResourceSample | None:
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(fields, dict) or not isinstance(name := fields.get("r"), str) or len(name) > 128:
        return None
    numbers = [_number(fields.get(key, 1)) for key in ("t", "cpu", "rss", "processes", "span")]
    if any(number is None for number in numbers):
        return None
    time_us, cpu, rss, processes, span_s = (number or 0 for number in numbers)
    return ResourceSample(int(time_us), name, cpu, int(rss), int(processes), min(max(span_s, 0.001), _MAX_SPAN_S))


def _number(value: Any) -> float | None:
    """The value if it is a number in range. JSON has no infinities, but large numbers."""
    return value if type(value) in (int, float) and 0 <= value < 1 << 62 else None
