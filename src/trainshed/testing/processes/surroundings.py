"""What a probe looks for: files, a process, shared memory and services that are not its own."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from trainshed.node.remote.sidecar_proxy import SidecarProxy
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
        socket.create_server(("", 0)) as tcp_all,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp_all,
        _ipv6_server() as tcp_6,
        _segment() as key,
        _queues(name) as (semaphores, messages),
    ):
        named.bind(os.fsencode(f"/proc/self/fd/{os.open(state, os.O_RDONLY)}/socket"))
        abstract.bind(f"\0{name}")
        for listener in (named, abstract):
            listener.listen(10)
        (state / "socket").chmod(0o777)
        udp.bind(("127.0.0.1", 0))
        udp_all.bind(("", 0))
        for listener in (tcp, tcp_all, tcp_6):
            threading.Thread(target=_answer_tcp, args=(listener,), daemon=True).start()
        for listener in (udp, udp_all):
            threading.Thread(target=_answer_udp, args=(listener,), daemon=True).start()
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
            "own": _own_address(),
            "tcp_all": tcp_all.getsockname()[1],
            "udp_all": udp_all.getsockname()[1],
            "tcp_6": tcp_6.getsockname()[1],
            "semaphores": semaphores,
            "messages": messages,
            "queue": name,
        }
        made = Surroundings(targets, process)
        yield made
        made.close()


@contextmanager
def machine_proxy() -> Iterator[str]:
    """A CONNECT proxy on loopback that connects to any address, as jobs without a network of their own have one."""
    proxy = SidecarProxy({"host": "127.0.0.1", "port": 9, "names": "(?!)"})
    pid = proxy.start()
    try:
        yield f"http://{proxy.address}"
    finally:
        proxy.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _write_secrets(state: Path, folders: Iterable[Path]) -> None:
    """Write the files of the state folder, and a secret into each folder."""
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "secret").write_text(probe.SECRET)
    for file in ("state.db", "token", "truncated", "renamed", "removed"):
        (state / file).write_text(probe.SECRET)
    (state / "link").symlink_to("token")
    with contextlib.suppress(OSError):  # the file system has no attributes
        os.setxattr(state / "token", "user.seen", b"1")
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


@contextmanager
def _queues(name: str) -> Iterator[tuple[int, int]]:
    """System V semaphores and messages, and a POSIX message queue."""
    libc, key = ctypes.CDLL(None, use_errno=True), int.from_bytes(os.urandom(3), "big") + 1
    semaphores, messages = libc.semget(key, 1, 0o1666), libc.msgget(key, 0o1666)
    os.close(libc.mq_open(f"/{name}".encode(), os.O_CREAT | os.O_RDWR, 0o666, None))
    try:
        yield key, key
    finally:
        libc.semctl(semaphores, 0, 0)
        libc.msgctl(messages, 0, None)
        libc.mq_unlink(f"/{name}".encode())


def _ipv6_server() -> socket.socket:
    """A service on loopback by IPv6, or by IPv4 if the machine has no other."""
    try:
        return socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        return socket.create_server(("127.0.0.1", 0))


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probing:
        try:
            probing.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probing.getsockname()[0])


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


def run_probe(block: Cellblock, surroundings: Surroundings, level: str) -> dict[str, bool]:
    """Run the probe at a level. Returns whether each way succeeded."""
    sources = probe.source()
    spec = block.spec(f"probe_{level}", sources["probe.py"])
    (block.site / "probe_more.py").write_text(sources["probe_more.py"])
    targets = {**surroundings.targets, "attempt": str(spec.folder)}
    spec = replace(spec, args=(json.dumps(targets),), writable=(block.home.buckets / "own",))
    with machine_proxy() as address:
        lines = block.run(replace(spec, env={**spec.env, "https_proxy": address}), level)
    [line] = [line for line in lines if line.startswith("PROBE ")] or [""]
    assert line, lines
    found: dict[str, bool] = json.loads(line.removeprefix("PROBE "))
    assert set(found) == set(probe.WAYS)
    return found
