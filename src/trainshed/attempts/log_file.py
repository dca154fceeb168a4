"""The lines that a supervisor wrote: one file an attempt, in time order, perhaps still growing.

The trainer runs beside the file and may do anything to it. So links are not followed, nothing but a plain file is
read, memory is bounded whatever is in it, and what is not a line of ours becomes a line that says so.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from trainshed.domain.filters.terms import SEVERITIES

LOG_NAME = "log.jsonl"
CHUNK = 64 * 1024
MAX_LINE = 4 * 1024 * 1024  #: a longer one is not ours: supervisors cut lines long before
MAX_TIME_US = 253_402_300_799_999_999  #: the end of the year 9999
_MAX_RUN = 10_000  #: damaged lines told of in one
_LOOK_BACK = 1024 * 1024


class LogRecord(NamedTuple):
    """One line and the bytes that it takes: `start` up to, and not including, `end`."""

    start: int
    end: int
    time_us: int
    replica: str
    severity: str
    message: str


class _Raw(NamedTuple):
    start: int
    end: int
    data: bytes | None  #: None: too long to be held


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLog:
    """The log of one attempt. Each call sees the file as it is by then; a last line without its end is not there yet.

    `root` is trusted, each name in `folder` is not. Lines before the first readable one are given the time `floor_us`.
    """

    root: Path
    folder: tuple[str, ...]
    floor_us: int

    def size(self) -> int:
        """How many bytes there are, torn line included. 0 if there is no file, or none that may be read."""
        try:
            with self._opened() as fd:
                return os.fstat(fd).st_size
        except OSError:
            return 0

    def forwards(self, start: int = 0) -> Iterator[LogRecord]:
        """The lines from the one that begins at byte `start`, oldest first."""
        if (trouble := self._trouble()) is not None:
            yield from (trouble,) if start == 0 else ()
            return
        last_us: int | None = None
        damaged: list[_Raw] = []
        for raw in self._raw_forwards(start):
            line = _parsed(raw, last_us or 0)
            if line is not None or len(damaged) == _MAX_RUN:
                if damaged:
                    last_us = self._good_before(damaged[0].start) if last_us is None else last_us
                    yield _damaged(damaged, last_us)
                damaged = []
            if line is None:
                damaged.append(_Raw(raw.start, raw.end, None))
                continue
            last_us = line.time_us
            yield line
        if damaged:
            yield _damaged(damaged, self._good_before(damaged[0].start) if last_us is None else last_us)

    def backwards(self, stop: int | None = None) -> Iterator[LogRecord]:
        """The lines before byte `stop`, at which one begins, newest first. None: from the end."""
        if (trouble := self._trouble()) is not None:
            yield trouble
            return
        next_us = MAX_TIME_US
        damaged: list[_Raw] = []
        for raw in self._raw_backwards(self.complete() if stop is None else stop):
            line = _parsed(raw, 0)
            if line is None:
                damaged.insert(0, _Raw(raw.start, raw.end, None))
                if len(damaged) == _MAX_RUN:
                    yield _damaged(damaged, min(next_us, self._good_before(raw.start)))
                    damaged = []
                continue
            if damaged:
                yield _damaged(damaged, min(line.time_us, next_us))
                damaged = []
            next_us = min(line.time_us, next_us)
            yield line._replace(time_us=next_us)
        if damaged:
            yield _damaged(damaged, self.floor_us)

    def find(self, time_us: int) -> int:
        """The byte at which the first line of that time or later begins; the end if there is none."""
        low, high = 0, self.complete()
        end = high
        while high - low > CHUNK:
            middle = (low + high) // 2
            probe = self._good_from(middle, high)
            if probe is not None and probe.time_us < time_us:
                low = probe.end
            else:
                high = middle
        for raw in self._raw_forwards(low):
            if (line := _parsed(raw, 0)) is not None and line.time_us >= time_us:
                return line.start
            if raw.end >= end:
                break
        return end

    def complete(self) -> int:
        """The byte after the last line that has its end."""
        try:
            with self._opened() as fd:
                at = os.fstat(fd).st_size
                while at > 0:
                    begin = max(0, at - CHUNK)
                    if (cut := os.pread(fd, at - begin, begin).rfind(b"\n")) >= 0:
                        return begin + cut + 1
                    at = begin
        except OSError:
            return 0
        return 0

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """`OSError` if it is not there, not a plain file, or behind a link."""
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in (*self.folder, LOG_NAME):
                kind = os.O_NONBLOCK if name == LOG_NAME else os.O_DIRECTORY  # a FIFO must not stop us
                inner = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=fd)
                os.close(fd)
                fd = inner
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError("it is not a plain file")
            yield fd
        finally:
            os.close(fd)

    def _trouble(self) -> LogRecord | None:
        """A line that says why the file can't be read, if it is there and can't."""
        try:
            with self._opened():
                return None
        except FileNotFoundError:
            return None
        except OSError as exc:
            text = f"The log of this attempt can't be read: {exc.strerror or exc}. The job may have replaced it."
            return LogRecord(0, 1, self.floor_us, "service", "WARNING", text)

    def _pread(self, size: int, at: int) -> bytes:
        """Opens anew each time, so that many files being read at once hold no descriptors."""
        try:
            with self._opened() as fd:
                return os.pread(fd, size, at)
        except OSError:  # gone or replaced meanwhile: there is no more of it
            return b""

    def _raw_forwards(self, at: int) -> Iterator[_Raw]:
        wanted = CHUNK
        while data := self._pread(wanted, at):
            cut = data.rfind(b"\n")
            if cut >= 0:
                for part in data[:cut].split(b"\n"):
                    yield _Raw(at, at + len(part) + 1, part)
                    at += len(part) + 1
                wanted = CHUNK
            elif len(data) < wanted:
                return
            elif wanted < MAX_LINE:
                wanted *= 4
            else:
                end = self._line_start(at + len(data))
                if end is None:
                    return
                yield _Raw(at, end, None)
                at, wanted = end, CHUNK

    def _raw_backwards(self, end: int) -> Iterator[_Raw]:
        wanted = CHUNK
        while end > 0:
            begin = max(0, end - wanted)
            data = self._pread(end - begin, begin)
            if len(data) < end - begin:
                return
            skipped = data.find(b"\n", 0, len(data) - 1) + 1 if begin > 0 else 0
            if begin > 0 and skipped == 0 and wanted < MAX_LINE:
                wanted *= 4
                continue
            wanted = CHUNK
            if begin > 0 and skipped == 0:
                start = self._previous_start(begin)
                yield _Raw(start, end, None)
                end = start
                continue
            for part in reversed(data[skipped:-1].split(b"\n")):
                yield _Raw(end - len(part) - 1, end, part)
                end -= len(part) + 1

    def _line_start(self, at: int) -> int | None:
        """The first byte, `at` or later, that begins a line; None if no line has ended there yet."""
        if at == 0:
            return 0
        at -= 1
        while data := self._pread(CHUNK, at):
            if (cut := data.find(b"\n")) >= 0:
                return at + cut + 1
            at += len(data)
        return None

    def _previous_start(self, at: int) -> int:
        """The last byte, `at` or earlier, that begins a line."""
        while at > 0:
            begin = max(0, at - CHUNK)
            if (cut := self._pread(at - begin, begin).rfind(b"\n")) >= 0:
                return begin + cut + 1
            at = begin
        return 0

    def _good_from(self, at: int, before: int) -> LogRecord | None:
        """The first readable line that begins in that range."""
        start = self._line_start(at)
        if start is None:
            return None
        for raw in self._raw_forwards(start):
            if raw.start >= before:
                return None
            if (line := _parsed(raw, 0)) is not None:
                return line
        return None

    def _good_before(self, at: int) -> int:
        """The time of the last readable line before that byte, if there is one near."""
        for raw in self._raw_backwards(at):
            if (line := _parsed(raw, 0)) is not None:
                return line.time_us
            if at - raw.start > _LOOK_BACK:
                break
        return self.floor_us


def _parsed(raw: _Raw, not_before_us: int) -> LogRecord | None:
    if raw.data is None:
        return None
    value = _json(raw.data)
    if type(value) is not dict:
        return None
    time_us, replica, severity, text = value.get("t"), value.get("r"), value.get("s"), value.get("m")
    if type(time_us) is not int or not 0 <= time_us <= MAX_TIME_US:  # not isinstance: true is no time
        return None
    if type(replica) is not str or type(severity) is not str or type(text) is not str or len(replica) > 128:
        return None
    known = severity if severity in SEVERITIES else "DEFAULT"
    return LogRecord(raw.start, raw.end, max(time_us, not_before_us), replica, known, text)


def _json(data: bytes) -> Any:
    """The value, or None. Half a surrogate pair, which strict JSON has no room for, is shown escaped."""
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


def _damaged(run: list[_Raw], time_us: int) -> LogRecord:
    start, end = run[0].start, run[-1].end
    what = "A damaged line was" if len(run) == 1 else f"{len(run):,} damaged lines were"
    text = f"{what} left out here: {end - start:,} bytes at byte {start:,} of the job's log can't be read."
    return LogRecord(start, end, time_us, "service", "WARNING", text)
