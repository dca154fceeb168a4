"""Reads the log of an attempt: one file in time order, which may still grow.

The trainer runs beside the file and may do anything to it. So links are not followed, only a regular file is read,
memory and the time for one record are bounded whatever its content, holes are not read, and damaged lines become a
record that says so.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from trainshed.domain.filters.terms import SEVERITIES
from trainshed.node.files import next_data
from trainshed.node.supervisor.log_writer import CLEANUP

LOG_NAME = "log.jsonl"
CHUNK_BYTES = 64 * 1024
LINE_MAX_BYTES = 4 * 1024 * 1024  #: a longer line is damaged: supervisors split lines long before
MAX_TIME_US = 253_402_300_799_999_999  #: the end of the year 9999
_MAX_DAMAGED_RUN = 10_000  #: damaged lines that one record reports
_MAX_DAMAGED_RUN_BYTES = 64 << 20  #: that one record reports, holes aside
_SEARCH_MAX_BYTES = 16 << 20  #: of damaged lines that are read for one readable one
_SEARCH_LINE_BYTES = 256  #: what a line costs besides its bytes in a search that is limited
_LINE_SEARCH_MAX_BYTES = 64 << 20  #: that are read for one end of a line; a damaged line ends there if it has no other
_BLOCK_BYTES = 4096  #: a hole is as many blocks of the file system


class LogRecord(NamedTuple):
    """One log record and its bytes: from `start` up to, but not including, `end`."""

    start: int
    end: int
    time_us: int
    replica: str
    severity: str
    message: str
    kind: str = ""  #: of a line that the supervisor wrote, if it has one

    @property
    def is_cleanup(self) -> bool:
        """Whether the supervisor wrote it after the exit of the replica."""
        return self.kind == CLEANUP


class _Raw(NamedTuple):
    start: int
    end: int
    data: bytes | None  #: None: too long to be held


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLog:
    """The log of one attempt. Each call sees the file as it is then. An unterminated last line does not count yet.

    `root` is trusted, the names in `folder` are not. Damaged lines before the first readable
    one get the time `floor_us`.
    """

    root: Path
    folder: tuple[str, ...]
    floor_us: int
    bucket_root: str = ""  #: the start of paths that are shown as gs:// URIs

    def size(self) -> int:
        """The size in bytes, including an unterminated line. Returns 0 if there is no
        file, or none that may be read."""
        try:
            with self._open() as fd:
                return os.fstat(fd).st_size
        except OSError:
            return 0

    def append(self, entries: Sequence[tuple[int, str, str, str]]) -> None:
        """Append records of time, replica, severity and message, as one write between those of the supervisor.

        Raises `OSError` if the file is missing, has another name too, or is not a regular file.
        """
        lines = [
            orjson.dumps({"t": time_us, "r": replica, "s": severity, "m": message}) + b"\n"
            for time_us, replica, severity, message in entries
        ]
        with self._open(os.O_WRONLY | os.O_APPEND) as fd:
            if os.fstat(fd).st_nlink != 1:
                raise OSError("it has another name, so it may not be the log alone")
            os.write(fd, b"".join(lines))

    def forwards(self, start: int = 0) -> Iterator[LogRecord]:
        """The records from byte `start` on, at which a line begins, oldest first."""
        if (unreadable := self._unreadable_record()) is not None:
            yield from (unreadable,) if start == 0 else ()
            return
        last_us: int | None = None
        damaged: list[_Raw] = []
        for raw in self._raw_forwards(start):
            record = _parse(raw, last_us or 0)
            if record is not None or _is_long(damaged):
                if damaged:
                    last_us = self._time_before(damaged[0].start) if last_us is None else last_us
                    yield _damaged_record(damaged, last_us)
                damaged = []
            if record is None:
                damaged.append(_Raw(raw.start, raw.end, None))
                continue
            last_us = record.time_us
            yield self._with_uris(record)
        if damaged:
            yield _damaged_record(damaged, self._time_before(damaged[0].start) if last_us is None else last_us)

    def _with_uris(self, record: LogRecord) -> LogRecord:
        if not self.bucket_root or self.bucket_root not in record.message:
            return record
        return record._replace(message=record.message.replace(self.bucket_root, "gs://"))

    def backwards(self, stop: int | None = None) -> Iterator[LogRecord]:
        """The records before byte `stop`, at which a line begins, newest first. None: from the end."""
        if (unreadable := self._unreadable_record()) is not None:
            yield unreadable
            return
        next_us = MAX_TIME_US
        damaged: list[_Raw] = []
        for raw in self._raw_backwards(self.complete() if stop is None else stop):
            record = _parse(raw, 0)
            if record is None:
                damaged.append(_Raw(raw.start, raw.end, None))
                if _is_long(damaged):
                    yield _damaged_record(damaged[::-1], min(next_us, self._time_before(raw.start)))
                    damaged = []
                continue
            if damaged:
                yield _damaged_record(damaged[::-1], min(record.time_us, next_us))
                damaged = []
            next_us = min(record.time_us, next_us)
            yield self._with_uris(record._replace(time_us=next_us))
        if damaged:
            yield _damaged_record(damaged[::-1], self.floor_us)

    def find(self, time_us: int) -> int:
        """The offset of the first record with this time or later; the end if there is none."""
        if (unreadable := self._unreadable_record()) is not None:
            return unreadable.start if unreadable.time_us >= time_us else unreadable.end
        low, high = 0, self.complete()
        end = high
        while high - low > CHUNK_BYTES:
            middle = (low + high) // 2
            probe = self._first_readable(middle, high)
            if probe is not None and probe.time_us < time_us:
                low = probe.end
            else:
                high = middle
        remaining = _SEARCH_MAX_BYTES
        for raw in self._raw_forwards(low):
            if (record := _parse(raw, 0)) is not None and record.time_us >= time_us:
                return record.start
            if raw.end >= end:
                break
            remaining -= _search_cost(raw)
            if remaining < 0 and raw.start >= high:  # damaged beyond the place that the search found
                return raw.start
        return end

    def complete(self) -> int:
        """The offset after the last terminated line, or after the record that says why the file can't be read."""
        if (unreadable := self._unreadable_record()) is not None:
            return unreadable.end
        try:
            with self._open() as fd:
                return _start_before(fd, os.fstat(fd).st_size)
        except OSError:
            return 0

    @contextmanager
    def _open(self, access: int = os.O_RDONLY) -> Iterator[int]:
        """Raises `OSError` if the file is missing, not a regular file, or behind a link."""
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in (*self.folder, LOG_NAME):
                flag = access | os.O_NONBLOCK if name == LOG_NAME else os.O_DIRECTORY  # opening a FIFO must not block
                inner_fd = os.open(name, os.O_NOFOLLOW | os.O_CLOEXEC | flag, dir_fd=fd)
                os.close(fd)
                fd = inner_fd
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError("it is not a plain file")
            yield fd
        finally:
            os.close(fd)

    def _unreadable_record(self) -> LogRecord | None:
        """A record that says why the file can't be read. Returns None if it can, or is missing."""
        try:
            with self._open():
                return None
        except FileNotFoundError:
            return None
        except OSError as exc:
            message = f"The log of this attempt can't be read: {exc.strerror or exc}. The job may have replaced it."
            return LogRecord(0, 1, self.floor_us, "service", "WARNING", message)

    def _pread(self, size: int, offset: int) -> bytes:
        """Opens the file for each read, so that many logs being read at once hold no descriptors."""
        try:
            with self._open() as fd:
                return os.pread(fd, size, offset)
        except OSError:  # gone or replaced meanwhile, so there is no more of it
            return b""

    def _raw_forwards(self, offset: int) -> Iterator[_Raw]:
        size = CHUNK_BYTES
        while data := self._pread(size, offset):
            newline = data.rfind(b"\n")
            if newline >= 0:
                for part in data[:newline].split(b"\n"):
                    yield _Raw(offset, offset + len(part) + 1, part)
                    offset += len(part) + 1
                size = CHUNK_BYTES
            elif len(data) < size:
                return
            elif size < LINE_MAX_BYTES:
                size *= 4
            else:
                end = self._line_start(offset + len(data))
                if end is None:
                    return
                yield _Raw(offset, end, None)
                offset, size = end, CHUNK_BYTES

    def _raw_backwards(self, end: int) -> Iterator[_Raw]:
        size = CHUNK_BYTES
        while end > 0:
            begin_offset = max(0, end - size)
            data = self._pread(end - begin_offset, begin_offset)
            if len(data) < end - begin_offset:
                return
            skipped = data.find(b"\n", 0, len(data) - 1) + 1 if begin_offset > 0 else 0
            if begin_offset > 0 and skipped == 0 and size < LINE_MAX_BYTES:
                size *= 4
                continue
            size = CHUNK_BYTES
            if begin_offset > 0 and skipped == 0:
                start = self._previous_start(begin_offset)
                yield _Raw(start, end, None)
                end = start
                continue
            for part in reversed(data[skipped:-1].split(b"\n")):
                yield _Raw(end - len(part) - 1, end, part)
                end -= len(part) + 1

    def _line_start(self, offset: int) -> int | None:
        """The first offset, `offset` or later, at which a line begins. Returns None if no line has ended there yet."""
        if offset == 0:
            return 0
        try:
            with self._open() as fd:
                return _start_after(fd, offset - 1)
        except OSError:  # gone or replaced meanwhile
            return None

    def _previous_start(self, offset: int) -> int:
        """The last offset, `offset` or earlier, at which a line begins."""
        try:
            with self._open() as fd:
                return _start_before(fd, offset)
        except OSError:
            return 0

    def _first_readable(self, offset: int, before: int) -> LogRecord | None:
        """The first readable record that begins in this range. Returns None if there is none."""
        start = self._line_start(offset)
        if start is None:
            return None
        remaining = _SEARCH_MAX_BYTES
        for raw in self._raw_forwards(start):
            remaining -= _search_cost(raw)
            if raw.start >= before or remaining < 0:
                return None
            if (record := _parse(raw, 0)) is not None:
                return record
        return None

    def _time_before(self, offset: int) -> int:
        """The time of the last readable record before this offset, if there is one nearby. Otherwise `floor_us`."""
        remaining = _SEARCH_MAX_BYTES
        for raw in self._raw_backwards(offset):
            if (record := _parse(raw, 0)) is not None:
                return record.time_us
            remaining -= _search_cost(raw)
            if remaining < 0:
                break
        return self.floor_us


