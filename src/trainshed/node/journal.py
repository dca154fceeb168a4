"""The journal of an attempt: an append-only file with one JSON event a line. It is all that
others know of the attempt."""

from __future__ import annotations

import errno
import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class Journal:
    """Appends events. A full disk delays events; it never loses or tears one."""

    def __init__(self, path: str) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
        self._pending = b""

    def started(self) -> bool:
        """Whether the journal has any event. An attempt starts only once."""
        return os.fstat(self._fd).st_size > 0

    def append(self, event: str, **facts: Any) -> None:
        """Append an event now or, if the disk is full, with a later one."""
        line = json.dumps(dict(facts, t=now_us(), event=event), sort_keys=True)
        self._pending += line.encode() + b"\n"
        self.flush()

    def flush(self) -> bool:
        """Write pending events. Returns False if the disk is still full."""
        try:
            while self._pending:
                self._pending = self._pending[os.write(self._fd, self._pending) :]
        except OSError as exc:
            if exc.errno not in DISK_FULL:
                raise
        return not self._pending

    def sync(self) -> None:
        """Blocks until all events are on disk, and waits for space if the disk is full."""
        while not self.flush():
            time.sleep(0.2)
        os.fsync(self._fd)

    def ended(self) -> bool:
        """Whether the journal has the end of the job. Also terminates a line that a killed writer left unfinished."""
        os.lseek(self._fd, 0, os.SEEK_SET)
        content = b""
        while True:
            chunk = os.read(self._fd, 1 << 20)
            if not chunk:
                break
            content += chunk
        if content and not content.endswith(b"\n"):
            self._pending = b"\n" + self._pending
        return any(b'"event": "ended"' in line for line in content.split(b"\n")[:-1])


def now_us() -> int:
    """Wall clock time in microseconds."""
    return int(time.time() * 1000000)
