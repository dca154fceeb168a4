"""From the bytes that replicas print to the lines of log.jsonl: cut, escaped, with a severity, a time and a limit."""

from __future__ import annotations

import os
import re
from json.encoder import encode_basestring

from ..journal import FULL, now_us

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    Entry = tuple[str, str, str]  # replica, severity, text

LINE_LIMIT = 64 * 1024
TAIL_BYTES = 16 * 1024
_ELLIPSIS = "…".encode()

STDOUT = "INFO"  #: the severity of a line that does not tell its own
STDERR = "ERROR"

_LETTERS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
_WORDS = {"WARN": "WARNING", "FATAL": "CRITICAL"}
_TIME = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d"
_LEVEL = r"(DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b"
_OWN_SEVERITY = re.compile(
    _TIME
    + r"\.\d+: ([DIWEF]) "  # TensorFlow's C++
    + r"|([DIWEF])\d{4} \d\d:\d\d:\d[\d.]*\s"  # glog, absl, gRPC
    + "|"
    + _LEVEL
    + ":"  # Python's logging.basicConfig
    + "|"
    + _TIME
    + r"[,.]\d+ (?:- )?(?:[\w.]+ - )?\[?"  # Python's logging with a time in front
    + _LEVEL
)

_PREFIX = re.compile(r"\A(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.-]+:")

#: Control characters, but for the tab, as people write them down: a log must not steer the terminal that shows it.
_ESCAPES = {code: "\\x%02x" % code for code in [*range(32), *range(127, 160)] if code != 9}


def severity(line: str, default: str) -> str:
    """The severity that the line itself tells, in the way of TensorFlow, glog or Python's logging; else `default`."""
    match = _OWN_SEVERITY.match(line)
    if match is None:
        return default
    word = next(group for group in match.groups() if group)
    return _LETTERS.get(word) or _WORDS.get(word, word)


def strip_prefix(line: str) -> str:
    """The line without the level and the name that Python's logging puts in front: the level is its severity."""
    return _PREFIX.sub("", line, count=1) or line


def printable(line: bytes) -> str:
    """A line for people: bytes that are not UTF-8, and control characters, are spelled out."""
    decoded = line.decode("utf-8", "backslashreplace")
    return decoded if decoded.isprintable() else decoded.translate(_ESCAPES)


class LineSplitter:
    """Cuts a stream of bytes into lines. Blank lines are left out; one over the limit comes as several, each but the
    last ending in an ellipsis."""

    def __init__(self) -> None:
        self.rest = b""  #: what has no line end yet
        self._continues = False

    def feed(self, data: bytes) -> list[bytes]:
        if b"\r" in data:
            data = data.replace(b"\r", b"\n")  # each state of a progress bar is a line
        whole = (self.rest + data).split(b"\n")
        unfinished = whole.pop()
        found: list[bytes] = []
        for line in whole:
            last = self._cut(line, found)
            if last.strip() or (self._continues and last):
                found.append(last)
            self._continues = False
        self.rest = self._cut(unfinished, found)
        return found

    def flush(self) -> list[bytes]:
        """The end of the stream: what is left is a line."""
        return self.feed(b"\n") if self.rest else []

    def _cut(self, line: bytes, found: list[bytes]) -> bytes:
        """Put the pieces that a line is too long by into `found`; returns what is left of it."""
        while len(line) > LINE_LIMIT:
            end = LINE_LIMIT
            while end > LINE_LIMIT - 4 and line[end] & 0xC0 == 0x80:  # within a character
                end -= 1
            found.append(line[:end] + _ELLIPSIS)
            line = line[end:]
            self._continues = True
        return line


class LogWriter:
    """log.jsonl. Times grow from line to line, whatever the clock does. A full disk costs lines, never the job."""

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
        self._last_us = 0
        self._held: list[Entry] = []

    def hold(self, entry: Entry) -> None:
        """Append a line that must not be lost: if there is no space now, it comes first when there is."""
        self._held.append(entry)
        self.flush()

    def flush(self) -> bool:
        """Append what is held. False: there is still no space."""
        return self.write([])

    def write(self, entries: list[Entry]) -> bool:
        """Append these, in order, all or none. False: there was no space for them."""
        entries = self._held + entries
        first_us = max(now_us(), self._last_us + 1)
        self._last_us = first_us + len(entries) - 1
        lines = [
            '{"t":%d,"r":%s,"s":"%s","m":%s}\n'
            % (time_us, encode_basestring(replica), level, encode_basestring(message))
            for time_us, (replica, level, message) in enumerate(entries, first_us)
        ]
        done = self._append("".join(lines).encode("utf-8", "backslashreplace"))
        if done:
            self._held = []
        return done

    def _append(self, data: bytes) -> bool:
        size = os.fstat(self._fd).st_size
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as exc:
            if exc.errno not in FULL:
                raise
            os.ftruncate(self._fd, size)
            return False
        return True


