"""What a keeper tells of its replica, for a reader elsewhere: frames, one after the other, in files that only grow.

Whoever reads says from which byte on. So a reader that was away, or an answer that got lost, costs nothing: it is read
again. The stream is cut into files of one size, so that those that were read can be removed while it goes on.
"""

from __future__ import annotations

import os
import struct

from ..journal import FULL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

OUT, ERR = 1, 2  #: bytes that the replica wrote to stdout or stderr
SAMPLE = 3  #: lines for samples.jsonl
ADDRESS = 4  #: JSON: `host` and `port` that the replica will listen on
STARTED = 5  #: the replica runs; it was given the addresses of all
EXIT = 6  #: JSON: `code` or `signal`, the other one null. The last frame

SEGMENT = 16 << 20  #: bytes of one file
PIECE = 1 << 20  #: bytes of one read
LONGEST = 1 << 24  #: bytes of a frame; more is no frame of ours
_HEAD = struct.Struct(">BI")


class StreamWriter:
    """Appends frames below `folder`. A full disk delays them; `held` are the bytes that still wait for space."""

    def __init__(self, folder: str, segment: int = SEGMENT) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._folder = folder
        self._segment = segment
        self._place = 0
        self._fd = -1
        self._pending = b""

    def append(self, kind: int, payload: bytes) -> None:
        self._pending += _HEAD.pack(kind, len(payload)) + payload
        self.flush()

    @property
    def held(self) -> int:
        return len(self._pending)

    def flush(self) -> bool:
        """Write what waits. False: there is no space for all of it."""
        try:
            while self._pending:
                self._write()
        except OSError as exc:
            if exc.errno not in FULL:
                raise
        return not self._pending

    def _write(self) -> None:
        number, within = divmod(self._place, self._segment)
        if within == 0 or self._fd < 0:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            self._fd = os.open(
                _path(self._folder, number),
                os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
                0o600,
            )
        written = os.write(self._fd, self._pending[: self._segment - within])
        self._place += written
        self._pending = self._pending[written:]


class StreamReader:
    """Reads what a writer, in this process or another, has written so far."""

    def __init__(self, folder: str, segment: int = SEGMENT) -> None:
        self._folder = folder
        self._segment = segment

    def read(self, offset: int, limit: int = PIECE) -> bytes:
        """Bytes from `offset` on, up to `limit` of them; none if there are none yet."""
        number, within = divmod(offset, self._segment)
        try:
            fd = os.open(_path(self._folder, number), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(fd, limit, within)
        finally:
            os.close(fd)

    def forget(self, offset: int) -> None:
        """Remove the files before `offset`: they were read."""
        for number in range(offset // self._segment - 1, -1, -1):
            try:
                os.unlink(_path(self._folder, number))
            except FileNotFoundError:
                return  # and so are those before it


class StreamDecoder:
    """Cuts bytes into frames. `offset` is where the first frame begins that is not whole yet: read on from there."""

    def __init__(self) -> None:
        self.offset = 0
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames, as kind and payload, that are whole now. `ValueError` if these are none."""
        self._rest += data
        found: list[tuple[int, bytes]] = []
        while True:
            frame = self._next()
            if frame is None:
                return found
            found.append(frame)

    def again(self) -> None:
        """The reader goes on from `offset`: forget what came of a frame that is not whole."""
        self._rest = b""

    def _next(self) -> Optional[tuple[int, bytes]]:
        if len(self._rest) < _HEAD.size:
            return None
        kind, length = _HEAD.unpack_from(self._rest)
        if not OUT <= kind <= EXIT or length > LONGEST:
            raise ValueError("the stream of a replica holds no frame at byte %d" % self.offset)
        end = _HEAD.size + length
        if len(self._rest) < end:
            return None
        payload = self._rest[_HEAD.size : end]
        self._rest = self._rest[end:]
        self.offset += end
        return kind, payload


def _path(folder: str, number: int) -> str:
    return os.path.join(folder, "%06d" % number)
