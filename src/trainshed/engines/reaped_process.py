"""Starting a process of ours that runs a user's model: below a guard, with a log that is kept to a size."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from trainshed.artifacts.staging import SAFE_WRITE_FLAGS
from trainshed.errors import DeadlineExceededError
from trainshed.node.process import tree
from trainshed.node.process.reaper import SIGNAL_EXIT_BASE
from trainshed.node.process.spawn import inherited_environment

LOG_BYTES = 4 << 20  #: of what a process prints, before it is put aside; what was aside before is gone then
LOOK_S = 0.05  #: how long `ChildRun.status` waits
MARK = "TRAINSHED_HOST"
_WORDS = 2000  #: characters of a log's end that stand for why a process ended
_PIECE = 1 << 16
_WORD = 32  #: bytes of the line with the pid


def start_reaped(
    python: Path, node: Path, words: tuple[str, ...], *, log: Path, work: Path, mark: str = ""
) -> subprocess.Popen[bytes]:
    """Start `run.py WORDS` below a guard. Closing its stdin ends it and all that it started.

    All of it has the mark in its environment, so that it is found if the guard is killed.
    """
    with open(os.open(log, os.O_APPEND | SAFE_WRITE_FLAGS, 0o600), "ab") as stderr:
        return subprocess.Popen(
            [python, "-I", node / "run.py", "reap", log, str(LOG_BYTES), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            cwd=work,
            env={**inherited_environment(), "PYTHONUNBUFFERED": "1", **({MARK: mark} if mark else {})},
        )


def kill_marked(mark: str) -> None:
    """End what is left of a process with this mark."""
    tree.kill_by_environment(f"{MARK}={mark}".encode())


def log_tail(log: Path) -> str:
    """The end of what a process printed; nothing if it put something else in the place of its log."""
    try:
        with open(os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4 * _WORDS))
            return file.read(4 * _WORDS).decode(errors="replace")[-_WORDS:].strip()
    except OSError:
        return ""


def describe_exit(status: int) -> str:
    """The end of a guarded process, as the rest of a sentence."""
    if status > SIGNAL_EXIT_BASE:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(status - SIGNAL_EXIT_BASE).name}"
    return f"ended with the exit status {status}"


class ChildRun(Protocol):
    """Something that comes to an end by itself."""

    def status(self) -> int | None:
        """Waits for LOOK_S at most. The exit status; None: it runs on."""

    def end(self) -> None:
        """End it, and all that it started. May be called when it has ended."""


def wait(run: ChildRun, *, timeout_s: float, check: Callable[[], None]) -> int:
    """The exit status of a run, which has ended in any case. What `check`, called meanwhile, raises goes through.

    `DeadlineExceededError` if it took too long.
    """
    deadline = time.monotonic() + timeout_s
    try:
        while (status := run.status()) is None:
            check()
            if time.monotonic() > deadline:
                raise DeadlineExceededError(f"It did not end within {timeout_s:g} s.")
        return status
    finally:
        run.end()


class ReapedRun:
    """A run that `start_reaped` started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def status(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(LOOK_S)
        return None

    def end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


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
