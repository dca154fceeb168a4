"""The reaper: a process between the server and user code that kills all descendants and writes their log.

The caller holds the other end of `life`, a pipe or a socket. When that end is closed, for whatever reason, all
descendants are killed immediately. If the reaper itself is killed, its child dies with it. The reaper stays outside of
the sandbox that its child may have.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import sys
import time
import traceback

from ..files import write_file
from . import tree
from .exit_status import ExitStatus
from .spawn import raise_oom_score
from .tree import signal_pipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    from .spawn import Cell

_CHUNK_BYTES = 1 << 16
_TAIL_BYTES = 4096  #: of the log, in which signs of a limit are looked for
LIMIT_FILE = "limit.json"  #: in the private folder of a cell: the limit that ended its program, as cause and facts
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SIGNAL_EXIT_BASE = 128  #: plus the signal number: the exit status for a killed process


def run_reaped(
    life: int,
    log: str,
    run: Callable[[], int],
    limit: int,
    cell: Optional[Cell] = None,
    stdin: int = -1,
    mask: Optional[Callable[[bytes], bytes]] = None,
) -> int:
    """Fork, and call `run` in the child with stderr to the file `log`. Blocks until no descendant is left.

    Returns the exit status. Forwards SIGTERM. A log of more than `limit` bytes is rotated to `log.1`, which
    replaces the previous one. With `cell`, the child runs in that sandbox. `stdin` becomes its standard input, and is
    closed here. `mask` gets each piece of the output, at its end an empty one, and returns what the log gets.
    """
    tree.become_subreaper()
    signals = signal_pipe((signal.SIGCHLD, *_STOP_SIGNALS))
    output, output_w = os.pipe()
    status_r, status_w = os.pipe()
    try:
        pid = _Child(run, cell, (output_w, status_w, stdin)).fork((signals, output, status_r))
    except OSError as exc:
        with _Log(log, limit) as file:
            file.write(b"It can't be started: %s.\n" % (exc.strerror or "").encode("utf-8", "replace"))
        return 1
    for fd in (output_w, status_w) if stdin < 0 else (output_w, status_w, stdin):
        os.close(fd)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)  # only the child writes to stdout
    os.close(null)
    first = cell.read_pid(status_r) if cell is not None and cell.has_init else 0
    with _Log(log, limit, mask) as file:
        ended = _watch((pid, first or pid), life, signals, output, file, cell)
        tree.kill_descendants()
        while select.select([output], [], [], 0)[0] and file.copy(output):
            pass
        tail = file.tail
    inner = cell.read_status(status_r) if cell is not None and first and ended is not None else None
    status = ended if inner is None else inner
    if cell is not None and cell.limits is not None:
        if status is not None:
            _record_limit(cell, status, tail)
        cell.limits.close()
    return SIGNAL_EXIT_BASE + signal.SIGKILL if status is None else _exit_status(status)


def _record_limit(cell: Cell, wait_status: int, tail: str) -> None:
    """Write the limit that ended the program, if one did, where the server looks for it and the program can't write."""
    assert cell.limits is not None
    hit = cell.limits.hit(ExitStatus.of(wait_status), tail)
    if hit is not None:
        write_file(os.path.join(cell.private, LIMIT_FILE), json.dumps(hit).encode())


def _exit_status(wait_status: int) -> int:
    if os.WIFSIGNALED(wait_status):
        return SIGNAL_EXIT_BASE + os.WTERMSIG(wait_status)
    return os.WEXITSTATUS(wait_status)


