"""Several machines on this one, for tests: each with its own address and `/tmp`.

With root they are network namespaces on a bridge. They reach nothing that listens on loopback here, and see no file
below `/tmp` here but the checkout and this Python. Without root they are loopback addresses, and a machine is the
processes that were started on it. `cut` then suspends the processes instead.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

_KILL_TIMEOUT_S = 120.0
_NAMESPACE = "trainshed"
_MARK = "TRAINSHED_MACHINE"
_TMP = Path("/tmp")  # noqa: S108 - each machine has its own
#: what programs on a machine need of this one, wherever it is
SHARED_PATHS = (Path(__file__).resolve().parents[4], Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve())
#: `$1` becomes /tmp, with the folders that are shared with this machine: pairs of a name in it and a path here.
_ENTER = """
set -eu
tmp=$1; shift
while [ "$1" != -- ]; do mount --bind "$2" "$tmp/$1"; shift 2; done
shift
mount --rbind "$tmp" /tmp
cd /
exec "$@"
"""


class TestMachine(ABC):
    """One machine. `shared` maps names below its own folder to folders of this machine."""

    def __init__(self, name: str, host: str, folder: Path, shared: Mapping[str, Path]) -> None:
        self.name = name
        self.host = host  #: its address
        self.folder = folder  #: its own files, as seen from here
        self._shared = dict(shared)
        self._started: list[subprocess.Popen[bytes]] = []
        (folder / "home").mkdir(parents=True)

    @abstractmethod
    def inside(self, name: str) -> Path:
        """Return a path below its folder, as programs on the machine see it."""

    @abstractmethod
    def pids(self) -> list[int]:
        """List the pids of all processes on the machine."""

    @abstractmethod
    def cut(self) -> None:
        """Drop all packets in both directions, without notice."""

    @abstractmethod
    def mend(self) -> None:
        """Undo `cut`."""

    @abstractmethod
    def remove(self) -> None:
        """Kill all processes and remove the machine. Its folder stays."""

    @abstractmethod
    def _command(self, command: Sequence[str | Path]) -> list[str]: ...

    def run(
        self, command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on the machine to its end. Any exit status is fine."""
        full_command = self._command(command)
        return subprocess.run(
            full_command,
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            start_new_session=True,  # so that the whole machine has one share of the cores
        )

    def start(self, command: Sequence[str | Path], log: Path, *, env: Mapping[str, str] | None = None) -> None:
        """Start a program on the machine. It runs until the machine is killed or removed."""
        with open(log, "ab") as output:
            process = subprocess.Popen(
                self._command(command),
                env=self.environment(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._started.append(process)

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a program on the machine: nothing of Trainshed, and a home folder there."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINSHED_", "RAY_"))}
        return inherited | {"HOME": str(self.inside("home")), _MARK: self.host} | dict(extra or {})

    def kill(self) -> None:
        """Send SIGKILL to all processes, and to those that they start meanwhile."""
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while pids := self.pids():
            _signal(pids, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise RuntimeError(f"Processes {pids} of {self.name} do not end.")
            time.sleep(0.05)
        for process in self._started:
            process.wait()
        self._started.clear()

    def pause(self) -> None:
        """Suspend all processes. Connections stay open, and nothing responds."""
        _signal(self.pids(), signal.SIGSTOP)

    def resume(self) -> None:
        _signal(self.pids(), signal.SIGCONT)


class Namespace(TestMachine):
    """A network namespace, connected to a bridge by a veth pair."""

    def __init__(self, name: str, host: str, folder: Path, shared: Mapping[str, Path], *, bridge: str) -> None:
        hidden = {str(path.relative_to(_TMP)): path for path in SHARED_PATHS if path.is_relative_to(_TMP)}
        super().__init__(name, host, folder, {**hidden, **shared})
        number = host.rpartition(".")[2]
        self._space = f"{_NAMESPACE}-{os.getpid()}-{bridge}-{number}"
        self._cable = f"{bridge}-{number}"
        for below in self._shared:
            (folder / below).mkdir(parents=True, exist_ok=True)
        _ip("netns", "add", self._space)
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self._space)
        _ip("link", "set", self._cable, "master", bridge, "up")
        for words in ("link set lo up", f"addr add {host}/24 dev eth0", "link set eth0 up"):
            _ip("-n", self._space, *words.split())

    def inside(self, name: str) -> Path:
        return _TMP / name  # see _ENTER

    def pids(self) -> list[int]:
        return [int(pid) for pid in _ip("netns", "pids", self._space).split()]

    def cut(self) -> None:
        _ip("link", "set", self._cable, "down")

    def mend(self) -> None:
        _ip("link", "set", self._cable, "up")

    def remove(self) -> None:
        self.kill()
        _ip("netns", "del", self._space)  # removes the veth pair too

    def _command(self, command: Sequence[str | Path]) -> list[str]:
        pairs = [word for name, path in self._shared.items() for word in (name, str(path))]
        enter = ["sh", "-c", _ENTER, "sh", str(self.folder), *pairs, "--", *map(str, command)]
        return [*_inside(self._space), *enter]


