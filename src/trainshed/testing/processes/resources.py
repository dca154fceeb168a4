"""What programs cost, measured so that a busy machine changes it little."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

_RUNS = 5


def cpu_s(command: Sequence[str], env: Mapping[str, str], *, status: int = 0) -> float:
    """Seconds of processors that a program needs, with all that it waits for: the least of several runs.

    It must end with `status`.
    """
    times = []
    for _ in range(_RUNS):
        with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            _, ended, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(ended)
        assert process.returncode == status, command
        times.append(used.ru_utime + used.ru_stime)
    return min(times)
