"""Ends the processes of an attempt whose supervisor and reaper were both killed.

Only processes with the attempt's mark are signalled. A folder, a session or an open file is no mark: a shell or an
editor of the user may have it too.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainshed.domain.jobs.reconcile import Orphans
from trainshed.node.process.mark import has_mark
from trainshed.node.process.tree import stat_fields

LOG = logging.getLogger("trainshed.engines.local.orphans")

KILL_TIMEOUT_S = 10.0  #: until a killed process that still lives is reported as left
_MAX_STOP_ROUNDS = 100  #: scans for new processes before those that are known are killed
_RETRY_INTERVAL_S = 0.005


@dataclass(frozen=True, slots=True)
class _Process:
    """A process of this boot. A pid alone may have been reused since."""

    pid: int
    started: int  #: ticks since boot


def kill_orphans(attempt: Path, *, timeout_s: float = KILL_TIMEOUT_S) -> Orphans:
    """Kill all processes with the mark of the attempt. Blocks until none is left, or until the time is over.

    Call it only when the attempt's lock is free: the supervisor has the mark too. Idempotent.
    """
    deadline = time.monotonic() + timeout_s
    known: set[_Process] = set()
    while True:
        living = _stop_all(attempt)
        known |= living
        if not living or time.monotonic() > deadline:
            break
        for process in living:
            _signal(process, attempt, signal.SIGKILL)
        time.sleep(_RETRY_INTERVAL_S)
    orphans = Orphans(
        ended=tuple(sorted(process.pid for process in known - living)),
        left=tuple(sorted(process.pid for process in living)),
    )
    if known:
        LOG.warning("attempt.orphans_killed folder=%s ended=%s left=%s", attempt, orphans.ended, orphans.left)
    return orphans


def _stop_all(attempt: Path) -> set[_Process]:
    """Stop marked processes until a scan finds no new one, so that none forks while the others are killed."""
    stopped: set[_Process] = set()
    for _ in range(_MAX_STOP_ROUNDS):
        living = _marked(attempt)
        if living <= stopped:
            return living
        for process in living - stopped:
            _signal(process, attempt, signal.SIGSTOP)
        stopped |= living
    return stopped


def _marked(attempt: Path) -> set[_Process]:
    """The living processes with the mark, except this one."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    processes = {_process(pid) for pid in pids if pid != os.getpid() and has_mark(pid, str(attempt))}
    return {process for process in processes if process is not None}


def _process(pid: int) -> _Process | None:
    fields = stat_fields(pid)
    return _Process(pid, int(fields[19])) if fields and fields[0] not in (b"Z", b"X") else None


def _signal(process: _Process, attempt: Path, number: signal.Signals) -> None:
    """Send a signal, unless the pid now belongs to another process. A process of another user is left as it is."""
    try:
        with _held(process.pid) as fd:
            if _process(process.pid) != process or not has_mark(process.pid, str(attempt)):
                return
            if fd is None:
                os.kill(process.pid, number)
            else:
                signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        return


@contextmanager
def _held(pid: int) -> Iterator[int | None]:
    """A descriptor that stands for this process even after its pid is reused. None on kernels before 5.3."""
    try:
        fd = os.pidfd_open(pid)
    except OSError as exc:
        if exc.errno != errno.ENOSYS:
            raise
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)
