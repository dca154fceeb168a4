"""Process trees: kill every process of a job, so that none is left at its end; signals; orphans of a replica.

A subreaper inherits the orphans below it. So "no children left" means that nothing started below it still lives,
whatever it did to hide: its own session, a double fork, a child that restarts itself.
"""

from __future__ import annotations

import errno
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from typing import Callable, Optional

_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36
_SET_PTRACER = 0x59616D61
_libc: list[ctypes.CDLL] = []  #: loaded once; forked processes share it
REPLICA_VARIABLE = "TRAINSHED_REPLICA"


def become_subreaper() -> None:
    """Make orphans below this process its children from now on."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def set_parent_death_signal(parent: int, number: int) -> None:
    """Get signal `number` when `parent`, the parent of this process, dies; immediately if it is dead already."""
    set_death_signal(number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def set_death_signal(number: int) -> None:
    """Get signal `number` when the parent of this process dies from now on."""
    _prctl(_SET_PDEATHSIG, number)


def allow_tracing(pid: int) -> None:
    """Let `pid` and its descendants read the memory of this process. The Yama module of the kernel, if there is one,
    would allow its ancestors alone."""
    try:
        _prctl(_SET_PTRACER, pid)
    except OSError as exc:
        if exc.errno != errno.EINVAL:  # there is no Yama
            raise


def _prctl(option: int, value: int) -> None:
    import ctypes  # late: its import is slower than the rest of this module

    if not _libc:
        _libc.append(ctypes.CDLL(None, use_errno=True))
    if _libc[0].prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def reap(exited: Optional[Callable[[int, int], None]] = None) -> bool:
    """Reap exited children and call `exited` with pid and wait status. Returns False if no children are left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if exited is not None:
            exited(pid, status)


def kill_descendants(exited: Optional[Callable[[int, int], None]] = None) -> None:
    """Kill every descendant of this process, which must be a subreaper. Blocks until none is left."""
    interval_s = 0.0005
    while reap(exited):
        for pid in stop_descendants(os.getpid()):
            send_signal(pid, signal.SIGKILL)
        time.sleep(interval_s)
        interval_s = min(interval_s * 2, 0.05)


def stop_descendants(root: int) -> set[int]:
    """Stop the descendants of `root` until a scan finds no new one, so that none forks while the others are killed."""
    stopped: set[int] = set()
    for _ in range(100):
        running = set(descendants(root)) - stopped
        if not running:
            break
        for pid in running:
            send_signal(pid, signal.SIGSTOP)
        stopped |= running
    return stopped


def send_signal(pid: int, number: int) -> None:
    """Send a signal. Ignores processes that are gone or belong to another user."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def kill_by_environment(variable: bytes) -> None:
    """Kill all processes that were started with `NAME=value` in their environment."""
    for _ in range(100):
        pids = [pid for pid in _processes() if variable in _environment(pid)]
        if not pids:
            return
        for pid in pids:
            send_signal(pid, signal.SIGSTOP)
        for pid in pids:
            send_signal(pid, signal.SIGKILL)
        time.sleep(0.005)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    """Empty for processes of other users and for exited ones."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def descendants(root: int) -> list[int]:
    """The pids below `root`, nearest first."""
    pids = children(root)
    for pid in pids:  # grows during the iteration
        pids.extend(children(pid))
    return pids


def children(pid: int) -> list[int]:
    """Children of a process, those it inherited as a subreaper, and exited ones that are not reaped yet."""
    pids: list[int] = []
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread), "rb") as file:
                pids.extend(int(child) for child in file.read().split())
    except (ProcessLookupError, FileNotFoundError):
        if os.path.exists("/proc/self/task/%d/children" % os.getpid()):
            return pids  # the process has exited meanwhile
        return _children_by_scan(pid)  # a kernel without CONFIG_PROC_CHILDREN
    return pids


def cell_orphans(pid: int) -> list[int]:
    """The orphans of a replica in a cell, with their descendants: its init inherits them, as it does the replica."""
    fields = stat_fields(pid)
    parent = int(fields[1]) if fields else os.getpid()
    if parent in (os.getpid(), 0, 1):
        return []
    orphans = [child for child in children(parent) if child != pid]
    return [each for orphan in orphans for each in (orphan, *descendants(orphan))]


def _children_by_scan(parent: int) -> list[int]:
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if fields and int(fields[1]) == parent:
                pids.append(int(name))
    return pids


def stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the third on (state, parent, ...). Empty if the process is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (ProcessLookupError, FileNotFoundError):
        return []


def signal_pipe(numbers: tuple[int, ...]) -> int:
    """Turn these signals into bytes in the returned pipe."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda number, frame: None)
    return read_fd


def kill_orphans(name: str, roots: dict[int, str]) -> bool:
    """Kill the orphans of the replica `name`. `roots` are the first processes of all running replicas, by pid.

    Returns True if there are none. Otherwise they are killed but not gone yet: reap them and call again.
    """
    alive = False
    for root in children(os.getpid()):
        if root not in roots and owner(root, roots) in (name, None):
            alive = True
            send_signal(root, signal.SIGSTOP)
            for pid in (root, *stop_descendants(root)):
                send_signal(pid, signal.SIGKILL)
    return not alive


def owner(pid: int, roots: dict[int, str]) -> Optional[str]:
    """The replica that an orphan belongs to. Returns None if it is unknown."""
    fields = stat_fields(pid)
    group = int(fields[2]) if len(fields) > 2 else 0
    if group in roots:
        return roots[group]
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return None
    prefix = REPLICA_VARIABLE.encode() + b"="
    return next((each[len(prefix) :].decode("utf-8", "replace") for each in variables if each.startswith(prefix)), None)
