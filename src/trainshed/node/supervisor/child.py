"""A child process of the supervisor, and its output."""

from __future__ import annotations

import functools
import os
import selectors
import time

from ..process.exit_status import ExitStatus
from .log_writer import STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..process.spawn import SpawnedProcess
    from .log_writer import ReplicaLog

_CHUNK_BYTES = 1 << 16
_DRAIN_MAX_BYTES = 64 << 20


class Child:
    """A child process of the supervisor, and the log of its output."""

    __slots__ = ("_selector", "_status", "first", "log", "name", "output_s", "pipes")

    def __init__(self, name: str, log: ReplicaLog, process: SpawnedProcess, selector: selectors.BaseSelector) -> None:
        self.name = name
        self.log = log
        self.first = process.first  #: pid of the first process of the program, which gets its signals
        self.pipes = pipes = {process.stdout: STDOUT, process.stderr: STDERR}  #: those that are open
        self._status = process.status
        self.output_s = time.monotonic()  #: of its last output, or of its start
        self._selector = selector
        for fd in pipes:
            selector.register(fd, selectors.EVENT_READ, functools.partial(self.read, fd))

    def exit_status(self, status: int) -> ExitStatus:
        """How the program ended, from the wait status of the child process. Called once."""
        if self._status >= 0:
            from ..sandbox.cell import read_status  # late: it was imported by the one who made the cell

            inner = read_status(self._status)
            os.close(self._status)
            status = status if inner is None else inner
        return ExitStatus.of(status)

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
