"""Samples CPU and memory of each replica with all its descendants, once a second, for samples.jsonl.

Reads /proc directly: that is cheaper than an import, and works in every runtime. The process tree is scanned only every
few seconds. The scan is the expensive part, because a trainer has many threads.
"""

from __future__ import annotations

import json
import os

from ..journal import DISK_FULL, now_us
from . import tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

SAMPLE_INTERVAL_S = 1.0
SCAN_INTERVAL_S = 5.0  #: between two scans of the process tree
FULL_RATE_S = 3600.0  #: for this long there is a line a second; then the interval grows
MAX_INTERVAL_S = 10.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STOPPED = "T"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def sample_interval_s(running_s: float) -> float:
    """Seconds between two lines of a replica. The interval grows with the running time, which bounds the file."""
    return min(max(SAMPLE_INTERVAL_S, running_s / FULL_RATE_S), MAX_INTERVAL_S)


class ProcessReading:
    """CPU time of a replica's processes, and the letter that the kernel has for the state of the first one.

    `pids` are these processes. It is empty if they run on a node.
    """

    __slots__ = ("cpu_s", "pids", "state")

    def __init__(self, cpu_s: float, state: str, pids: Optional[list[int]] = None) -> None:
        self.cpu_s = cpu_s
        self.state = state
        self.pids = pids or []

    @property
    def stopped(self) -> bool:
        """Whether a signal stopped it."""
        return self.state == _STOPPED


class _Totals:
    """Totals of one replica since its last line."""

    __slots__ = ("count", "cpu_s", "peak", "pid", "since_s")

    def __init__(self, pid: int, since_s: float, cpu_s: float) -> None:
        self.pid = pid
        self.since_s = since_s
        self.cpu_s = cpu_s
        self.peak = self.count = 0


class ProcessSampler:
    """Samples `{"t": us, "r": replica, "cpu": cores in use, "rss": bytes, "processes": n, "span": s}` for each replica.

    A line covers the `span` seconds before it: `cpu` is the mean, `rss` and `processes` are maximums. If the first
    process is stopped by a signal at its end, it has `"state": "T"`.
    """

    def __init__(self, inside: str = "") -> None:
        """`inside` is the attempt's folder if its replicas run in containers. Processes outside
        the container do not count."""
        self.peaks: dict[str, int] = {}  #: the most resident bytes of each replica, since its last start
        self.readings: dict[str, ProcessReading] = {}  #: of the last call, by replica
        self._container_folder = inside
        self._totals: dict[str, _Totals] = {}
        self._trees: dict[str, list[int]] = {}
        self._pids: dict[str, int] = {}
        self._start_s = self._scan_at = self._write_at = 0.0

    def lines(self, pids: dict[str, int], now_s: float) -> str:
        """Sample each replica. Called about once a second. In a long job most calls return no line.
        `now_s` is monotonic time."""
        self._start_s = self._start_s or now_s
        if now_s >= self._scan_at or pids != self._pids or (self._container_folder and not all(self._trees.values())):
            self._trees, self._pids = _process_trees(pids), dict(pids)
            if self._container_folder:
                self._trees = {
                    name: _in_container(self._container_folder, name, tree_pids)
                    for name, tree_pids in self._trees.items()
                }
            self._scan_at = now_s + SCAN_INTERVAL_S
        due = now_s >= self._write_at
        lines = []
        self.readings = {}
        for name, pid in pids.items():
            cpu_s, rss, count, state = _sum(self._trees[name])
            self.readings[name] = ProcessReading(cpu_s, state, self._trees[name])
            totals = self._totals.get(name)
            if totals is None or totals.pid != pid:
                totals = self._totals[name] = _Totals(pid, now_s - SAMPLE_INTERVAL_S, 0.0)
                self.peaks[name] = 0
            totals.peak, totals.count = max(totals.peak, rss), max(totals.count, count)
            self.peaks[name] = max(self.peaks[name], rss)
            if due:
                lines.append(_line(name, totals, self.readings[name], now_s))
                self._totals[name] = _Totals(pid, now_s, cpu_s)
        if due:
            # Slightly less than the interval: the caller's clock is not exact, and a line should
            # not wait for its next call.
            self._write_at = now_s + sample_interval_s(now_s - self._start_s) - SAMPLE_INTERVAL_S / 2
        return "".join(lines)