def _start_before(fd: int, offset: int) -> int:
    """The last offset, `offset` or earlier, at which a line begins, or at which the search for one gives up."""
    lowest = offset
    remaining = _LINE_SEARCH_MAX_BYTES
    while lowest > 0 and remaining > 0:
        lowest = _data_end(fd, lowest)
        start = max(0, lowest - CHUNK_BYTES)
        if (newline := os.pread(fd, lowest - start, start).rfind(b"\n")) >= 0:
            return start + newline + 1
        lowest, remaining = start, remaining - CHUNK_BYTES
    return lowest


def _start_after(fd: int, offset: int) -> int | None:
    """The offset after the next end of a line, or at which the search for one gives up. Returns None at the end."""
    remaining = _LINE_SEARCH_MAX_BYTES
    while remaining > 0:
        offset = next_data(fd, offset)
        if not (data := os.pread(fd, CHUNK_BYTES, offset)):
            return None
        if (newline := data.find(b"\n")) >= 0:
            return offset + newline + 1
        offset, remaining = offset + len(data), remaining - CHUNK_BYTES
    return offset


def _data_end(fd: int, offset: int) -> int:
    """The end of the data before `offset`: `offset` itself, unless a hole is before it. Returns 0 if there is none."""
    below = max(0, offset - CHUNK_BYTES)
    if next_data(fd, below) < offset:
        return offset
    low, high = 0, below // _BLOCK_BYTES + 1  # the last block with data is in [low, high), if there is one
    while high - low > 1:
        middle = (low + high) // 2
        if next_data(fd, middle * _BLOCK_BYTES) < offset:
            low = middle
        else:
            high = middle
    start = low * _BLOCK_BYTES
    return min(offset, start + _BLOCK_BYTES) if next_data(fd, start) < offset else 0


