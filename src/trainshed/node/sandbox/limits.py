"""Limits of a cell: memory, processes, open files, size of a file, bytes on the disk, and its part of the cores.

The kernel limits each process for open files and the size of a file. For what all processes of a cell have together
there are two levels. With control groups the kernel counts, and a cell never has more than its limit. Else the parent
of the cell watches its memory and ends it; the kernel counts processes only at the full level of the sandbox, by the
user namespace of the cell, and else the parent counts them too. Bytes on the disk are always counted by the parent.
"""

from __future__ import annotations

import math
import os
import re
import signal
import time

from .. import failure
from ..process import tree
from .cgroups import ControlGroup
from .disk import DiskUse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Optional

    from ..process.exit_status import ExitStatus

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_FASTEST_BYTES_PER_S = 4e9  #: at which a program is assumed to use more memory: the next look is before it can be over
_MIN_INTERVAL_S, _MAX_INTERVAL_S = 0.02, 0.5  #: between two looks
_SCAN_INTERVAL_S, _CLOSE_SCAN_INTERVAL_S = 0.2, 0.04  #: between two scans of the process tree, and near the limit
_NICE_STEP = 1.25  #: of CPU time between two levels of niceness
_MAX_NICE = 19
_FIRST_DISK_S = 0.5  #: after the start of a cell
_SIGN_LINES = 20  #: at the end of an output, in which signs are looked for
#: What programs print when the kernel refuses them something.
_SIGNS = (
    (failure.TOO_MANY_OPEN_FILES, re.compile(r"\[Errno 24\]|Too many open files")),
    (failure.FILE_TOO_LARGE, re.compile(r"\[Errno 27\]|File too large")),
    (
        failure.TOO_MANY_PROCESSES,
        re.compile(r"\[Errno 11\] Resource temporarily unavailable|can't start new thread|[Cc]annot fork|fork: retry"),
    ),
)


