"""A real Slurm cluster for tests: its controller on this machine, and nodes on machines of their own.

with SlurmCluster(scratch) as cluster:
    subprocess.run(["sbatch", "job.sh"], env=os.environ | cluster.env)

Needs Debian's packages slurmctld and slurmd, and root. Nothing below /etc is read or written, and no service is used.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
from pathlib import Path

from trainshed.node.process.ports import free_ports
from trainshed.testing.clusters.machines import Network
from trainshed.testing.eventually import eventually

START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 30.0

#: Nodes declare what the test asks for, whatever the machine has. Paths below /tmp are each node's own.
_CONFIG = """
ClusterName=trainshed
SlurmctldHost={controller}({host})
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={socket}
CredType=cred/munge
StateSaveLocation={state}
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile=/tmp/slurmd.pid
SlurmdSpoolDir=/tmp/slurmd
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_NODE = "NodeName={name} NodeAddr={host} CPUs={cpus} RealMemory={memory_mb} State=UNKNOWN\n"

#: `$1` is the machine's name and `$2` its /etc/hosts; the rest is the command.
_NAMED = 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'


class SlurmCluster:
    """A Slurm cluster, started by `with`. Its nodes are called node1, node2, ...

    `scratch` must not be below /tmp, which they share.
    """

    def __init__(self, scratch: Path, *, nodes: int = 3, cpus: int = 16, memory_mb: int = 64 << 10) -> None:
        self._folder = scratch / "slurm"
        (self._folder / "state").mkdir(parents=True)
        self.network = Network(scratch, namespaces=True)
        self.nodes = [self.network.machine(f"node{number + 1}") for number in range(nodes)]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._config = self._folder / "slurm.conf"
        self._write(cpus, memory_mb)

    @property
    def env(self) -> dict[str, str]:
        """The variables that point Slurm's commands to this cluster."""
        return {"SLURM_CONF": str(self._config)}

    def run(self, *words: str) -> str:
        """Run a command of Slurm, which must succeed. Returns its output."""
        result = subprocess.run(
            words, env=os.environ | self.env, capture_output=True, text=True, timeout=START_TIMEOUT_S
        )
        if result.returncode != 0:
            raise RuntimeError(f"`{' '.join(words)}` failed: {result.stderr.strip()}")
        return result.stdout

    def jobs(self) -> list[str]:
        """List the names of jobs that are pending, running or completing."""
        return self.run("squeue", "--noheader", "--format=%j").split()

    def processes(self) -> list[str]:
        """List the command lines of all processes on nodes, without Slurm's own."""
        lines = [_command_line(pid) for node in self.nodes for pid in node.pids()]
        return [line for line in lines if line and not Path(line.split()[0].rstrip(":")).name.startswith("slurm")]

    def __enter__(self) -> SlurmCluster:
        try:
            self._start("munged", *self._munge_flags())
            eventually((self._folder / "munge.sock").exists, within_s=START_TIMEOUT_S)
            self._start("slurmctld", "-D", "-f", str(self._config))
            for node in self.nodes:
                (node.folder / "slurmd").mkdir()
                named = ["unshare", "--uts", "sh", "-c", _NAMED, "sh", node.name, str(self._folder / "hosts")]
                node.start([*named, "slurmd", "-D", "-f", str(self._config)], self._folder / f"{node.name}.log")
            eventually(self._idle, lambda idle: idle == len(self.nodes), within_s=START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the cluster. Only files in the scratch folder stay."""
        self.network.close()
        for process in reversed(self._processes):
            process.terminate()
            process.wait(_STOP_TIMEOUT_S)
        self._processes.clear()

    def _start(self, *words: str) -> None:
        with open(self._folder / f"{words[0]}.log", "ab") as log:
            self._processes.append(subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True))

    def _munge_flags(self) -> list[str]:
        key = self._folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munge.pid", "seed-file": "munge.seed"}
        # only this user can access the folder, which munged takes for a mistake
        return ["--foreground", "--force", *(f"--{flag}={self._folder / name}" for flag, name in files.items())]

    def _write(self, cpus: int, memory_mb: int) -> None:
        config = _CONFIG.format(
            controller=socket.gethostname().partition(".")[0],
            host=self.network.host,
            port=free_ports(1)[0],
            socket=self._folder / "munge.sock",
            state=self._folder / "state",
        )
        lines = [_NODE.format(name=node.name, host=node.host, cpus=cpus, memory_mb=memory_mb) for node in self.nodes]
        self._config.write_text(config + "".join(lines))
        # unused, but a node does not start if the default plugin is missing
        self._config.with_name("cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        names = ["127.0.0.1 localhost", *(f"{node.host} {node.name}" for node in self.nodes)]
        (self._folder / "hosts").write_text("\n".join(names) + "\n")

    def _idle(self) -> int:
        exited = [process.args for process in self._processes if process.poll() is not None]
        if exited:
            raise RuntimeError(f"{exited} ended; see the logs in {self._folder}.")
        try:
            return self.run("sinfo", "--noheader", "--Node", "--format=%t").split().count("idle")
        except RuntimeError:
            return 0  # the controller is not up yet


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