class _Child:
    """The child of the reaper. In a cell it is the init, whose own child calls the function."""

    def __init__(self, run: Callable[[], int], cell: Optional[Cell], fds: tuple[int, int, int]) -> None:
        """`fds` are the pipes for stderr and for the status of a cell, and what becomes stdin, or -1."""
        self._run = run
        self._cell = cell
        self._output_w, self._status_w, self._stdin = fds
        self._reaper_pid = os.getpid()
        self._folder = os.getcwd()

    def fork(self, inherited_fds: tuple[int, ...]) -> int:
        """Returns the pid. Raises `OSError` if there can't be one more process."""
        pid = os.fork() if self._cell is None or not self._cell.has_init else self._cell.fork()
        if pid == 0:
            self._start(inherited_fds)
        return pid

    def _start(self, inherited_fds: tuple[int, ...]) -> None:
        """Never returns."""
        try:
            for fd in inherited_fds:
                os.close(fd)
            if self._cell is not None and self._cell.has_init:
                self._cell.run_init(self._status_w, self._output_w, self._main)
            tree.set_parent_death_signal(self._reaper_pid, signal.SIGKILL)
            self._main()
        except OSError as exc:
            reason = exc.strerror or "an unknown reason"
            os.write(self._output_w, ("Its sandbox can't be set up: %s.\n" % reason).encode("utf-8", "replace"))
        finally:
            os._exit(1)

    def _main(self) -> None:
        """Call the function. Never returns."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, *_STOP_SIGNALS):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(self._output_w, 2)
            for fd in (self._output_w, self._status_w):
                os.close(fd)
            if self._stdin >= 0:
                os.dup2(self._stdin, 0)
                os.close(self._stdin)
            raise_oom_score()
            if self._cell is not None:
                _enter(self._cell, self._folder)
            status = self._run()
        except SystemExit as exc:
            status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
            if isinstance(exc.code, str):
                sys.stderr.write(exc.code + "\n")
        except BaseException:  # noqa: BLE001 - the process ends here, and prints the reason
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


def _enter(cell: Cell, folder: str) -> None:
    env = cell.environment(dict(os.environ))
    os.environ.clear()
    os.environ.update(env)
    cell.enter()
    os.chdir(folder)


def _watch(
    pids: tuple[int, int], life: int, signals: int, output: int, log: _Log, cell: Optional[Cell]
) -> Optional[int]:
    """Wait until the child exits or `life` is closed, and look at the limits of its cell meanwhile. Returns its wait
    status, None if it still runs.

    `pids` are the child to wait for, and the process that gets signals: in a cell they differ.
    """
    limits = cell.limits if cell is not None else None
    pid, first = pids
    statuses: dict[int, int] = {}
    poll = select.poll()
    for fd in (signals, output):
        poll.register(fd, select.POLLIN)
    poll.register(life, select.POLLIN | select.POLLRDHUP)
    while pid not in statuses:
        look_at = limits.look_at if limits is not None else math.inf
        wait_s = max(0.0, look_at - time.monotonic())
        ready = dict(poll.poll(None if look_at == math.inf else math.ceil(wait_s * 1000)))
        if limits is not None and time.monotonic() >= look_at:
            limits.look(first, time.monotonic())
        if output in ready and not log.copy(output):
            poll.unregister(output)
        if signals in ready and any(number in _STOP_SIGNALS for number in os.read(signals, 512)):
            tree.send_signal(first, signal.SIGTERM)
        if life in ready:
            return None
        tree.reap(statuses.__setitem__)
    return statuses[pid]


class _Log:
    """A log file with one rotated predecessor, each up to the limit."""

    def __init__(self, path: str, limit: int, mask: Optional[Callable[[bytes], bytes]] = None) -> None:
        self._path = path
        self._mask = mask
        self._limit = limit
        self._fd = -1
        self._size = 0
        self._last = b""

    def __enter__(self) -> _Log:
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def copy(self, source: int) -> bool:
        """Copy one chunk from a pipe. Returns False at its end. What does not fit on the disk is lost."""
        chunk = os.read(source, _CHUNK_BYTES)
        self.write(chunk if self._mask is None else self._mask(chunk))
        return bool(chunk)

    @property
    def tail(self) -> str:
        """The last of what was written."""
        return self._last.decode("utf-8", "replace")

    def write(self, chunk: bytes) -> None:
        self._last = (self._last + chunk)[-_TAIL_BYTES:]
        try:
            if chunk and self._size and self._size + len(chunk) > self._limit:
                os.rename(self._path, self._path + ".1")
                fd = self._open()
                os.close(self._fd)
                self._fd, self._size = fd, 0
            self._size += os.write(self._fd, chunk)
        except OSError:
            pass  # a full disk must not stop a model that prints