class SampleWriter:
    """Appends the lines of `ProcessSampler` to a file."""

    def __init__(self, path: str, inside: bool = False) -> None:
        """`inside`: replicas run in containers."""
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._sampler = ProcessSampler(os.path.dirname(path) if inside else "")

    @property
    def peaks(self) -> dict[str, int]:
        """The most resident bytes of each replica, since its last start."""
        return self._sampler.peaks

    def readings(self) -> dict[str, ProcessReading]:
        """The readings of the last sample, by replica."""
        return self._sampler.readings

    def sample(self, pids: dict[str, int], now_s: float) -> None:
        """Sample each replica. Called about once a second. A full disk costs the lines, not the job."""
        lines = self._sampler.lines(pids, now_s)
        try:
            os.write(self._fd, lines.encode())
        except OSError as exc:
            if exc.errno not in DISK_FULL:
                raise


def _line(name: str, totals: _Totals, reading: ProcessReading, now_s: float) -> str:
    span_s = max(now_s - totals.since_s, 0.001)
    # The sum may fall, because an exited process takes its CPU time with it.
    cores = max(0.0, reading.cpu_s - totals.cpu_s) / span_s
    sample = {"t": now_us(), "r": name, "cpu": round(cores, 3), "rss": totals.peak, "processes": totals.count}
    sample["span"] = round(span_s, 2)
    if reading.stopped:
        sample["state"] = reading.state
    return json.dumps(sample) + "\n"


def _process_trees(pids: dict[str, int]) -> dict[str, list[int]]:
    """For each replica its first process, the descendants, and orphans that belong to it."""
    trees = {name: [pid, *tree.descendants(pid), *tree.cell_orphans(pid)] for name, pid in pids.items()}
    roots = {pid: name for name, pid in pids.items()}
    for orphan in tree.children(os.getpid()):
        if orphan not in roots:
            owner = tree.owner(orphan, roots)
            if owner in trees:
                trees[owner].extend([orphan, *tree.descendants(orphan)])
    return trees


def _in_container(folder: str, name: str, pids: list[int]) -> list[int]:
    """Those processes that are in the replica's container. `replica` writes the pid file of a daemon's container."""
    try:
        with open(os.path.join(folder, name + ".pid")) as file:
            first = int(file.read())
        pids = [*pids, first, *tree.descendants(first)]
    except FileNotFoundError:
        pass
    return [pid for pid in pids if _is_nested(pid)]


def _is_nested(pid: int) -> bool:
    """Whether a process is in a nested pid namespace, like those in containers."""
    try:
        with open("/proc/%d/status" % pid, "rb") as file:
            return any(line.startswith(b"NSpid:") and len(line.split()) > 2 for line in file)
    except (ProcessLookupError, FileNotFoundError):
        return False


def _sum(pids: list[int]) -> tuple[float, int, int, str]:
    """CPU seconds, resident bytes and count of those processes that still exist, and the state of the first one."""
    ticks = rss = count = 0
    state = ""
    for pid in pids:
        fields = tree.stat_fields(pid)
        if len(fields) > 21:
            ticks += sum(int(field) for field in fields[11:15])  # own and of exited children, user and system
            rss += int(fields[21]) * _PAGE_BYTES
            count += 1
            state = state or fields[0].decode("ascii", "replace")
    return ticks / _TICKS_PER_S, rss, count, state


def oom_kills() -> int:
    """Number of processes that the kernel has killed for memory since boot. Returns 0 if it is unknown."""
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        return 0
    return 0
