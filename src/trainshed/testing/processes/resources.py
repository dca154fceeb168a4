"""Resources for tests: the CPU time of programs, a port that is held, a small disk."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

_RUNS = 5


def cpu_s(command: Sequence[str], env: Mapping[str, str], *, status: int = 0) -> float:
    """Return the CPU seconds of a program, with the children it waits for: the minimum of several runs.

    It must exit with `status`.
    """
    times = []
    for _ in range(_RUNS):
        with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            _, wait_status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(wait_status)
        assert process.returncode == status, command
        times.append(usage.ru_utime + usage.ru_stime)
    return min(times)


@contextmanager
def held_port() -> Iterator[int]:
    """Reserve a loopback port: the kernel gives it to nobody else.

    Nobody listens on it, so connections are refused until the test starts a server on that port. The server must set
    SO_REUSEADDR, as Python's servers do.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        yield int(listener.getsockname()[1])


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of `size`, such as `4m`, over a folder. Skips the test where nothing can be mounted."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
