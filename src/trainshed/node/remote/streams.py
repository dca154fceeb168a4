"""The stream of an agent: frames with output and status of its replica, in append-only files.

A reader names the offset to read from. So a reader that reconnects, or a lost response, costs nothing: the bytes are
read again. The stream is split into segments of one size, so that segments that were read can be removed meanwhile.
"""

from __future__ import annotations

import os
import struct

from ..journal import DISK_FULL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

OUT, ERR = 1, 2  #: bytes that the replica wrote to stdout or stderr
SAMPLE = 3  #: lines for samples.jsonl
ADDRESS = 4  #: JSON: `host` and `port` that the replica will listen on
STARTED = 5  #: the replica runs; it has the addresses of the gang
EXIT = 6  #: JSON: `code` or `signal`, the other one null. The last frame
REPORT = 7  #: lines for reports.jsonl

SEGMENT_BYTES = 16 << 20  #: of one file
READ_MAX_BYTES = 1 << 20  #: of one read
FRAME_MAX_BYTES = 1 << 24  #: of a frame; a longer one is invalid
_HEADER = struct.Struct(">BI")


class StreamWriter:
    """Appends frames below `folder`. A full disk delays them; `pending_bytes` wait for space."""

    def __init__(self, folder: str, segment: int = SEGMENT_BYTES) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._folder = folder
        self._segment = segment
        self._offset = 0
        self._fd = -1
        self._pending = b""

    def append(self, kind: int, payload: bytes) -> None:
        self._pending += _HEADER.pack(kind, len(payload)) + payload
        self.flush()

    @property
    def pending_bytes(self) -> int:
        return len(self._pending)

    def flush(self) -> bool:
        """Write pending bytes. Returns False if the disk is full."""
        try:
            while self._pending:
                self._write()
        except OSError as exc:
            if exc.errno not in DISK_FULL:
                raise
        return not self._pending

    def _write(self) -> None:
        index, position = divmod(self._offset, self._segment)
        if position == 0 or self._fd < 0:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            self._fd = os.open(
                _path(self._folder, index),
                os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
                0o600,
            )
        written = os.write(self._fd, self._pending[: self._segment - position])
        self._offset += written
        self._pending = self._pending[written:]


class StreamReader:
    """Reads what a writer in this or another process has written so far."""

    def __init__(self, folder: str, segment: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment = segment

    def read(self, offset: int, limit: int = READ_MAX_BYTES) -> bytes:
        """Up to `limit` bytes from `offset`. Empty if there are none yet."""
        index, position = divmod(offset, self._segment)
        try:
            fd = os.open(_path(self._folder, index), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(fd, limit, position)
        finally:
            os.close(fd)

    def forget(self, offset: int) -> None:
        """Remove segments before `offset`, which the reader has read."""
        for index in range(offset // self._segment - 1, -1, -1):
            try:
                os.unlink(_path(self._folder, index))
            except FileNotFoundError:
                return  # earlier segments are removed too


class StreamDecoder:
    """Splits bytes into frames. `offset` is the start of the first incomplete frame: resume reading there."""

    def __init__(self) -> None:
        self.offset = 0
        self._buffer = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Returns the frames that are complete now, as kind and payload. Raises `ValueError`
        if the bytes are no frames."""
        self._buffer += data
        frames: list[tuple[int, bytes]] = []
        while True:
            frame = self._next()
            if frame is None:
                return frames
            frames.append(frame)

    def resume(self) -> None:
        """Drop the incomplete frame, since the reader resumes at `offset`."""
        self._buffer = b""

    def _next(self) -> Optional[tuple[int, bytes]]:
        if len(self._buffer) < _HEADER.size:
            return None
        kind, length = _HEADER.unpack_from(self._buffer)
        if not OUT <= kind <= REPORT or length > FRAME_MAX_BYTES:
            raise ValueError("the stream of a replica holds no frame at byte %d" % self.offset)
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        payload = self._buffer[_HEADER.size : end]
        self._buffer = self._buffer[end:]
        self.offset += end
        return kind, payload


def _path(folder: str, index: int) -> str:
    return os.path.join(folder, "%06d" % index)
