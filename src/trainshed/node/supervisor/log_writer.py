"""Writes the output of replicas to log.jsonl: splits and escapes lines, adds severity and time, limits size."""

from __future__ import annotations

import os
import re
from json.encoder import encode_basestring

from ..journal import DISK_FULL, now_us
from .secrets import Mask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    Entry = tuple[str, str, str, str]  # replica, severity, message, kind

LINE_MAX_BYTES = 64 * 1024
TAIL_MAX_BYTES = 16 * 1024
_ELLIPSIS = "…".encode()
_BLANKS = b" \t\n\r\v\f\b"  #: a line of these alone is dropped

_TRACEBACK = "Traceback (most recent call last)"
_CONTINUATIONS = tuple(" \t}])>,")  #: first characters of a line that belongs to the record before it
_RECORD_MAX_LINES = 500  #: so that a bracket that is never closed does not hide what comes later

CLEANUP = "cleanup"  #: the kind of a line that follows the exit of a replica; other lines have none
STDOUT = "INFO"  #: the default severity of a line on this stream
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

#: Control characters except the tab. Escaping them keeps a log from steering the terminal that shows it.
_ESCAPES = {code: "\\x%02x" % code for code in [*range(32), *range(127, 160)] if code != 9}


def own_severity(line: str) -> str:
    """Severity in the format of TensorFlow, glog or Python's logging. Empty if the line has none."""
    match = _OWN_SEVERITY.match(line)
    if match is None:
        return ""
    word = next(group for group in match.groups() if group)
    return _LETTERS.get(word) or _WORDS.get(word, word)


class SeverityTracker:
    """The severities of the lines of one stream. A record may have several lines, and only the first one names its
    severity: indented lines, and lines within braces or brackets that the record has opened, belong to it."""

    def __init__(self, default: str) -> None:
        self._default = default
        self._record = ""  # severity of the record that the last line belongs to
        self._depth = 0  # braces and brackets that it has opened and not closed
        self._lines = 0

    def next(self, line: str) -> str:
        """The severity of the next line."""
        own = own_severity(line)
        if own:
            self._record, self._depth, self._lines = own, 0, 0
        elif not self._continues(line):
            self._record = ""
        if self._record:
            self._depth = max(0, self._depth + sum(map(line.count, "{[")) - sum(map(line.count, "}]")))
            self._lines += 1
        return self._record or self._default

    def _continues(self, line: str) -> bool:
        if self._lines >= _RECORD_MAX_LINES or line.startswith(_TRACEBACK):
            return False
        return self._depth > 0 or line[:1] in _CONTINUATIONS


def strip_prefix(line: str) -> str:
    """Strip the level and logger name that Python's logging prepends. The severity already has the level."""
    return _PREFIX.sub("", line, count=1) or line


def printable(line: bytes) -> str:
    """Decode a line for people. Bytes that are not UTF-8 and control characters are escaped.

    Backspaces are applied, as a terminal does: of a progress bar, its last state is left.
    """
    decoded = line.decode("utf-8", "backslashreplace")
    if decoded.isprintable():
        return decoded
    return (_overwritten(decoded) if "\b" in decoded else decoded).translate(_ESCAPES)


def _overwritten(line: str) -> str:
    """The line as a terminal shows it: each backspace moves the cursor back, and what follows overwrites."""
    shown: list[str] = []
    cursor = 0
    for part in re.split("(\b+)", line):
        if part.startswith("\b"):
            cursor = max(0, cursor - len(part))
        else:
            shown[cursor : cursor + len(part)] = part
            cursor += len(part)
    return "".join(shown)


