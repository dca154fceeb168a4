"""Running programs in the foreground: they end with the first of them, with Ctrl-C, and with this process."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from trainshed.errors import CannotProceedError
from trainshed.node.process.tree import (
    become_subreaper,
    descendants,
    kill_descendants,
    send_signal,
    set_parent_death_signal,
    stat_fields,
)

_CHECK_INTERVAL_S = 0.1
_DRAIN_TIMEOUT_S = 1.0  #: for output from before the exit; a descendant may keep the pipe open
_KILL_GRACE_S = 5.0  #: between SIGTERM and SIGKILL
_READ_BYTES = 1 << 16

EmitLine = Callable[[str, bytes, bool], None]  #: a program's name, a line with its line end, whether it went to stderr


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One process to run."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path


class StopRequested(Exception):  # noqa: N818 - a signal, not an error
    """A signal requested this process to stop."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


def run_one(program: Program) -> int:
    """Run a program on this process's terminal. Returns its exit status; 128 + N if signal N killed it.

    Kills all its descendants. This process must have no other children.
    """
    with _stop_on_signal(), _stop_descendants():
        return _exit_status(_start(program, output=None).wait())


def run_gang(programs: Sequence[Program], emit: EmitLine, *, on_exit: Callable[[str, int], None]) -> int:
    """Run programs together until the first one exits or another one fails.

    Returns the exit status of the one that did.

    `emit` gets each complete line. `on_exit` gets each exit of another program. Stops the others and kills all
    descendants. This process must have no other children.
    """
    with _stop_on_signal(), _stop_descendants():
        output = _OutputReader(emit)
        running: dict[str, subprocess.Popen[bytes]] = {}
        for program in programs:
            process = _start(program, output=subprocess.PIPE)
            running[program.name] = process
            output.watch(program.name, process)
        status = _wait_for_first(running, output, primary=programs[0].name, on_exit=on_exit)
        output.drain()
        return status


def _wait_for_first(
    running: dict[str, subprocess.Popen[bytes]],
    output: _OutputReader,
    *,
    primary: str,
    on_exit: Callable[[str, int], None],
) -> int:
    while True:
        output.poll(_CHECK_INTERVAL_S)
        for name, process in list(running.items()):
            code = process.poll()
            if code is None:
                continue
            del running[name]
            status = _exit_status(code)
            if name == primary:
                return status
            on_exit(name, status)
            if status != 0:
                return status


def _start(program: Program, *, output: int | None) -> subprocess.Popen[bytes]:
    parent = os.getpid()
    try:
        return subprocess.Popen(
            program.argv,
            cwd=program.folder,
            env=dict(program.env),
            stdin=None if output is None else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=lambda: set_parent_death_signal(parent, signal.SIGKILL),
        )
    except OSError as exc:
        raise CannotProceedError(f"{program.argv[0]} can't be started in {program.folder}: {exc.strerror}.") from exc


def _exit_status(code: int) -> int:
    return code if code >= 0 else 128 - code


@contextmanager
def _stop_descendants() -> Iterator[None]:
    """Stop all descendants of this process on exit: SIGTERM first, then SIGKILL."""
    become_subreaper()
    try:
        yield
    finally:
        with _signals_blocked():
            _terminate_descendants()
            kill_descendants()


def _terminate_descendants() -> None:
    for pid in descendants(os.getpid()):
        send_signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + _KILL_GRACE_S
    while time.monotonic() < deadline and any(_alive(pid) for pid in descendants(os.getpid())):
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


@contextmanager
def _stop_on_signal() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into `StopRequested`, once. Later signals are ignored."""

    def stop(number: int, frame: FrameType | None) -> None:
        for other in _SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        raise StopRequested(number)

    previous = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block signals until the processes are gone: a second Ctrl-C must leave nothing behind."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _OutputReader:
    """The output of several processes, line by line."""

    def __init__(self, emit: EmitLine) -> None:
        self._emit = emit
        self._selector = selectors.DefaultSelector()
        self._partial: dict[int, bytes] = {}  #: by descriptor: a line without its end yet

    def watch(self, name: str, process: subprocess.Popen[bytes]) -> None:
        for stream, is_error in ((process.stdout, False), (process.stderr, True)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._partial[stream.fileno()] = b""
            self._selector.register(stream, selectors.EVENT_READ, (name, is_error))

    def poll(self, wait_s: float) -> bool:
        """Emit what has arrived. Returns False if there was nothing."""
        ready = self._selector.select(wait_s)  # with nothing left to read it still waits
        for key, _ in ready:
            self._read(key)
        return bool(ready)

    def drain(self) -> None:
        """Emit the rest of the output, with lines that have no end."""
        deadline = time.monotonic() + _DRAIN_TIMEOUT_S
        while self._selector.get_map() and time.monotonic() < deadline and self.poll(0.05):
            pass
        for key in list(self._selector.get_map().values()):
            self._finish(key)

    def _read(self, key: selectors.SelectorKey) -> None:
        try:
            block = os.read(key.fd, _READ_BYTES)
        except BlockingIOError:
            return
        if not block:
            self._finish(key)
            return
        *lines, self._partial[key.fd] = (self._partial[key.fd] + block).split(b"\n")
        for line in lines:
            self._emit(key.data[0], line + b"\n", key.data[1])

    def _finish(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        rest = self._partial.pop(key.fd)
        key.fileobj.close()  # type: ignore[union-attr]  # a pipe, not a bare descriptor
        if rest:
            self._emit(key.data[0], rest + b"\n", key.data[1])


def check_port(host: str, port: int, *, advice: str = "Choose another one with --port.") -> None:
    """Raises `CannotProceedError`, with the advice, if the port can't be used."""
    try:
        socket.create_server((host, port)).close()
    except OSError as exc:
        raise CannotProceedError(f"Port {port} of {host} can't be used: {exc.strerror}. {advice}") from exc
