"""Running programs in the foreground: they end with the first of them, with Ctrl-C, and with this process."""

from __future__ import annotations

import os
import selectors
import signal
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

_LOOK_S = 0.1
_DRAIN_S = 1.0  #: for what a program wrote before it ended; something it started may hold its output open
_GRACE_S = 5.0  #: between SIGTERM and SIGKILL
_BLOCK = 1 << 16

Tell = Callable[[str, bytes, bool], None]  #: a program's name, a line with its end, whether it went to stderr


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One process to run."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path


class StopRequested(Exception):
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


def run_one(program: Program) -> int:
    """Run a program on this process's own terminal and return its exit status; 128 + N if signal N ended it.

    Nothing that it started is left. This process must have no other children.
    """
    with _stoppable(), _everything_ends():
        return _as_status(_start(program, output=None).wait())


def run_gang(programs: Sequence[Program], tell: Tell, *, ended: Callable[[str, int], None]) -> int:
    """Run programs together, until the first of them ends or another one fails; return the exit status of that one.

    Each line goes to `tell` when it is complete, each end of a program that was not asked for to `ended`. The others
    are ended, and nothing that they started is left. This process must have no other children.
    """
    with _stoppable(), _everything_ends():
        lines = _Lines(tell)
        running: dict[str, subprocess.Popen[bytes]] = {}
        for program in programs:
            process = _start(program, output=subprocess.PIPE)
            running[program.name] = process
            lines.watch(program.name, process)
        status = _until_one_decides(running, lines, primary=programs[0].name, ended=ended)
        lines.drain()
        return status


def _until_one_decides(
    running: dict[str, subprocess.Popen[bytes]],
    lines: _Lines,
    *,
    primary: str,
    ended: Callable[[str, int], None],
) -> int:
    while True:
        lines.look(_LOOK_S)
        for name, process in list(running.items()):
            code = process.poll()
            if code is None:
                continue
            del running[name]
            status = _as_status(code)
            if name == primary:
                return status
            ended(name, status)
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


def _as_status(code: int) -> int:
    return code if code >= 0 else 128 - code


@contextmanager
def _everything_ends() -> Iterator[None]:
    """On the way out whatever was started below this process is asked to end, and then made to."""
    become_subreaper()
    try:
        yield
    finally:
        with _deaf():
            _ask_to_end()
            kill_descendants()


def _ask_to_end() -> None:
    for pid in descendants(os.getpid()):
        send_signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline and any(_alive(pid) for pid in descendants(os.getpid())):
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP become `StopRequested`, once; those that follow change nothing."""

    def stop(number: int, frame: FrameType | None) -> None:
        for other in _SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        raise StopRequested(number)

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _deaf() -> Iterator[None]:
    """Signals wait until the processes are gone: nothing may be left behind by an impatient second Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Lines:
    """The output of several processes, line by line."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._selector = selectors.DefaultSelector()
        self._begun: dict[int, bytes] = {}  #: by descriptor: a line whose end has not come yet

    def watch(self, name: str, process: subprocess.Popen[bytes]) -> None:
        for stream, is_error in ((process.stdout, False), (process.stderr, True)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._begun[stream.fileno()] = b""
            self._selector.register(stream, selectors.EVENT_READ, (name, is_error))

    def look(self, wait_s: float) -> bool:
        """Tell what has come; False if that was nothing."""
        ready = self._selector.select(wait_s)  # with nothing left to read it still waits
        for key, _ in ready:
            self._read(key)
        return bool(ready)

    def drain(self) -> None:
        """Tell what is still on its way, lines without an end too."""
        deadline = time.monotonic() + _DRAIN_S
        while self._selector.get_map() and time.monotonic() < deadline and self.look(0.05):
            pass
        for key in list(self._selector.get_map().values()):
            self._finish(key)

    def _read(self, key: selectors.SelectorKey) -> None:
        try:
            block = os.read(key.fd, _BLOCK)
        except BlockingIOError:
            return
        if not block:
            self._finish(key)
            return
        *whole, self._begun[key.fd] = (self._begun[key.fd] + block).split(b"\n")
        for line in whole:
            self._tell(key.data[0], line + b"\n", key.data[1])

    def _finish(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        rest = self._begun.pop(key.fd)
        key.fileobj.close()  # type: ignore[union-attr]  # a pipe, not a bare descriptor
        if rest:
            self._tell(key.data[0], rest + b"\n", key.data[1])
