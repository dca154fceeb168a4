"""A real Ray cluster for tests: a head and nodes, on machines of their own or on loopback addresses.

with RayCluster(ray_environment(cache), scratch) as cluster:
    server = RunningServer(home, cluster.settings()).start()
    cluster.kill_node(cluster.nodes[0])
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainshed.control.jobs.local_attempt import free_ports
from trainshed.runtimes.uv import find_uv, uv_command
from trainshed.testing.clusters.machines import Network, TestMachine

RAY_VERSION = "2.58.0"
PYTHON = "3.11"
#: Where a node keeps the environments of jobs, below its own folder.
CACHE = "home/.cache/trainshed"  #: of a node, below its folder
RUNTIMES = f"{CACHE}/runtimes"
_START_S = 300.0
_SLOW = "timed out during startup"  #: what `ray start` says after 30 s; on a busy machine the node comes up later
#: Ports that are known from the start: else a node waits for its agents to tell them, and gives up soon.
_AGENT_PORTS = (
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
    "metrics-export-port",
)
#: What a client is told whose process on the head died before it was up: on a busy machine the next one does better.
_NO_CLIENT = "Starting Ray client server failed"
_TRIES = 5
_STORE_BYTES = 80 << 20  #: for Ray's own objects; it takes no less

#: Nothing that starts processes which no test asks for.
_QUIET = {
    "RAY_prestart_worker_first_driver": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
}

#: Asks the head without becoming a client of it, for which the head would start a process.
_NODES = """
import json, sys
from ray._raylet import GcsClient
nodes = GcsClient(address=sys.argv[1]).get_all_node_info(timeout=20).values()
print(json.dumps([{"host": node.node_manager_address, "alive": node.state == 0, "total": dict(node.resources_total)}
                  for node in nodes]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSize:
    """What a node says that it has, whatever the machine has."""

    cpus: int = 4
    memory_gb: int = 16
    gpus: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)

    def flags(self) -> list[str]:
        return [
            f"--num-cpus={self.cpus}",
            f"--num-gpus={self.gpus}",
            f"--memory={self.memory_gb << 30}",
            f"--object-store-memory={_STORE_BYTES}",
            f"--resources={json.dumps(dict(self.resources))}",
        ]


def ray_environment(cache: Path, version: str = RAY_VERSION) -> Path:
    """The Python of an environment with Ray and nothing of ours, as a cluster has it. Built on first use."""
    folder = cache / f"cluster-ray-{version}"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f"{folder.name}.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, uv = folder / "complete", find_uv()
        install: tuple[Any, ...] = ("pip", "install", "--python", folder)
        steps: list[tuple[Any, ...]] = []
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            steps = [("venv", "--python", PYTHON, folder), (*install, _wanted(version))]
        if not (folder / "bin" / "uv").exists():  # with which jobs' packages are installed; nodes can't fetch it here
            steps.append((*install, "uv"))
        for words in steps:
            subprocess.run(uv_command(uv, *words), check=True, capture_output=True, text=True)
        stamp.touch()
    return folder / "bin" / "python"


def _wanted(version: str) -> str:
    return f"ray[client]=={version}"


class RayCluster:
    """Started by `start` or `with`. `runtimes` is a folder of environments that every node has too."""

    def __init__(
        self,
        python: Path,
        scratch: Path,
        *,
        nodes: int = 2,
        size: NodeSize | None = None,
        runtimes: Path | None = None,
        namespaces: bool | None = None,
    ) -> None:
        self._python = python
        self._size = size or NodeSize()
        self._shared = {RUNTIMES: runtimes} if runtimes else {}
        self.network = Network(scratch, namespaces=namespaces)
        self.head = self._machine("head")
        self.nodes = [self._machine(f"node-{number + 1}") for number in range(nodes)]
        self._ports = (6379, 10001) if self.network.apart else free_ports(2)
        #: for Ray's files, where /tmp is shared: its sockets are deep below, and a path of a socket must be short
        self._short = None if self.network.apart else Path(tempfile.mkdtemp(prefix="ray"))

    @property
    def address(self) -> str:
        """As `ray start` prints it."""
        return f"{self.head.host}:{self._ports[0]}"

    @property
    def client_address(self) -> str:
        """For Ray Client."""
        return f"ray://{self.head.host}:{self._ports[1]}"

    @property
    def host(self) -> str:
        """This machine, as the nodes see it: what a server listens at."""
        return self.network.host

    def settings(self) -> dict[str, Any]:
        """For a server here that uses it: names without the prefix."""
        address = self.address if self.network.apart else self.client_address
        return {"host": self.host, "ray_address": address, "ray_version": RAY_VERSION, "ray_python": PYTHON}

    def start(self) -> RayCluster:
        try:
            self.start_head()
            for node in self.nodes:
                self._start_node(node)
        except BaseException:
            self.stop()
            raise
        return self

    def start_head(self) -> None:
        """Also after it was killed: it is then a new cluster with nobody in it."""
        temporary = self._short or self.head.folder
        (temporary / "ray" / "ray_current_cluster").unlink(missing_ok=True)  # or it takes the old one for alive
        flags = [f"--port={self._ports[0]}", f"--ray-client-server-port={self._ports[1]}", "--include-dashboard=false"]
        self._ray_start(self.head, "--head", *flags)

    def add_node(self, size: NodeSize | None = None) -> TestMachine:
        """One more, or one in the place of one that was killed."""
        node = self._machine(f"node-{len(self.network.machines)}")
        self.nodes.append(node)
        self._start_node(node, size)
        return node

    def kill_node(self, node: TestMachine) -> None:
        """As if its power had been cut but for the network card: every connection of its processes is reset."""
        node.kill()

    def restart_node(self, node: TestMachine) -> None:
        """Have one back that was killed, with the files that it had."""
        self._start_node(node)

    def cut_node(self, node: TestMachine) -> None:
        """As if its cable had been pulled: it goes on, and nobody hears of it."""
        node.cut()

    def mend_node(self, node: TestMachine) -> None:
        node.mend()

    def left_on(self, machine: TestMachine) -> list[str]:
        """What there is of replicas and hosts on a machine."""
        found: list[str] = []
        for own in (machine.folder / CACHE / "replicas").glob("*"):
            for folder, below, names in os.walk(own):  # which takes no offence at what vanishes meanwhile
                found += (str(Path(folder, name).relative_to(own)) for name in (*below, *names))
        return sorted(path for path in found if path != ".lock")

    def pause_head(self) -> None:
        """It answers nobody, and all connections stay."""
        self.head.pause()

    def resume_head(self) -> None:
        self.head.resume()

    def seen(self) -> list[dict[str, Any]]:
        """What the head says of its nodes: `host`, `alive`, `total`."""
        done = self.python(_NODES, self.address)
        found: list[dict[str, Any]] = json.loads(done.splitlines()[-1])
        return found

    def python(self, program: str, *arguments: str, timeout_s: float = 120.0) -> str:
        """What a program prints that runs here, with Ray. `RuntimeError` with its last words if it fails."""
        command: list[str | Path] = [self._python, "-I", "-c", program, *arguments]
        for _ in range(_TRIES):
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
            if done.returncode == 0 or _NO_CLIENT not in done.stderr:
                break
        if done.returncode != 0:
            raise RuntimeError(f"{done.stderr[-3000:]}\n{self._client_words()}")
        return done.stdout

    def stop(self) -> None:
        """Nothing of it is left but files in the scratch folder."""
        self.network.close()
        if self._short:
            shutil.rmtree(self._short, ignore_errors=True)

    def __enter__(self) -> RayCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _client_words(self) -> str:
        """What the head's processes for clients wrote last."""
        logs = sorted((self._short or self.head.folder).glob("**/ray_client_server*.err"))
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-2000:]}" for path in logs)

    def _machine(self, name: str) -> TestMachine:
        return self.network.machine(name, self._shared)

    def _start_node(self, node: TestMachine, size: NodeSize | None = None) -> None:
        self._ray_start(node, f"--address={self.address}", size=size)

    def _ray_start(self, machine: TestMachine, *flags: str, size: NodeSize | None = None) -> None:
        command: Sequence[str | Path] = [
            self._python.with_name("ray"),
            "start",
            f"--node-ip-address={machine.host}",
            *flags,
            *(size or self._size).flags(),
            "--disable-usage-stats",
            "--include-log-monitor=false",
            *([] if self.network.apart else ["--min-worker-port=0", "--max-worker-port=0"]),  # any that are free
            *(f"--{flag}={port}" for flag, port in zip(_AGENT_PORTS, self._agent_ports(), strict=True)),
        ]
        env = _QUIET | {"PATH": f"{self._python.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
        env |= {"RAY_TMPDIR": str(self._short)} if self._short else {}
        done = machine.run(command, env=env, timeout_s=_START_S)
        if done.returncode != 0 and not (_SLOW in done.stderr and self._comes_up(machine)):
            raise RuntimeError(f"Ray did not start on {machine.name}:\n{done.stdout}{done.stderr}")

    def _agent_ports(self) -> Sequence[int]:
        count = len(_AGENT_PORTS)
        return range(52365, 52365 + count) if self.network.apart else free_ports(count)

    def _comes_up(self, machine: TestMachine) -> bool:
        """Whether a node is up after all, though Ray did not wait for it."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
                if any(node["alive"] and node["host"] == machine.host for node in self.seen()):
                    return True
        return False
