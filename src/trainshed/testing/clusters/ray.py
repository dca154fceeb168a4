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

from trainshed.node.process.ports import free_ports
from trainshed.runtimes.uv import find_uv, uv_command
from trainshed.testing.clusters.machines import Network, TestMachine
from trainshed.testing.eventually import eventually

RAY_VERSION = "2.58.0"
PYTHON = "3.11"
CACHE = "home/.cache/trainshed"  #: of a node, below its folder: the environments of jobs
RUNTIMES = f"{CACHE}/runtimes"
_START_TIMEOUT_S = 300.0
_SLOW_START_MESSAGE = (
    "timed out during startup"  #: `ray start` says so after 30 s; on a busy machine the node comes up later
)
#: Fixed ports: otherwise a node waits for its agents to report theirs, and soon gives up.
_AGENT_PORTS = (
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
    "metrics-export-port",
)
#: A client gets this if its process on the head died before it was up. On a busy machine a retry helps.
_CLIENT_FAILED_MESSAGE = "Starting Ray client server failed"
_MAX_ATTEMPTS = 5
_STORE_BYTES = 80 << 20  #: for Ray's own objects; the minimum

#: Start no processes that no test needs.
_RAY_ENVIRONMENT = {
    "RAY_prestart_worker_first_driver": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
}