class LineSplitter:
    """Splits a byte stream into lines. Blank lines are dropped. A line over the limit becomes several, and each but
    the last ends in an ellipsis."""

    def __init__(self, mask: Optional[Mask] = None) -> None:
        """`mask` replaces what no log may have. A line is not cut within it."""
        self._mask = mask or Mask()
        self.rest = b""  #: the unterminated last line
        self._continues = False
        self._last = b""  # of the lines that were not blank, masked

    def feed(self, data: bytes) -> list[bytes]:
        if b"\r" in data:
            data = data.replace(b"\r", b"\n")  # each state of a progress bar is a line
        complete = (self.rest + data).split(b"\n")
        unfinished = complete.pop()
        lines: list[bytes] = []
        for line in complete:
            last = self._mask.line(self._cut(line, lines), self._last)
            if last.strip(_BLANKS) or (self._continues and last):
                lines.append(last)
                self._last = last
            self._continues = False
        self.rest = self._cut(unfinished, lines)
        return lines

    def flush(self) -> list[bytes]:
        """End of the stream: returns the unterminated rest as a line."""
        return self.feed(b"\n") if self.rest else []

    def _cut(self, line: bytes, lines: list[bytes]) -> bytes:
        """Append the oversized line's leading chunks to `lines`. Returns the remainder."""
        while len(line) > LINE_MAX_BYTES + self._mask.longest:
            end = LINE_MAX_BYTES
            while end > LINE_MAX_BYTES - 4 and line[end] & 0xC0 == 0x80:  # within a character
                end -= 1
            end = self._mask.end_of_values(line, end)
            lines.append(self._mask(line[:end]) + _ELLIPSIS)
            line = line[end:]
            self._continues = True
        return line


class LogWriter:
    """Appends to log.jsonl. Timestamps increase strictly, whatever the clock does. A full disk
    costs lines, never the job."""

    def __init__(self, path: str, mask: Optional[Mask] = None) -> None:
        """`mask` replaces what the log may not have."""
        self.mask = mask or Mask()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
        self._last_us = 0
        self._pending: list[Entry] = []

    def write_reliably(self, entry: Entry) -> None:
        """Append an entry that must not be lost. If the disk is full, it comes first in a later write."""
        self._pending.append(entry)
        self.flush()

    def flush(self) -> bool:
        """Append pending entries. Returns False if the disk is still full."""
        return self.write([])

    def write(self, entries: list[Entry]) -> bool:
        """Append entries in order, all or none. Returns False if the disk is full."""
        entries = self._pending + entries
        first_us = max(now_us(), self._last_us + 1)
        self._last_us = first_us + len(entries) - 1
        lines = [
            '{"t":%d,"r":%s,"s":"%s","m":%s%s}\n'
            % (time_us, encode_basestring(replica), level, encode_basestring(message), kind and ',"k":"%s"' % kind)
            for time_us, (replica, level, message, kind) in enumerate(entries, first_us)
        ]
        done = self._append("".join(lines).encode("utf-8", "backslashreplace"))
        if done:
            self._pending = []
        return done

    def _append(self, data: bytes) -> bool:
        size = os.fstat(self._fd).st_size
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as exc:
            if exc.errno not in DISK_FULL:
                raise
            os.ftruncate(self._fd, size)
            return False
        return True


