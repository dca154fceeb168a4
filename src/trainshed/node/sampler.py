"""CPU and memory of each replica, with all that it started, every few seconds: lines of samples.jsonl.

Read straight from /proc: that costs less than importing a library for it, and works in every runtime.
"""

from __future__ import annotations

import json
import os

from . import reap
from .journal import FULL, now_us

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

FIRST_S = 1.0
EVERY_S = 5.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Sampler:
    """Appends `{"t": us, "r": replica, "cpu": cores in use, "rss": bytes, "processes": n}` for each replica."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._last: dict[str, tuple[float, float]] = {}

    def sample(self, pids: dict[str, int], now_s: float) -> None:
        """One line for each replica. `now_s` is monotonic time. A full disk costs the lines, not the job."""
        lines = []
        for name, pid in pids.items():
            cpu_s, rss, count = _tree(pid)
            before_s, before_cpu_s = self._last.get(name, (now_s - FIRST_S, 0.0))
            self._last[name] = (now_s, cpu_s)
            # A process that ends takes its time with it, so the sum may fall.
            cores = max(0.0, cpu_s - before_cpu_s) / max(now_s - before_s, 0.001)
            sample = {"t": now_us(), "r": name, "cpu": round(cores, 3), "rss": rss, "processes": count}
            lines.append(json.dumps(sample) + "\n")
        try:
            os.write(self._fd, "".join(lines).encode())
        except OSError as exc:
            if exc.errno not in FULL:
                raise


def _tree(root: int) -> tuple[float, int, int]:
    """CPU seconds, resident bytes and number of the processes from `root` down."""
    ticks = rss = count = 0
    for pid in [root, *reap.descendants(root)]:
        fields = reap.stat_fields(pid)
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
