"""What programs cost, measured so that a busy machine changes it little."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

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


@contextmanager
def held_port() -> Iterator[int]:
    """A port on loopback that is not given to anyone who asks for a free one, or who connects to somewhere.

    Nobody listens on it, so that connections are refused, until the test has a server listen on that very port. The
    server must set SO_REUSEADDR, as those of Python do.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
