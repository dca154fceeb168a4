"""How the server holds on to a guarded process: by the pipes of one that it started, or by the socket to one that a
warm process forked for it. Letting go ends the process, and all that it started.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from typing import Protocol

from trainshed.node.process.reaper import SIGNAL_EXIT_BASE

_PIECE = 1 << 16
_WORD = 32  #: bytes of the line with the pid


class ProcessHandle(Protocol):
    """For one thread, but for `cut`."""

    pid: int  #: of the guard

    def fileno(self) -> int:
        """For a selector: readable when `read` has something to give."""

    def read(self) -> bytes:
        """What it says on its standard output; nothing at its end. `BlockingIOError` if there is nothing yet."""

    def release(self) -> None:
        """Let go of the process. What it says in its end can still be read."""

    def status(self) -> int:
        """The exit status, once the guard has ended; KILLED and the signal if it was killed."""

    def close(self) -> None:
        """After its end."""


class PipeHandle:
    """Of a guard that is our own child."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self._process = process
        self._life, self._output = process.stdin, process.stdout
        os.set_blocking(self._output.fileno(), False)

    def fileno(self) -> int:
        return self._output.fileno()

    def read(self) -> bytes:
        return os.read(self._output.fileno(), _PIECE)

    def release(self) -> None:
        self._life.close()

    def status(self) -> int:
        status = self._process.wait()
        return status if status >= 0 else SIGNAL_EXIT_BASE - status

    def close(self) -> None:
        self._life.close()
        self._output.close()


class SocketHandle:
    """To a guard that a warm process forked. It says its pid in a line and, after a NUL at the end, its status."""

    def __init__(self, connection: socket.socket) -> None:
        """Waits for the pid, which comes at once. `OSError` if it does not."""
        self._connection = connection
        self._status = SIGNAL_EXIT_BASE + signal.SIGKILL  # of a guard that was killed before it could say another
        self.pid = _pid(connection)
        connection.setblocking(False)

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self) -> bytes:
        said, end, status = self._connection.recv(_PIECE).partition(b"\0")
        if end and status.isdigit():
            self._status = int(status)
        return said

    def release(self) -> None:
        try:
            self._connection.shutdown(socket.SHUT_WR)
        except OSError:  # the other side is gone
            return

    def status(self) -> int:
        return self._status

    def close(self) -> None:
        self._connection.close()


def _pid(connection: socket.socket) -> int:
    word = b""
    while not word.endswith(b"\n"):
        piece = connection.recv(1)
        word += piece
        if not piece or len(word) > _WORD:
            raise ConnectionError("The warm process did not start it.")
    return int(word)
