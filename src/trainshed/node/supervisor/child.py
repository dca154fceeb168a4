"""A child process of the supervisor, and its output."""

from __future__ import annotations

import functools
import os
import selectors
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .log_writer import ReplicaLog

_CHUNK_BYTES = 1 << 16
_DRAIN_MAX_BYTES = 64 << 20


class Child:
    """A child process of the supervisor, and the log of its output."""

    __slots__ = ("_selector", "log", "name", "output_s", "pipes")

    def __init__(self, name: str, log: ReplicaLog, pipes: dict[int, str], selector: selectors.BaseSelector) -> None:
        self.name = name
        self.log = log
        self.pipes = pipes  #: open pipes, each STDOUT or STDERR
        self.output_s = time.monotonic()  #: of its last output, or of its start
        self._selector = selector
        for fd in pipes:
            selector.register(fd, selectors.EVENT_READ, functools.partial(self.read, fd))

    def read(self, fd: int) -> bool:
        """Read once from a pipe. Returns False if it is empty or closed."""
        try:
            data = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if data:
            self.output_s = time.monotonic()
            self.log.feed(self.pipes[fd], data)
            return True
        self._selector.unregister(fd)
        os.close(fd)
        self.log.end(self.pipes.pop(fd))
        return False

    def drain(self, reads: int = _DRAIN_MAX_BYTES // _CHUNK_BYTES) -> None:
        """Read what the pipes hold now. Does not wait for their end: a descendant may hold them open for ever."""
        for fd in list(self.pipes):
            for _ in range(reads):
                if not self.read(fd):
                    break