class ReplicaLog:
    """The log of one replica: `limit_bytes` of output, then one notice, then only a count.

    Lines that a full disk costs are counted too, and the count is written where they are missing.
    `watch` is called with the lines after they are written.
    """

    def __init__(
        self, name: str, file: LogWriter, limit_bytes: int, watch: Optional[Callable[[list[bytes]], None]] = None
    ) -> None:
        self.name = name
        self._file = file
        self._limit = limit_bytes
        self._watch = watch
        self._size = 0
        self._full = False
        self._dropped_lines = 0
        self._dropped_bytes = 0
        self._unwritten_lines = 0  # for lack of space on the disk, since the last line that was written
        self._unwritten_bytes = 0
        self._mask = file.mask
        self._splitters = {STDOUT: LineSplitter(file.mask), STDERR: LineSplitter(file.mask)}
        self._severities = {STDOUT: SeverityTracker(STDOUT), STDERR: SeverityTracker(STDERR)}
        self._tails: dict[str, bytes] = {STDOUT: b"", STDERR: b""}

    def feed(self, stream: str, data: bytes) -> None:
        """Add output of the replica, in chunks of any size. `stream` is STDOUT or STDERR."""
        self._tails[stream] = (self._tails[stream] + data)[-(TAIL_MAX_BYTES + self._mask.longest) :]
        if self._full:
            self._dropped_lines += data.count(b"\n")
            self._dropped_bytes += len(data)
        else:
            self._write_lines(stream, self._splitters[stream].feed(data))

    def end(self, stream: str) -> None:
        """End of a stream: the unterminated rest becomes a line. Idempotent."""
        if not self._full:
            self._write_lines(stream, self._splitters[stream].flush())
        elif self._tails[stream] and not self._tails[stream].endswith(b"\n"):
            self._dropped_lines += 1
        self._tails[stream] = self._tails[stream].rstrip(b"\n") + b"\n"

    def say(self, message: str, level: str = "INFO", kind: str = "") -> None:
        """Write a line about the replica. These lines are few and not limited."""
        text = printable(self._mask(message.encode("utf-8", "surrogateescape")))
        self._file.write_reliably((self.name, level, text, kind))

    def tail(self) -> str:
        """The last output on stderr, or on stdout if stderr is empty."""
        data = self._tails[STDERR] if self._tails[STDERR].strip() else self._tails[STDOUT]
        masked = self._mask.lines(data)
        if len(data) > TAIL_MAX_BYTES:
            masked = masked[self._mask.longest :]  # it may begin within a value
        return "\n".join(printable(line) for line in masked.replace(b"\r", b"\n").split(b"\n"))

    def reset(self) -> None:
        """Reset before the replica restarts: the old output does not belong to the new process."""
        for stream in (STDOUT, STDERR):
            self.end(stream)
            self._tails[stream] = b""
            self._severities[stream] = SeverityTracker(stream)

    def close(self) -> None:
        """Write unterminated lines and the count of dropped ones."""
        for stream in (STDOUT, STDERR):
            self.end(stream)
        if self._dropped_lines or self._dropped_bytes:
            self.say(
                "Dropped %d lines (%d bytes): the log of %s is limited to %s MB."
                % (self._dropped_lines, self._dropped_bytes, self.name, _mb(self._limit)),
                "WARNING",
            )
        for _, level, message, _ in self._gap():
            self.say(message, level)

    def _write_lines(self, stream: str, lines: list[bytes]) -> None:
        entries: list[Entry] = []
        free_bytes = self._limit - self._size
        for index, line in enumerate(lines):
            if len(line) >= free_bytes:
                self._fill(lines[index:])
                break
            free_bytes -= len(line) + 1
            decoded = printable(line)
            entries.append((self.name, self._severities[stream].next(decoded), strip_prefix(decoded), ""))
        if entries and self._file.write(self._gap() + entries):
            self._size = self._limit - free_bytes
            self._unwritten_lines = self._unwritten_bytes = 0
        elif entries:
            self._unwritten_lines += len(entries)
            self._unwritten_bytes += sum(len(line) + 1 for line in lines[: len(entries)])
        if self._full:
            self.say(
                "The log of %s has reached its limit of %s MB. What comes now is counted, but not kept."
                % (self.name, _mb(self._limit)),
                "WARNING",
            )
        if self._watch is not None:
            self._watch(lines)

    def _gap(self) -> list[Entry]:
        """The notice of lines that are missing here. Empty if none is."""
        if not self._unwritten_lines:
            return []
        message = "Lost %d lines (%d bytes) of the log of %s here: the disk was full."
        return [(self.name, "WARNING", message % (self._unwritten_lines, self._unwritten_bytes, self.name), "")]

    def _fill(self, lines: list[bytes]) -> None:
        self._full = True
        self._count_dropped(lines)
        for splitter in self._splitters.values():
            self._dropped_bytes += len(splitter.rest)

    def _count_dropped(self, lines: list[bytes]) -> None:
        self._dropped_lines += len(lines)
        self._dropped_bytes += sum(len(line) + 1 for line in lines)


def _mb(size: int) -> str:
    return "%g" % round(size / (1 << 20), 3)