#: Queries the head without becoming a client, for which the head would start a process.
_NODES = """
import json, sys
from ray._raylet import GcsClient
nodes = GcsClient(address=sys.argv[1]).get_all_node_info(timeout=20).values()
print(json.dumps([{"host": node.node_manager_address, "alive": node.state == 0, "total": dict(node.resources_total)}
                  for node in nodes]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSize:
    """The resources that a node declares, whatever the machine has."""

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
    """Return the Python of an environment with Ray and without Trainshed, as a cluster has it.

    Builds it at the first use.
    """
    folder = cache / f"cluster-ray-{version}"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f"{folder.name}.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, uv = folder / "complete", find_uv()
        install: tuple[Any, ...] = ("pip", "install", "--python", folder)
        steps: list[tuple[Any, ...]] = []
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            steps = [("venv", "--python", PYTHON, folder), (*install, _requirement(version))]
        if not (folder / "bin" / "uv").exists():  # uv installs jobs' packages; nodes can't download it here
            steps.append((*install, "uv"))
        for words in steps:
            subprocess.run(uv_command(uv, *words), check=True, capture_output=True, text=True)
        stamp.touch()
    return folder / "bin" / "python"


def _requirement(version: str) -> str:
    return f"ray[client]=={version}"


class RayCluster:
    """A Ray cluster, started by `start` or `with`. `runtimes` is a folder of environments that every node has too."""

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
        self._lost: list[TestMachine] = []  #: of the nodes, those that were killed or cut off
        self._ports = (6379, 10001) if self.network.isolated else free_ports(2)
        #: for Ray's files if /tmp is shared: the path of a socket must be short, and Ray's are deep
        self._short_tmp = None if self.network.isolated else Path(tempfile.mkdtemp(prefix="ray"))

    @property
    def address(self) -> str:
        """The address that `ray start` prints."""
        return f"{self.head.host}:{self._ports[0]}"

    @property
    def client_address(self) -> str:
        """The address for Ray Client."""
        return f"ray://{self.head.host}:{self._ports[1]}"

    @property
    def host(self) -> str:
        """This machine's address as the nodes see it; a server listens there."""
        return self.network.host

    def settings(self) -> dict[str, Any]:
        """Return the settings of a server here that uses the cluster: names without the prefix."""
        address = self.address if self.network.isolated else self.client_address
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
        """Start the head. After a kill it is a new, empty cluster."""
        flags = [f"--port={self._ports[0]}", f"--ray-client-server-port={self._ports[1]}"]
        flags += ["--include-dashboard=false", "--no-monitor"]  # nobody looks at it, and it does not grow
        self._ray_start(self.head, "--head", *flags)

    def add_node(self, size: NodeSize | None = None) -> TestMachine:
        """Add a node, or replace one that was killed."""
        node = self._machine(f"node-{len(self.network.machines)}")
        self.nodes.append(node)
        self._start_node(node, size)
        return node

    def kill_node(self, node: TestMachine) -> None:
        """Kill all processes of a node. Their connections are reset."""
        self._lost.append(node)
        node.kill()

    def restart_node(self, node: TestMachine) -> None:
        """Start a killed node again, with its files."""
        self._start_node(node)
        self._lost.remove(node)

    def restore(self) -> None:
        """Start each node again that was killed or cut off, and wait until the head sees all of them once."""
        if not self._lost:
            return
        for node in self._lost.copy():
            node.mend()  # a test that failed may have left it cut off
            node.kill()
            self.restart_node(node)
        hosts = sorted(machine.host for machine in (self.head, *self.nodes))
        eventually(
            lambda: sorted(state["host"] for state in self.node_states() if state["alive"]),
            lambda alive: alive == hosts,
            within_s=_START_TIMEOUT_S,
        )

    def cut_node(self, node: TestMachine) -> None:
        """Disconnect a node. It goes on, and nothing reaches it."""
        self._lost.append(node)
        node.cut()

    def mend_node(self, node: TestMachine) -> None:
        node.mend()

    def workspace_files(self, machine: TestMachine) -> list[str]:
        """List the workspace files of replicas and hosts on a machine."""
        paths: list[str] = []
        for root in (machine.folder / CACHE / "replicas").glob("*"):
            for folder, below, names in os.walk(root):  # tolerates files that vanish meanwhile
                paths += (str(Path(folder, name).relative_to(root)) for name in (*below, *names))
        return sorted(path for path in paths if path != ".lock")

    def pause_head(self) -> None:
        """Suspend the head. It responds to nothing, and all connections stay open."""
        self.head.pause()

    def resume_head(self) -> None:
        self.head.resume()

    def node_states(self) -> list[dict[str, Any]]:
        """Return the head's list of nodes: `host`, `alive`, `total`."""
        output = self.python(_NODES, self.address)
        nodes: list[dict[str, Any]] = json.loads(output.splitlines()[-1])
        return nodes

    def python(self, program: str, *arguments: str, timeout_s: float = 120.0) -> str:
        """Run a program here, with Ray.

        Returns its output. Raises `RuntimeError`, with the end of its stderr, if it fails.
        """
        command: list[str | Path] = [self._python, "-I", "-c", program, *arguments]
        for _ in range(_MAX_ATTEMPTS):
            result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
            if result.returncode == 0 or _CLIENT_FAILED_MESSAGE not in result.stderr:
                break
        if result.returncode != 0:
            raise RuntimeError(f"{result.stderr[-3000:]}\n{self._client_logs()}")
        return result.stdout

    def stop(self) -> None:
        """Stop the cluster. Only files in the scratch folder stay."""
        self.network.close()
        if self._short_tmp:
            shutil.rmtree(self._short_tmp, ignore_errors=True)

    def __enter__(self) -> RayCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _client_logs(self) -> str:
        """Return the end of the logs of the head's client processes."""
        logs = sorted((self._short_tmp or self.head.folder).glob("**/ray_client_server*.err"))
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
            *([] if self.network.isolated else ["--min-worker-port=0", "--max-worker-port=0"]),  # any free ones
            *(f"--{flag}={port}" for flag, port in zip(_AGENT_PORTS, self._agent_ports(), strict=True)),
        ]
        env = _RAY_ENVIRONMENT | {"PATH": f"{self._python.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
        env |= {"RAY_TMPDIR": str(self._short_tmp)} if self._short_tmp else {}
        for _ in range(_MAX_ATTEMPTS):
            if machine is self.head:  # or Ray takes the old one for alive
                temporary = self._short_tmp or self.head.folder
                (temporary / "ray" / "ray_current_cluster").unlink(missing_ok=True)
            result = machine.run(command, env=env, timeout_s=_START_TIMEOUT_S)
            slow = result.returncode != 0 and _SLOW_START_MESSAGE in result.stderr
            if result.returncode == 0 or (slow and self._comes_up(machine)):
                return
            if not slow:
                break
            machine.kill()
        raise RuntimeError(f"Ray did not start on {machine.name}:\n{result.stdout}{result.stderr}")

    def _agent_ports(self) -> Sequence[int]:
        count = len(_AGENT_PORTS)
        return range(52365, 52365 + count) if self.network.isolated else free_ports(count)

    def _comes_up(self, machine: TestMachine) -> bool:
        """Return whether a node comes up after `ray start` stopped waiting for it.

        On a busy machine its raylet may abort instead: it gives its agents 15 s to report their ports.
        """
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline and any(map(_is_raylet, machine.pids())):
            with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
                if any(node["alive"] and node["host"] == machine.host for node in self.node_states()):
                    return True
        return False


def _is_raylet(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(b"/raylet")
    except OSError:  # it has ended
        return False
