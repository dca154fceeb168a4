"""A process between the server and code that may do anything: it holds on to all that this starts, and keeps its log.

Whoever asked for it holds the other end of `life`, a pipe or a socket. When that is closed, for whatever reason, every
process below ends at once. If the guard itself is killed, the process that it guards dies with it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback

from . import tree
from .spawn import raise_oom_score
from .tree import signal_pipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

_PIECE = 1 << 16
_ORDERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SIGNAL_EXIT_BASE = 128  #: plus the number of the signal: the status for a process that was killed


def run_reaped(life: int, log: str, run: Callable[[], int], limit: int) -> int:
    """Fork and do `run` there, with stderr to the file `log`; returns its status when nothing of it is left.

    SIGTERM is passed on. A log of more than `limit` bytes is put aside as `log.1`, in place of the one before.
    """
    tree.become_subreaper()
    signals = signal_pipe((signal.SIGCHLD, *_ORDERS))
    output, into = os.pipe()
    guard_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_guarded(guard_pid, into, (signals, output), run)
    os.close(into)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)  # what the process says there ends with it
    os.close(null)
    with _Log(log, limit) as file:
        status = _watch(pid, life, signals, output, file)
        tree.kill_descendants()
        while select.select([output], [], [], 0)[0] and file.copy(output):
            pass
    return status


def _be_guarded(guard_pid: int, into: int, strays: tuple[int, ...], run: Callable[[], int]) -> None:
    """In the child. Never returns."""
    status = 1
    try:
        tree.set_parent_death_signal(guard_pid, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *_ORDERS):
            signal.signal(number, signal.SIG_DFL)
        for fd in strays:
            os.close(fd)
        os.dup2(into, 2)
        os.close(into)
        raise_oom_score()
        status = run()
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        if isinstance(exc.code, str):
            sys.stderr.write(exc.code + "\n")
    except BaseException:  # noqa: BLE001 - it ends here, and says why
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _watch(pid: int, life: int, signals: int, output: int, log: _Log) -> int:
    """Until the process ends or has to. Its status: what it exited with, or KILLED and the signal."""
    ended: dict[int, int] = {}
    poll = select.poll()
    for fd in (signals, output):
        poll.register(fd, select.POLLIN)
    poll.register(life, select.POLLIN | select.POLLRDHUP)
    while pid not in ended:
        ready = dict(poll.poll())
        if output in ready and not log.copy(output):
            poll.unregister(output)
        if signals in ready and any(number in _ORDERS for number in os.read(signals, 512)):
            tree.send_signal(pid, signal.SIGTERM)
        if life in ready:
            return SIGNAL_EXIT_BASE + signal.SIGKILL
        tree.reap(ended.__setitem__)
    status = ended[pid]
    return SIGNAL_EXIT_BASE + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class _Log:
    """A file that grows to twice its limit at most, the older half in a file beside it."""

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._fd = -1
        self._size = 0

    def __enter__(self) -> _Log:
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def copy(self, source: int) -> bool:
        """What can be read at once from a pipe. False at its end. What the disk can't take is lost."""
        piece = os.read(source, _PIECE)
        try:
            if piece and self._size and self._size + len(piece) > self._limit:
                os.rename(self._path, self._path + ".1")
                fresh = self._open()
                os.close(self._fd)
                self._fd, self._size = fresh, 0
            self._size += os.write(self._fd, piece)
        except OSError:
            pass  # a full disk must not stop a model that prints
        return bool(piece)
