"""The reaper: a process between the server and user code that kills all descendants and writes their log.

The caller holds the other end of `life`, a pipe or a socket. When that end is closed, for whatever reason, all
descendants are killed immediately. If the reaper itself is killed, its child dies with it.
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

_CHUNK_BYTES = 1 << 16
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SIGNAL_EXIT_BASE = 128  #: plus the signal number: the exit status for a killed process


def run_reaped(life: int, log: str, run: Callable[[], int], limit: int) -> int:
    """Fork, and call `run` in the child with stderr to the file `log`. Blocks until no descendant is left.

    Returns the exit status. Forwards SIGTERM. A log of more than `limit` bytes is rotated to `log.1`, which
    replaces the previous one.
    """
    tree.become_subreaper()
    signals = signal_pipe((signal.SIGCHLD, *_STOP_SIGNALS))
    output, output_w = os.pipe()
    reaper_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        _run_child(reaper_pid, output_w, (signals, output), run)
    os.close(output_w)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)  # only the child writes to stdout
    os.close(null)
    with _Log(log, limit) as file:
        status = _watch(pid, life, signals, output, file)
        tree.kill_descendants()
        while select.select([output], [], [], 0)[0] and file.copy(output):
            pass
    return status


def _run_child(reaper_pid: int, output_w: int, inherited_fds: tuple[int, ...], run: Callable[[], int]) -> None:
    """Runs in the child. Never returns."""
    status = 1
    try:
        tree.set_parent_death_signal(reaper_pid, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *_STOP_SIGNALS):
            signal.signal(number, signal.SIG_DFL)
        for fd in inherited_fds:
            os.close(fd)
        os.dup2(output_w, 2)
        os.close(output_w)
        raise_oom_score()
        status = run()
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


def _watch(pid: int, life: int, signals: int, output: int, log: _Log) -> int:
    """Wait until the process exits or `life` is closed. Returns its status, or SIGNAL_EXIT_BASE plus the signal."""
    statuses: dict[int, int] = {}
    poll = select.poll()
    for fd in (signals, output):
        poll.register(fd, select.POLLIN)
    poll.register(life, select.POLLIN | select.POLLRDHUP)
    while pid not in statuses:
        ready = dict(poll.poll())
        if output in ready and not log.copy(output):
            poll.unregister(output)
        if signals in ready and any(number in _STOP_SIGNALS for number in os.read(signals, 512)):
            tree.send_signal(pid, signal.SIGTERM)
        if life in ready:
            return SIGNAL_EXIT_BASE + signal.SIGKILL
        tree.reap(statuses.__setitem__)
    status = statuses[pid]
    return SIGNAL_EXIT_BASE + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class _Log:
    """A log file with one rotated predecessor, each up to the limit."""

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
        """Copy one chunk from a pipe. Returns False at its end. What does not fit on the disk is lost."""
        chunk = os.read(source, _CHUNK_BYTES)
        try:
            if chunk and self._size and self._size + len(chunk) > self._limit:
                os.rename(self._path, self._path + ".1")
                fd = self._open()
                os.close(self._fd)
                self._fd, self._size = fd, 0
            self._size += os.write(self._fd, chunk)
        except OSError:
            pass  # a full disk must not stop a model that prints
        return bool(chunk)