def _search_cost(raw: _Raw) -> int:
    return _SEARCH_LINE_BYTES + raw.end - raw.start


def _is_long(damaged: list[_Raw]) -> bool:
    """Whether a run of damaged lines has reached the most lines, or bytes without holes, that one record reports."""
    return len(damaged) == _MAX_DAMAGED_RUN or (
        bool(damaged) and abs(damaged[-1].end - damaged[0].start) > _MAX_DAMAGED_RUN_BYTES
    )


def _parse(raw: _Raw, not_before_us: int) -> LogRecord | None:
    if raw.data is None:
        return None
    value = _json(raw.data)
    if type(value) is not dict:
        return None
    time_us, replica, severity, message = value.get("t"), value.get("r"), value.get("s"), value.get("m")
    if type(time_us) is not int or not 0 <= time_us <= MAX_TIME_US:  # not isinstance: true is no time
        return None
    if type(replica) is not str or type(severity) is not str or type(message) is not str or len(replica) > 128:
        return None
    level = severity if severity in SEVERITIES else "DEFAULT"
    kind = value.get("k")
    if type(kind) is not str:
        kind = ""
    return LogRecord(raw.start, raw.end, max(time_us, not_before_us), replica, level, message, kind)


def _json(data: bytes) -> Any:
    """The object. Returns None if it is invalid. Escapes lone surrogates, which strict JSON does not allow."""
    if data.lstrip()[:1] != b"{":  # most garbage, which may be much: parsing it twice costs far more
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return {k: v.encode(errors="backslashreplace").decode() if isinstance(v, str) else v for k, v in value.items()}


def _damaged_record(run: list[_Raw], time_us: int) -> LogRecord:
    start, end = run[0].start, run[-1].end
    subject = "A damaged line was" if len(run) == 1 else f"{len(run):,} damaged lines were"
    message = f"{subject} left out here: {end - start:,} bytes at byte {start:,} of the job's log can't be read."
    return LogRecord(start, end, time_us, "service", "WARNING", message)
