"""Processes that run user code: started below a reaper, with a size-limited log; handles and runs of them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import orjson

from trainshed.artifacts.staging import SAFE_WRITE_FLAGS
from trainshed.domain.jobs.failure import FailureCause
from trainshed.domain.jobs.limit_words import limit_words
from trainshed.errors import DeadlineExceededError
from trainshed.node.process import open_files, tree
from trainshed.node.process.environment import inherited_environment
from trainshed.node.process.reaper import LIMIT_FILE, SIGNAL_EXIT_BASE
from trainshed.node.sandbox.reaped import VARIABLE as CELL_VARIABLE

LOG_MAX_BYTES = 4 << 20  #: of a log before it is rotated; the previous rotated file is deleted then
STATUS_TIMEOUT_S = 0.05  #: maximum wait of `ChildRun.status`
MARK_VARIABLE = "TRAINSHED_HOST"
_TAIL_MAX_CHARS = 2000  #: of a log tail in a message
_CHUNK_BYTES = 1 << 16
_PID_LINE_MAX_BYTES = 32  #: of the line with the pid


def start_reaped(
    python: Path,
    node: Path,
    arguments: tuple[str, ...],
    *,
    log: Path,
    work: Path,
    mark: str = "",
    env: Mapping[str, str] | None = None,
    cell: Mapping[str, Any] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `run.py ARGUMENTS` below a reaper. Closing its stdin kills it with all descendants.

    `env` is its environment. None, for programs that run no user code: this process's. `cell` is its sandbox
    (`Sandbox.cell`).

    All of these processes have the mark in their environment, so that they are found if the reaper is killed.
    """
    with open(os.open(log, os.O_APPEND | SAFE_WRITE_FLAGS, 0o600), "ab") as stderr:
        return subprocess.Popen(
            [python, "-I", node / "run.py", "reap", log, str(LOG_MAX_BYTES), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            cwd=work,
            env={
                **(inherited_environment() if env is None else env),
                **open_files.variables(),
                "PYTHONUNBUFFERED": "1",
                **({MARK_VARIABLE: mark} if mark else {}),
                **({CELL_VARIABLE: orjson.dumps(cell).decode()} if cell else {}),
            },
        )


def kill_marked(mark: str) -> None:
    """Kill all processes with this mark."""
    tree.kill_by_environment(f"{MARK_VARIABLE}={mark}".encode())


def log_tail(log: Path) -> str:
    """The last output of a process. Empty if the process replaced its log with something else."""
    try:
        with open(os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4 * _TAIL_MAX_CHARS))
            return file.read(4 * _TAIL_MAX_CHARS).decode(errors="replace")[-_TAIL_MAX_CHARS:].strip()
    except OSError:
        return ""


def limit_reached(cell: Mapping[str, Any] | None) -> str:
    """The limit that ended a reaped process with this sandbox, in words. Empty if none did."""
    if cell is None:
        return ""
    try:
        hit = orjson.loads((Path(cell["private"]) / LIMIT_FILE).read_bytes())
        return limit_words(FailureCause(hit["cause"]), hit["facts"])
    except FileNotFoundError:
        return ""


def describe_exit(status: int) -> str:
    """The exit of a reaped process, as the end of a sentence."""
    if status > SIGNAL_EXIT_BASE:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(status - SIGNAL_EXIT_BASE).name}"
    return f"ended with the exit status {status}"


class ChildRun(Protocol):
    """A process that ends by itself."""

    def status(self) -> int | None:
        """The exit status. Blocks for at most STATUS_TIMEOUT_S. Returns None if it still runs."""

    def end(self) -> None:
        """Kill it with all descendants. Idempotent."""


def wait(run: ChildRun, *, timeout_s: float, check: Callable[[], None]) -> int:
    """Wait for a run, and end it in any case. Returns its exit status. Propagates what
    `check`, called meanwhile, raises.

    Raises `DeadlineExceededError` after `timeout_s`.
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
    """A run of a process that `start_reaped` started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def status(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(STATUS_TIMEOUT_S)
        return None

    def end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


class ProcessHandle(Protocol):
    """Holds on to a reaped process. For one thread only, except `release`."""

    pid: int  #: of the reaper

    def fileno(self) -> int:
        """For a selector: readable when `read` has data."""

    def read(self) -> bytes:
        """Read from its stdout. Empty at the end. Raises `BlockingIOError` if there is nothing yet."""

    def release(self) -> None:
        """Release the process, which ends it. Its last output can still be read."""

    def status(self) -> int:
        """The exit status, once the reaper has exited. SIGNAL_EXIT_BASE plus the signal if it was killed."""

    def close(self) -> None:
        """Close the handle after the process has exited."""


class PipeHandle:
    """Handle of a reaper that is a child of this process."""

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
        return os.read(self._output.fileno(), _CHUNK_BYTES)

    def release(self) -> None:
        self._life.close()

    def status(self) -> int:
        status = self._process.wait()
        return status if status >= 0 else SIGNAL_EXIT_BASE - status

    def close(self) -> None:
        self._life.close()
        self._output.close()


class SocketHandle:
    """Handle of a reaper that a warm process forked. It sends its pid in a line and, after a
    NUL at the end, its status."""

    def __init__(self, connection: socket.socket) -> None:
        """Blocks until the pid arrives, which is sent first. Raises `OSError` if it does not."""
        self._connection = connection
        self._status = SIGNAL_EXIT_BASE + signal.SIGKILL  # of a reaper that is killed before it sends another
        self.pid = _read_pid(connection)
        connection.setblocking(False)

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self) -> bytes:
        output, end, status = self._connection.recv(_CHUNK_BYTES).partition(b"\0")
        if end and status.isdigit():
            self._status = int(status)
        return output

    def release(self) -> None:
        try:
            self._connection.shutdown(socket.SHUT_WR)
        except OSError:  # the reaper is gone
            return

    def status(self) -> int:
        return self._status

    def close(self) -> None:
        self._connection.close()


def _read_pid(connection: socket.socket) -> int:
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        line += byte
        if not byte or len(line) > _PID_LINE_MAX_BYTES:
            raise ConnectionError("The warm process did not start it.")
    return int(line)
