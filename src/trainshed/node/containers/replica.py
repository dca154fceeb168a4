"""A replica in a container. The process here stands for it: what it is sent goes on to the container, what the
container prints is its output, and it ends as the container ends.

All that Podman starts is held on to, as below every supervisor. Docker's containers are not below anyone here, so these
are ended by name.
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

from ..process import tree
from ..process.tree import signal_pipe
from . import tool as container_tool
from .images import FOUND
from .tool import ContainerSpec, ContainerTool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

LABEL = "trainshed.attempt"
PID = ".pid"  #: after a replica's name: a file with the pid of its container's first process, if that is a daemon's
_LOOK_S = 0.25
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_KILLED = 128  #: plus the number of the signal: how a container's status tells of one
#: Those that a process can die of. Others are passed on as the status that they came as.
_DEADLY = {
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE),
    *(signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE, signal.SIGALRM, signal.SIGTERM),
}


def attempt_key(folder: str) -> str:
    """What the containers of an attempt have in common, and no others on this machine."""
    return hashlib.sha256(os.path.realpath(folder).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def container(folder: str, spec: dict[str, Any], replica: dict[str, Any], images: dict[str, str]) -> ContainerSpec:
    """The container of one replica."""
    given = replica["container"]
    return ContainerSpec(
        "trainshed-%s-%s" % (attempt_key(folder), replica["name"]),
        images[given["image"]],
        command=given["command"],
        args=given["args"],
        env={**spec["env"], **replica["env"], "PYTHONUNBUFFERED": "1"},
        labels={
            LABEL: attempt_key(folder),
            "trainshed.job": "%s/%s/%s" % (spec["project"], spec["job"], spec["attempt"]),
            "trainshed.replica": replica["name"],
        },
        mounts=spec["containers"]["mounts"],
        cpus=given["cpus"],
        memory_bytes=given["memory_bytes"],
        read_only=spec["containers"]["read_only"],
    )


def write_spec(folder: str, order: dict[str, Any], fill: Callable[[str], str]) -> None:
    """Put the spec of one replica, which a keeper keeps on a machine of a cluster, into its folder there.

    `fill` puts in what only that machine knows.
    """
    given = dict(order["container"], args=[fill(arg) for arg in order["container"]["args"]])
    mounts = [
        dict(each, source=fill(each["source"]), target=fill(each["target"])) for each in order["containers"]["mounts"]
    ]
    env = {key: fill(value) for key, value in order["env"].items()}
    project, job, attempt = order["gang"].split("/")[-3:]
    spec = {
        "project": project,
        "job": job,
        "attempt": attempt,
        "env": {},
        "replicas": [{"name": order["replica"], "env": env, "container": given}],
        "containers": dict(order["containers"], mounts=mounts),
    }
    with open(os.path.join(folder, "spec.json"), "w") as out:
        json.dump(spec, out)


def run_replica(folder: str, name: str) -> int:
    """Run the container of the replica `name` to its end. Its exit status; if it was killed, this process is too."""
    tree.become_subreaper()
    signals = signal_pipe((signal.SIGCHLD, *_PASSED_ON))
    with open(os.path.join(folder, "spec.json"), "rb") as file:
        spec = json.loads(file.read().decode())
    replica = next(each for each in spec["replicas"] if each["name"] == name)
    tool, images = _found(folder)
    box = container(folder, spec, replica, images)
    container_tool.run_tool(
        container_tool.remove_command(tool, [box.name])
    )  # what a copy before this one may have left
    pid_file = os.path.join(folder, name + PID)
    watch = None if tool.kind == container_tool.PODMAN else lambda: _tell_pid(tool, box.name, pid_file)
    status = _run(
        container_tool.run_command(tool, box), {**os.environ, **container_tool.environment(box)}, signals, watch
    )
    container_tool.run_tool(container_tool.remove_command(tool, [box.name]))
    if os.path.exists(pid_file):
        os.unlink(pid_file)
    tree.kill_descendants()
    return _end_alike(status)


def _tell_pid(tool: ContainerTool, name: str, path: str) -> bool:
    """Write down the first process of a daemon's container, which is not below this one. False: it is not there yet."""
    said = container_tool.run_tool(container_tool.pid_command(tool, name)).stdout.strip()
    if not said.isdigit() or said == "0":
        return False
    with open(path + ".new", "w") as out:
        out.write(said)
    os.rename(path + ".new", path)
    return True


def _found(folder: str) -> tuple[ContainerTool, dict[str, str]]:
    with open(os.path.join(folder, FOUND), "rb") as file:
        found = json.loads(file.read().decode())
    return ContainerTool.of(found["tool"]), found["images"]


def _run(argv: list[str], env: dict[str, str], signals: int, watch: Optional[Callable[[], bool]]) -> int:
    """The wait status of `argv`, which is sent what this process is sent. `watch` is called until it is content."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=env)
    ended: dict[int, int] = {}
    while process.pid not in ended:
        if not select.select([signals], [], [], _LOOK_S if watch else None)[0]:
            watch = None if watch and watch() else watch
            continue
        for number in os.read(signals, 512):
            if number in _PASSED_ON:
                tree.send_signal(process.pid, number)
        tree.reap(ended.__setitem__)
    status = ended[process.pid]
    process.returncode = status  # it was collected here
    return status


def _end_alike(status: int) -> int:
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else _KILLED + os.WTERMSIG(status)
    number = code - _KILLED
    if number in _DEADLY:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return code


def remove_orphaned_containers(order: dict[str, Any]) -> None:
    """End the containers of replicas on this node whose keepers were killed, so that nobody was there to do it."""
    folders = ["*"] * len([*order["gang"].split("/"), order["replica"], order["incarnation"]])
    for path in glob.glob(os.path.join(glob.escape(order["cache"]), "replicas", *folders, FOUND)):
        stray = os.path.dirname(path)
        lock = os.path.dirname(stray) + ".lock"
        with open(lock, "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if lock != order["lock"]:  # which our own keeper holds
                    continue
            left = remove_containers(stray)
        if left is not None:
            sys.stderr.write("A container is left of %s, and can't be removed: %s.\n" % (stray, left))


def remove_containers(folder: str) -> Optional[str]:
    """End and remove what is left of the attempt's containers. Why that is not possible; None if nothing is left."""
    try:
        tool, _ = _found(folder)
    except FileNotFoundError:
        return None  # none was ever started, or all of them are gone
    left = container_tool.remove_labelled(tool, "%s=%s" % (LABEL, attempt_key(folder)))
    if left is None:
        os.unlink(os.path.join(folder, FOUND))
    return left
