"""Runs a replica in a container. This process represents it: forwards signals and output, and exits with
the container's exit status.

Podman's processes are descendants of the supervisor and die with it. Docker's containers are not,
so they are removed by name.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import resource
import select
import signal
import subprocess
import sys

from ..files import write_file
from ..process import tree
from ..process.tree import signal_pipe
from . import tool as container_tool
from .images import IMAGES_FILE
from .tool import ContainerSpec, ContainerTool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

LABEL = "trainshed.attempt"
PID_SUFFIX = (
    ".pid"  #: after a replica's name: a file with the pid of its container's first process, if a daemon runs it
)
_POLL_INTERVAL_S = 0.25
_FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_SIGNAL_EXIT_BASE = 128  #: plus the signal number: the exit status of a killed container
#: Signals that kill a process. Others are reported as the exit status.
_FATAL_SIGNALS = {
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE),
    *(signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE, signal.SIGALRM, signal.SIGTERM),
}


def attempt_key(folder: str) -> str:
    """Identifies the containers of an attempt on this machine."""
    return hashlib.sha256(os.path.realpath(folder).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def container(folder: str, spec: dict[str, Any], replica: dict[str, Any], images: dict[str, str]) -> ContainerSpec:
    """The container spec of one replica."""
    settings = replica["container"]
    return ContainerSpec(
        "trainshed-%s-%s" % (attempt_key(folder), replica["name"]),
        images[settings["image"]],
        command=settings["command"],
        args=settings["args"],
        env={**spec["env"], **replica["env"], "PYTHONUNBUFFERED": "1", **_secrets(spec)},
        labels={
            LABEL: attempt_key(folder),
            "trainshed.job": "%s/%s/%s" % (spec["project"], spec["job"], spec["attempt"]),
            "trainshed.replica": replica["name"],
        },
        mounts=spec["containers"]["mounts"],
        cpus=settings["cpus"],
        memory_bytes=settings["memory_bytes"],
        read_only=spec["containers"]["read_only"],
    )


def _secrets(spec: dict[str, Any]) -> dict[str, str]:
    """Variables that are in no file: the supervisor gave them to this process."""
    names = spec["containers"].get("secret_variables", ())
    return {name: os.environ[name] for name in names if name in os.environ}


def write_spec(folder: str, agent_spec: dict[str, Any], substitute: Callable[[str], str]) -> None:
    """Write the spec of a remote replica into its workspace.

    `substitute` replaces placeholders.
    """
    settings = dict(agent_spec["container"], args=[substitute(arg) for arg in agent_spec["container"]["args"]])
    mounts = [
        dict(mount, source=substitute(mount["source"]), target=substitute(mount["target"]))
        for mount in agent_spec["containers"]["mounts"]
    ]
    env = {key: substitute(value) for key, value in agent_spec["env"].items()}
    project, job, attempt = agent_spec["gang"].split("/")[-3:]
    spec = {
        "project": project,
        "job": job,
        "attempt": attempt,
        "env": {},
        "replicas": [{"name": agent_spec["replica"], "env": env, "container": settings}],
        "containers": dict(agent_spec["containers"], mounts=mounts),
    }
    with open(os.path.join(folder, "spec.json"), "w") as out:
        json.dump(spec, out)


def run_replica(folder: str, name: str) -> int:
    """Run the container of the replica `name`. Returns its exit status; if a signal killed it,
    this process dies by the same."""
    tree.become_subreaper()
    signals = signal_pipe((signal.SIGCHLD, *_FORWARDED_SIGNALS))
    with open(os.path.join(folder, "spec.json"), "rb") as file:
        spec = json.loads(file.read().decode())
    replica = next(each for each in spec["replicas"] if each["name"] == name)
    tool, images = _read_images(folder)
    container_spec = container(folder, spec, replica, images)
    container_tool.run_tool(container_tool.remove_command(tool, [container_spec.name]))  # of an earlier incarnation
    pid_file = os.path.join(folder, name + PID_SUFFIX)
    poll_pid = None if tool.kind == container_tool.PODMAN else lambda: _write_pid(tool, container_spec.name, pid_file)
    status = _run(
        container_tool.run_command(tool, container_spec),
        {**os.environ, **container_tool.environment(container_spec)},
        signals,
        poll_pid,
    )
    container_tool.run_tool(container_tool.remove_command(tool, [container_spec.name]))
    if os.path.exists(pid_file):
        os.unlink(pid_file)
    tree.kill_descendants()
    return _exit_like(status)


def _write_pid(tool: ContainerTool, name: str, path: str) -> bool:
    """Write the pid of a daemon's container, which is no descendant of this process.
    Returns False if it has none yet."""
    pid = container_tool.run_tool(container_tool.pid_command(tool, name)).stdout.strip()
    if not pid.isdigit() or pid == "0":
        return False
    write_file(path, pid.encode())
    return True


def _read_images(folder: str) -> tuple[ContainerTool, dict[str, str]]:
    with open(os.path.join(folder, IMAGES_FILE), "rb") as file:
        record = json.loads(file.read().decode())
    return ContainerTool.of(record["tool"]), record["images"]


def _run(argv: list[str], env: dict[str, str], signals: int, poll: Optional[Callable[[], bool]]) -> int:
    """Run `argv` and forward signals to it. Returns its wait status. `poll` is called until it returns True."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=env)
    statuses: dict[int, int] = {}
    while process.pid not in statuses:
        if not select.select([signals], [], [], _POLL_INTERVAL_S if poll else None)[0]:
            poll = None if poll and poll() else poll
            continue
        for number in os.read(signals, 512):
            if number in _FORWARDED_SIGNALS:
                tree.send_signal(process.pid, number)
        tree.reap(statuses.__setitem__)
    status = statuses[process.pid]
    process.returncode = status  # reaped here
    return status


def _exit_like(status: int) -> int:
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else _SIGNAL_EXIT_BASE + os.WTERMSIG(status)
    number = code - _SIGNAL_EXIT_BASE
    if number in _FATAL_SIGNALS:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return code


def remove_orphaned_containers(agent_spec: dict[str, Any]) -> None:
    """Remove the containers of replicas on this node whose agents were killed."""
    folders = ["*"] * len([*agent_spec["gang"].split("/"), agent_spec["replica"], agent_spec["incarnation"]])
    for path in glob.glob(os.path.join(glob.escape(agent_spec["cache"]), "replicas", *folders, IMAGES_FILE)):
        workspace = os.path.dirname(path)
        lock = os.path.dirname(workspace) + ".lock"
        with open(lock, "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if lock != agent_spec["lock"]:  # which this replica's agent holds
                    continue
            reason = remove_containers(workspace)
        if reason is not None:
            sys.stderr.write("A container is left of %s, and can't be removed: %s.\n" % (workspace, reason))


def remove_containers(folder: str) -> Optional[str]:
    """Kill and remove the attempt's containers. Returns None if none is left, or else the reason."""
    try:
        tool, _ = _read_images(folder)
    except FileNotFoundError:
        return None  # none was ever started, or all are gone
    reason = container_tool.remove_labelled(tool, "%s=%s" % (LABEL, attempt_key(folder)))
    if reason is None:
        os.unlink(os.path.join(folder, IMAGES_FILE))
    return reason