class Loopback(TestMachine):
    """An address of the loopback interface. Its processes have the machine's mark, or descend from one that has."""

    def __init__(self, name: str, host: str, folder: Path, shared: Mapping[str, Path]) -> None:
        super().__init__(name, host, folder, shared)
        for below, path in self._shared.items():
            (folder / below).parent.mkdir(parents=True, exist_ok=True)
            (folder / below).symlink_to(path)

    def inside(self, name: str) -> Path:
        return self.folder / name

    def pids(self) -> list[int]:
        pids: set[int] = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(_MARK) == self.host and process.status() != psutil.STATUS_ZOMBIE:
                    pids |= {process.pid, *(child.pid for child in process.children(recursive=True))}
        return sorted(pids)

    def cut(self) -> None:
        self.pause()

    def mend(self) -> None:
        self.resume()

    def remove(self) -> None:
        self.kill()

    def _command(self, command: Sequence[str | Path]) -> list[str]:
        return [str(word) for word in command]


class Network:
    """Machines that reach each other and this one. `host` is this machine's address as they see it."""

    def __init__(self, scratch: Path, *, namespaces: bool | None = None) -> None:
        self._scratch = scratch
        self.machines: list[TestMachine] = []
        self.isolated = can_make_namespaces() if namespaces is None else namespaces
        if self.isolated:
            remove_orphans()
            self._bridge, self._prefix = _make_bridge()
        else:
            self._prefix = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(250)}"
        self.host = f"{self._prefix}.1"

    def machine(self, name: str, shared: Mapping[str, Path] | None = None) -> TestMachine:
        """Add a machine."""
        host = f"{self._prefix}.{len(self.machines) + 2}"
        folder = self._scratch / f"{name}-{host}"
        machine: TestMachine
        if self.isolated:
            machine = Namespace(name, host, folder, shared or {}, bridge=self._bridge)
        else:
            machine = Loopback(name, host, folder, shared or {})
        self.machines.append(machine)
        return machine

    def close(self) -> None:
        """Remove all machines. Only their folders stay."""
        for machine in self.machines:
            machine.remove()
        self.machines.clear()
        if self.isolated:
            _ip("link", "del", self._bridge)


def can_make_namespaces() -> bool:
    """Return whether this process can create network namespaces."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    space = f"{_NAMESPACE}-{os.getpid()}-try"
    if subprocess.run(["ip", "netns", "add", space], capture_output=True).returncode != 0:
        return False
    command = [*_inside(space), "sh", "-c", "mount -t tmpfs tmpfs /tmp && ip link add name try0 type veth"]
    usable = subprocess.run(command, capture_output=True).returncode == 0
    _ip("netns", "del", space)
    return usable


def remove_orphans() -> None:
    """Remove machines of test runs that were killed."""
    for line in _ip("netns", "list").splitlines():
        space = line.split()[0]
        words = space.split("-")
        if words[0] != _NAMESPACE or len(words) < 3 or psutil.pid_exists(int(words[1])):
            continue
        # another run may clean up too, so each command may find nothing
        pids = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True).stdout
        _signal([int(pid) for pid in pids.split()], signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", space], capture_output=True)
        subprocess.run(["ip", "link", "del", words[2]], capture_output=True)


def _make_bridge() -> tuple[str, str]:
    """Create a bridge. Returns its name and address prefix. The kernel gives a name to one run only."""
    for _ in range(50):
        number = secrets.randbelow(250)
        bridge = f"tshed{number}"
        result = subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], capture_output=True, text=True)
        if result.returncode == 0:
            prefix = f"10.231.{number}"
            _ip("addr", "add", f"{prefix}.1/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
            return bridge, prefix
    raise RuntimeError(f"No bridge can be made: {result.stderr}")


def _inside(space: str) -> list[str]:
    """Return the command prefix that runs a program in a namespace, with its own mounts.

    `ip netns exec` would mount another /sys, without the control groups that containers need.
    """
    return ["nsenter", f"--net=/run/netns/{space}", "unshare", "--mount"]


def _ip(*words: str) -> str:
    result = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"`ip {' '.join(words)}` failed: {result.stderr.strip()}")
    return result.stdout


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
