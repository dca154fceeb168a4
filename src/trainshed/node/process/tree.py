"""Holding on to every process of a job, so that at its end none is left.

A subreaper inherits the orphans below it, so "no children left" means that nothing started below it still lives,
whatever it did to hide: a session of its own, a double fork, a child that starts itself anew.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from typing import Callable, Optional

_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36
_libc: list[ctypes.CDLL] = []  #: loaded once; forked processes share it
MARK = "TRAINSHED_REPLICA"


def become_subreaper() -> None:
    """From now on orphans below this process become its children."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def set_parent_death_signal(parent: int, number: int) -> None:
    """Get signal `number` when `parent`, which must be the parent of this process, ends; at once if it has already."""
    _prctl(_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _prctl(option: int, value: int) -> None:
    import ctypes  # late: it takes longer to load than all the rest of this module

    if not _libc:
        _libc.append(ctypes.CDLL(None, use_errno=True))
    if _libc[0].prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def reap(exited: Optional[Callable[[int, int], None]] = None) -> bool:
    """Collect the children that ended, telling `exited` each pid and wait status. False: there are no children left."""
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
    """Kill every descendant of this process, which must be a subreaper. Returns when none is left."""
    pause_s = 0.0005
    while reap(exited):
        for pid in stop_descendants(os.getpid()):
            send_signal(pid, signal.SIGKILL)
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.05)


def stop_descendants(root: int) -> set[int]:
    """Stop the descendants of `root` until a look finds no new one, so that none forks while the others are killed."""
    stopped: set[int] = set()
    for _ in range(100):
        fresh = set(descendants(root)) - stopped
        if not fresh:
            break
        for pid in fresh:
            send_signal(pid, signal.SIGSTOP)
        stopped |= fresh
    return stopped


def send_signal(pid: int, number: int) -> None:
    """Send a signal. A process that is gone, or that belongs to someone else, is left alone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def kill_by_environment(variable: bytes) -> None:
    """Kill all processes that have this `NAME=value` in their environment, as they were started with it."""
    for _ in range(100):
        found = [pid for pid in _processes() if variable in _environment(pid)]
        if not found:
            return
        for pid in found:
            send_signal(pid, signal.SIGSTOP)
        for pid in found:
            send_signal(pid, signal.SIGKILL)
        time.sleep(0.005)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    """Empty for processes of others, and for those that ended."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def descendants(root: int) -> list[int]:
    """The pids below `root`, nearest first."""
    found = children(root)
    for pid in found:  # grows while it is walked
        found.extend(children(pid))
    return found


def children(pid: int) -> list[int]:
    """Those it started, and those it inherited as a subreaper; also the ones that ended and were not yet collected."""
    found: list[int] = []
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread), "rb") as file:
                found.extend(int(child) for child in file.read().split())
    except (ProcessLookupError, FileNotFoundError):
        if os.path.exists("/proc/self/task/%d/children" % os.getpid()):
            return found  # the process ended meanwhile
        return _children_by_scan(pid)  # a kernel without CONFIG_PROC_CHILDREN
    return found


def _children_by_scan(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if fields and int(fields[1]) == parent:
                found.append(int(name))
    return found


def stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the third on (state, parent, ...); none if the process is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (ProcessLookupError, FileNotFoundError):
        return []


def signal_pipe(numbers: tuple[int, ...]) -> int:
    """From now on these signals are only bytes in the pipe that is returned."""
    out, into = os.pipe()
    os.set_blocking(out, False)
    os.set_blocking(into, False)
    signal.set_wakeup_fd(into, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda number, frame: None)
    return out


def kill_orphans(name: str, living: dict[int, str]) -> bool:
    """Kill what is left of the replica `name`. `living` are the first processes of all replicas that run, by pid.

    True: there is nothing. Otherwise it is killed, but not gone yet: collect what ended and ask again.
    """
    left = False
    for root in children(os.getpid()):
        if root not in living and owner(root, living) in (name, None):
            left = True
            send_signal(root, signal.SIGSTOP)
            for pid in (root, *stop_descendants(root)):
                send_signal(pid, signal.SIGKILL)
    return not left


def owner(pid: int, living: dict[int, str]) -> Optional[str]:
    """The replica that an orphan comes from, or None if it does not say."""
    fields = stat_fields(pid)
    group = int(fields[2]) if len(fields) > 2 else 0
    if group in living:
        return living[group]
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return None
    head = MARK.encode() + b"="
    return next((each[len(head) :].decode("utf-8", "replace") for each in variables if each.startswith(head)), None)
