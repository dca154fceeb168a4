"""CPU and memory of each replica, with all that it started, once a second: lines of samples.jsonl.

Read straight from /proc: that costs less than importing a library for it, and works in every runtime. Who belongs to
whom is looked up every few seconds only, because that is the dear part of it: a trainer has many threads.
"""

from __future__ import annotations

import json
import os

from ..journal import DISK_FULL, now_us
from . import tree

SAMPLE_INTERVAL_S = 1.0
LOOK_S = 5.0  #: between two looks at which processes a replica has
FINE_S = 3600.0  #: for so long there is a line a second; then they come further and further apart
COARSEST_S = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def gap_s(running_s: float) -> float:
    """The time between two lines of a replica in a job that has run for so long, so that no file grows too large."""
    return min(max(SAMPLE_INTERVAL_S, running_s / FINE_S), COARSEST_S)


class _Tally:
    """One replica since its last line."""

    __slots__ = ("count", "cpu_s", "peak", "pid", "since_s")

    def __init__(self, pid: int, since_s: float, cpu_s: float) -> None:
        self.pid = pid
        self.since_s = since_s
        self.cpu_s = cpu_s
        self.peak = self.count = 0


class ProcessSampler:
    """Gives `{"t": us, "r": replica, "cpu": cores in use, "rss": bytes, "processes": n, "span": s}` for each replica.

    A line is about the `span` seconds before it: `cpu` is the mean, `rss` and `processes` are the most that was seen.
    """

    def __init__(self, inside: str = "") -> None:
        """`inside` is an attempt's folder if its replicas are in containers: what runs one is not a part of it."""
        self._inside = inside
        self._tallies: dict[str, _Tally] = {}
        self._families: dict[str, list[int]] = {}
        self._known: dict[str, int] = {}
        self._begun_s = self._look_at = self._write_at = 0.0

    def lines(self, pids: dict[str, int], now_s: float) -> str:
        """Look at each replica, to be called about once a second; most looks give no line in a job that runs for long.
        `now_s` is monotonic time.
        """
        self._begun_s = self._begun_s or now_s
        if now_s >= self._look_at or pids != self._known or (self._inside and not all(self._families.values())):
            self._families, self._known = _families(pids), dict(pids)
            if self._inside:
                self._families = {name: _contained(self._inside, name, all_) for name, all_ in self._families.items()}
            self._look_at = now_s + LOOK_S
        due = now_s >= self._write_at
        lines = []
        for name, pid in pids.items():
            cpu_s, rss, count = _sum(self._families[name])
            tally = self._tallies.get(name)
            if tally is None or tally.pid != pid:
                tally = self._tallies[name] = _Tally(pid, now_s - SAMPLE_INTERVAL_S, 0.0)
            tally.peak, tally.count = max(tally.peak, rss), max(tally.count, count)
            if due:
                lines.append(_line(name, tally, cpu_s, now_s))
                self._tallies[name] = _Tally(pid, now_s, cpu_s)
        if due:
            # A little less than the gap: the caller's clock is not exact, and a line should not wait for its next call.
            self._write_at = now_s + gap_s(now_s - self._begun_s) - SAMPLE_INTERVAL_S / 2
        return "".join(lines)


class SampleWriter:
    """Appends what `ProcessSampler` gives to a file."""

    def __init__(self, path: str, inside: bool = False) -> None:
        """`inside`: replicas are in containers."""
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._looks = ProcessSampler(os.path.dirname(path) if inside else "")

    def sample(self, pids: dict[str, int], now_s: float) -> None:
        """Look at each replica, to be called about once a second. A full disk costs the lines, not the job."""
        lines = self._looks.lines(pids, now_s)
        try:
            os.write(self._fd, lines.encode())
        except OSError as exc:
            if exc.errno not in DISK_FULL:
                raise


def _line(name: str, tally: _Tally, cpu_s: float, now_s: float) -> str:
    span_s = max(now_s - tally.since_s, 0.001)
    # A process that ends takes its time with it, so the sum may fall.
    cores = max(0.0, cpu_s - tally.cpu_s) / span_s
    sample = {"t": now_us(), "r": name, "cpu": round(cores, 3), "rss": tally.peak, "processes": tally.count}
    sample["span"] = round(span_s, 2)
    return json.dumps(sample) + "\n"


def _families(pids: dict[str, int]) -> dict[str, list[int]]:
    """For each replica its first process, those below it, and those that lost their parent on the way."""
    found = {name: [pid, *tree.descendants(pid)] for name, pid in pids.items()}
    living = {pid: name for name, pid in pids.items()}
    for orphan in tree.children(os.getpid()):
        if orphan not in living:
            owner = tree.owner(orphan, living)
            if owner in found:
                found[owner].extend([orphan, *tree.descendants(orphan)])
    return found


def _contained(folder: str, name: str, found: list[int]) -> list[int]:
    """Those of a replica's processes that are in its container, also if it is a daemon's: `contained` tells of it."""
    try:
        with open(os.path.join(folder, name + ".pid")) as file:
            first = int(file.read())
        found = [*found, first, *tree.descendants(first)]
    except FileNotFoundError:
        pass
    return [pid for pid in found if _nested(pid)]


def _nested(pid: int) -> bool:
    """Whether a process is in a pid namespace below this one, as those in containers are."""
    try:
        with open("/proc/%d/status" % pid, "rb") as file:
            return any(line.startswith(b"NSpid:") and len(line.split()) > 2 for line in file)
    except (ProcessLookupError, FileNotFoundError):
        return False


def _sum(pids: list[int]) -> tuple[float, int, int]:
    """CPU seconds, resident bytes and number of those of these processes that there still are."""
    ticks = rss = count = 0
    for pid in pids:
        fields = tree.stat_fields(pid)
        if len(fields) > 21:
            ticks += sum(int(field) for field in fields[11:15])  # own and of children that ended, user and system
            rss += int(fields[21]) * _PAGE
            count += 1
    return ticks / _TICKS, rss, count


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since it started; 0 if it does not say."""
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        return 0
    return 0
