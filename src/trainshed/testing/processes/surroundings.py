"""What a probe looks for: files, a process, shared memory and services that are not its own."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainshed.testing.processes.cells import Cellblock
from trainshed.testing.workloads import probe

_TEMPORARY, _SHARED_MEMORY = Path("/tmp"), Path("/dev/shm")  # noqa: S108 - those of the machine, by their names


@dataclass
class Surroundings:
    """What a probe looks for: files, a process and services that are not its own."""

    targets: probe.Targets
    process: subprocess.Popen[bytes]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        for path in _SHARED_MEMORY.glob(f"{Path(self.targets['shm_file']).name}*"):
            path.unlink()
        Path(self.targets["tmp_file"]).unlink()


@contextmanager
def build_surroundings(block: Cellblock) -> Iterator[Surroundings]:
    """Make what a probe looks for, for as long as the block lasts."""
    name = f"trainshed-probe-{os.getpid()}"
    home, state = block.path / "account", block.home.path
    folders = {
        "other": block.home.buckets / "other",
        "own": block.home.buckets / "own",
        "job": block.home.jobs / "p/x/1",
    }
    _write_secrets(state, (state, home, *folders.values()))
    tmp_file, shm_file = _TEMPORARY / name, _SHARED_MEMORY / name
    for path in (tmp_file, shm_file):
        path.write_text(probe.SECRET)
        path.chmod(0o666)
    block.give(block.path)
    with (
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        _segment() as key,
    ):
        named.bind(os.fsencode(f"/proc/self/fd/{os.open(state, os.O_RDONLY)}/socket"))
        abstract.bind(f"\0{name}")
        for listener in (named, abstract):
            listener.listen(10)
        (state / "socket").chmod(0o777)
        udp.bind(("127.0.0.1", 0))
        threading.Thread(target=_answer_tcp, args=(tcp,), daemon=True).start()
        threading.Thread(target=_answer_udp, args=(udp,), daemon=True).start()
        process = subprocess.Popen(
            [block.python, probe.__file__, probe.MARK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"SECRET": probe.SECRET, "PATH": os.environ["PATH"]},
            **block.credentials(),
        )
        assert process.stdout is not None
        pid, address = map(int, process.stdout.readline().split())
        targets: probe.Targets = {
            "state": str(state),
            "other_bucket": str(folders["other"]),
            "own_bucket": str(folders["own"]),
            "other_job": str(folders["job"]),
            "attempt": "",
            "site": str(block.site),
            "node": str(block.node),
            "home_file": str(home / "secret"),
            "tmp_file": str(tmp_file),
            "shm_file": str(shm_file),
            "victim": pid,
            "victim_address": address,
            "supervisor": process.pid,
            "socket": str(state / "socket"),
            "abstract": name,
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "shm_key": key,
        }
        made = Surroundings(targets, process)
        yield made
        made.close()


def _write_secrets(state: Path, folders: Iterable[Path]) -> None:
    """Write the files of the state folder, and a secret into each folder."""
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "secret").write_text(probe.SECRET)
    for file in ("state.db", "token", "truncated", "renamed"):
        (state / file).write_text(probe.SECRET)
    (state / "tool").write_text("#!/bin/sh\nexit 0\n")
    (state / "tool").chmod(0o755)


class _segment:
    """A System V segment with the secret in it."""

    def __enter__(self) -> int:
        self._libc = ctypes.CDLL(None, use_errno=True)
        key = int.from_bytes(os.urandom(3), "big") + 1
        self._number = self._libc.shmget(key, 4096, 0o1666)
        self._libc.shmat.restype = ctypes.c_void_p
        ctypes.memmove(self._libc.shmat(self._number, None, 0), probe.SECRET.encode(), len(probe.SECRET))
        return key

    def __exit__(self, *exc: object) -> None:
        self._libc.shmctl(self._number, 0, None)


def _answer_tcp(listener: socket.socket) -> None:
    while True:
        try:
            connection = listener.accept()[0]
        except OSError:
            return
        with connection:
            connection.sendall(probe.SECRET.encode())


def _answer_udp(listener: socket.socket) -> None:
    while True:
        try:
            _, sender = listener.recvfrom(100)
            listener.sendto(probe.SECRET.encode(), sender)
        except OSError:
            return