class CellLimits:
    """The limits of one cell, in its own process and in its parent."""

    def __init__(self, spec: dict[str, Any], counted: bool, folders: Iterable[str] = (), *, own_shm: bool) -> None:
        """From the part of a spec file. `counted`: the kernel counts the processes in the cell's user namespace.

        `folders` are those whose files count. `own_shm`: it has a `/dev/shm` of its own.
        """
        self._memory_bytes = spec["memory_bytes"]
        self._processes = spec["processes"]
        self._open_files: int = spec["open_files"]
        self._file_bytes = spec["file_bytes"]
        self._cpu_weight = spec["cpu_weight"]
        self._folders: dict[str, str] = spec["cgroups"]
        self._counted = counted
        self._own_shm = own_shm
        self._disk_bytes = spec["disk_bytes"]
        self._disk = DiskUse(folders, self._disk_bytes)
        self._memory_at = self._disk_at = math.inf
        self._group: Optional[ControlGroup] = None
        self._hit: Optional[dict[str, Any]] = None
        self._pids: list[int] = []
        self._scan_at = 0.0
        self.note = ""  #: for people: why it is not as the spec has it

    # -- in the parent

    def open(self) -> None:
        """Make the groups, if there are any. Called before the cell starts."""
        self._disk_at = time.monotonic() + _FIRST_DISK_S
        if self._folders:
            try:
                self._group = ControlGroup(self._folders, self._memory_bytes, self._processes, self._cpu_weight)
                return
            except OSError as exc:
                self.note = "Its memory is watched: control groups can't be made any more (%s)." % exc.strerror
        self._memory_at = 0.0

    @property
    def look_at(self) -> float:
        """When `look` is due, in monotonic time."""
        return min(self._memory_at, self._disk_at)

    def stop_looking(self) -> None:
        """The cell has exited."""
        self._memory_at = self._disk_at = math.inf

    def look(self, first: int, now_s: float) -> None:
        """Look at the cell with this first process, and kill it if it has more than it may."""
        if now_s >= self._scan_at:
            self._pids = [first, *tree.descendants(first), *tree.cell_orphans(first)]
            self._scan_at = now_s + _SCAN_INTERVAL_S
        if now_s >= self._memory_at:
            self._look_at_memory(first, now_s)
        if now_s >= self._disk_at:
            used, self._disk_at = self._disk.look(self._pids, now_s)
            if used is not None:
                self._kill(first, _hit(failure.DISK_LIMIT, self._disk_bytes, used))

    def _look_at_memory(self, first: int, now_s: float) -> None:
        used, tasks = _use(self._pids)
        in_shm = _shm_bytes(first) if self._own_shm else 0
        if used + in_shm > self._memory_bytes / 2:
            self._scan_at = min(self._scan_at, now_s + _CLOSE_SCAN_INTERVAL_S)
        if used + in_shm > self._memory_bytes:
            used, mapped = _proportional_use(self._pids)
            used += max(0, in_shm - mapped)
            if used > self._memory_bytes:
                self._kill(first, _hit(failure.OUT_OF_MEMORY, self._memory_bytes, used))
        elif not self._counted and tasks > self._processes:
            self._kill(first, _hit(failure.TOO_MANY_PROCESSES, self._processes, tasks))
        wait_s = (self._memory_bytes - used - in_shm) / _FASTEST_BYTES_PER_S
        self._memory_at = now_s + min(max(wait_s, _MIN_INTERVAL_S), _MAX_INTERVAL_S)

    def _kill(self, first: int, hit: dict[str, Any]) -> None:
        self._hit = self._hit or hit
        for pid in (first, *self._pids):
            tree.send_signal(pid, signal.SIGKILL)

    def hit(self, status: ExitStatus, tail: str) -> Optional[dict[str, Any]]:
        """The limit that ended the cell, as cause and facts of a failure. None if none did.

        `tail` is its last output.
        """
        if status.ok:
            return None
        if self._hit is not None:
            return self._hit
        if self._group is not None and self._group.memory_kills:
            peak = self._group.memory_peak
            used = self._memory_bytes if peak is None else min(peak, self._memory_bytes)
            return _hit(failure.OUT_OF_MEMORY, self._memory_bytes, used)
        if status.signal == signal.SIGXFSZ:
            return _hit(failure.FILE_TOO_LARGE, self._file_bytes)
        end = "\n".join([line for line in tail.split("\n") if line.strip()][-_SIGN_LINES:])
        cause = next((name for name, sign in _SIGNS if sign.search(end)), "")
        if cause == failure.TOO_MANY_PROCESSES and (self._group.refused_forks if self._group else self._counted):
            return _hit(cause, self._processes, self._processes)
        if cause == failure.TOO_MANY_OPEN_FILES:
            return _hit(cause, self._soft_open_files)
        return _hit(cause, self._file_bytes) if cause == failure.FILE_TOO_LARGE and self._file_bytes else None

    @property
    def _soft_open_files(self) -> int:
        import resource  # late: only cells that fail need it

        return min(self._open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    def close(self) -> None:
        """Remove the groups. No process of the cell may run any more."""
        self.stop_looking()
        if self._group is not None:
            self._group.remove()

    # -- in the process itself

    def join(self) -> None:
        """Count this process, and all that it starts, from now on."""
        if self._group is not None:
            self._group.join()

    def enter(self) -> None:
        """Limit this process and all that it starts. Called in the user namespace of the cell."""
        import resource  # late: only cells need it

        _lower(resource.RLIMIT_NOFILE, self._open_files)
        if self._file_bytes:
            _lower(resource.RLIMIT_FSIZE, self._file_bytes)
        if self._group is None:
            if self._counted:
                _lower(resource.RLIMIT_NPROC, self._processes)
            if self._cpu_weight < 100:
                os.nice(min(_MAX_NICE, round(math.log(100 / self._cpu_weight, _NICE_STEP))))


def _lower(kind: int, limit: int) -> None:
    """Lower a limit of this process. It stays as it is where it is lower already."""
    import resource

    soft, hard = resource.getrlimit(kind)
    known = [limit if each == resource.RLIM_INFINITY else min(each, limit) for each in (soft, hard)]
    resource.setrlimit(kind, (known[0], known[1]))


def _hit(cause: str, limit: int, used: Optional[int] = None) -> dict[str, Any]:
    facts = {"limit": limit} if used is None else {"limit": limit, "used": used}
    return {"cause": cause, "facts": facts}


def _use(pids: list[int]) -> tuple[int, int]:
    """Resident bytes, in which memory that processes share counts for each of them, and the number of threads."""
    used = tasks = 0
    for pid in pids:
        fields = tree.stat_fields(pid)
        if len(fields) > 21:
            used += int(fields[21]) * _PAGE_BYTES
            tasks += int(fields[17])
    return used, tasks


def _proportional_use(pids: list[int]) -> tuple[int, int]:
    """Resident bytes, and those of them that are mapped files in memory. What several processes share counts once, in
    parts."""
    both = [_proportional_bytes(pid) for pid in pids]
    return sum(used for used, _ in both), sum(mapped for _, mapped in both)


def _proportional_bytes(pid: int) -> tuple[int, int]:
    found = {b"Pss:": 0, b"Pss_Shmem:": 0}
    try:
        with open("/proc/%d/smaps_rollup" % pid, "rb") as file:
            for line in file:
                name, _, rest = line.partition(b" ")
                if name in found:
                    found[name] = int(rest.split()[0]) * 1024
    except OSError:  # it has exited, or the kernel, before 4.14, has no such file
        return 0, 0
    return found[b"Pss:"], found[b"Pss_Shmem:"]


def _shm_bytes(first: int) -> int:
    """Bytes of the files in the `/dev/shm` of a cell's own."""
    try:
        status = os.statvfs("/proc/%d/root/dev/shm" % first)
    except OSError:  # it has exited, or its tree is not built yet
        return 0
    return (status.f_blocks - status.f_bfree) * status.f_frsize