class ReplicaLog:
    """The part of the log that one replica may fill: `limit_bytes` of output, then a mark, then only a count.

    `watch` is shown the lines after they are written.
    """

    def __init__(
        self, name: str, file: LogWriter, limit_bytes: int, watch: Optional[Callable[[list[bytes]], None]] = None
    ) -> None:
        self.name = name
        self._file = file
        self._limit = limit_bytes
        self._watch = watch
        self._kept = 0
        self._dropping = False
        self._lost_lines = 0
        self._lost_bytes = 0
        self._lines = {STDOUT: LineSplitter(), STDERR: LineSplitter()}
        self._tails: dict[str, bytes] = {STDOUT: b"", STDERR: b""}

    def take(self, stream: str, data: bytes) -> None:
        """Output of the replica, in pieces of any size. `stream` is STDOUT or STDERR."""
        self._tails[stream] = (self._tails[stream] + data)[-TAIL_BYTES:]
        if self._dropping:
            self._lost_lines += data.count(b"\n")
            self._lost_bytes += len(data)
        else:
            self._keep(stream, self._lines[stream].feed(data))

    def end(self, stream: str) -> None:
        """The stream is at its end: what has no line end is a line. May be repeated."""
        if not self._dropping:
            self._keep(stream, self._lines[stream].flush())
        elif self._tails[stream] and not self._tails[stream].endswith(b"\n"):
            self._lost_lines += 1
        self._tails[stream] = self._tails[stream].rstrip(b"\n") + b"\n"

    def say(self, message: str, level: str = "INFO") -> None:
        """A line about the replica; these are few and not limited."""
        self._file.hold((self.name, level, printable(message.encode("utf-8", "surrogateescape"))))

    def tail(self) -> str:
        """The last of what it wrote to stderr or, if that was nothing, to stdout."""
        data = self._tails[STDERR] if self._tails[STDERR].strip() else self._tails[STDOUT]
        return "\n".join(printable(line) for line in data.replace(b"\r", b"\n").split(b"\n"))

    def renew(self) -> None:
        """A new copy of the replica begins: what the old one left has no more to do with it."""
        for stream in (STDOUT, STDERR):
            self.end(stream)
            self._tails[stream] = b""

    def close(self) -> None:
        """Write what has no line end, and what had to be dropped."""
        for stream in (STDOUT, STDERR):
            self.end(stream)
        if self._lost_lines or self._lost_bytes:
            self.say(
                "Dropped %d lines (%d bytes): the log of %s is limited to %s MB."
                % (self._lost_lines, self._lost_bytes, self.name, _mb(self._limit)),
                "WARNING",
            )

    def _keep(self, stream: str, lines: list[bytes]) -> None:
        entries: list[Entry] = []
        room = self._limit - self._kept
        for index, line in enumerate(lines):
            if len(line) >= room:
                self._drop_from(lines[index:])
                break
            room -= len(line) + 1
            whole = printable(line)
            entries.append((self.name, severity(whole, stream), strip_prefix(whole)))
        self._kept = self._limit - room
        if entries and not self._file.write(entries):
            self._lose(lines[: len(entries)])
        if self._dropping:
            self.say(
                "The log of %s has reached its limit of %s MB. What comes now is counted, but not kept."
                % (self.name, _mb(self._limit)),
                "WARNING",
            )
        if self._watch is not None:
            self._watch(lines)

    def _drop_from(self, lines: list[bytes]) -> None:
        self._dropping = True
        self._lose(lines)
        for unfinished in self._lines.values():
            self._lost_bytes += len(unfinished.rest)

    def _lose(self, lines: list[bytes]) -> None:
        self._lost_lines += len(lines)
        self._lost_bytes += sum(len(line) + 1 for line in lines)


def _mb(size: int) -> str:
    return "%g" % round(size / (1 << 20), 3)
