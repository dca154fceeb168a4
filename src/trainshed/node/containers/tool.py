"""Containers by Podman or Docker: which of the two this machine has, and the words that each is told.

Nothing in a container is privileged, and of the machine's files it sees what is mounted and no more. It has the
network of the machine, so that addresses mean the same inside and outside, unless it names the ports it is asked by.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

AUTO = "auto"
PODMAN = "podman"
DOCKER = "docker"
KINDS = (PODMAN, DOCKER)

_ASK_S = 60.0
_PIDS = 4096
_OOM_SCORE = 500  #: as replicas without a container have it
_SHM_BYTES = 1 << 30
_SELINUX = "/sys/fs/selinux/enforce"
_INITS = ("catatonit", "tini", "dumb-init")
_INIT_PATHS = ("/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit")
#: Variables that the tools, what they start and those who look for them go by themselves. A container's own value of
#: one is told on the command line, or it would be taken for theirs.
_TOOLS_OWN = {
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "NOTIFY_SOCKET", "REGISTRY_AUTH_FILE", "TRAINSHED_HOST"),
    *("GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK", "GLIBC_TUNABLES"),
}
_TOOLS_OWN_HEADS = ("LD_", "XDG_", "DBUS_", "LISTEN_", "CONTAINER", "_CONTAINERS_", "PODMAN_", "STORAGE_", "DOCKER_")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386", "riscv64": "riscv64"}

_NEITHER = (
    "A container image needs %s to run it, and this machine has %s. Install it, such as with: "
    "sudo apt-get install podman"
)
_SILENT = (
    "A container image needs Podman or Docker to run it, and %s does not work on this machine: %s. Start Docker's "
    "daemon, or install Podman, which needs none."
)


class NoContainerToolError(Exception):
    """There is no program that runs containers. The text is for people."""


class ContainerTool:
    """A program that runs containers here, and which limits it can set: some of "memory", "cpu" and "pids"."""

    __slots__ = ("kind", "limits", "path")

    def __init__(self, kind: str, path: str, limits: tuple[str, ...]) -> None:
        self.kind = kind
        self.path = path
        self.limits = limits

    def words(self) -> dict[str, Any]:
        """For a file; `ContainerTool.of` reads it."""
        return {"kind": self.kind, "path": self.path, "limits": list(self.limits)}

    @classmethod
    def of(cls, words: dict[str, Any]) -> ContainerTool:
        return cls(words["kind"], words["path"], tuple(words["limits"]))


class ContainerSpec:
    """What to run: an image, a command in place of the image's own if there is one, and what surrounds it."""

    __slots__ = (
        *("args", "command", "cpus", "env", "image", "labels", "memory_bytes", "mounts", "name", "ports", "read_only"),
    )

    def __init__(self, name: str, image: str, **given: Any) -> None:
        self.name = name
        self.image = image
        self.command: list[str] = given.get("command") or []
        self.args: list[str] = given.get("args") or []
        self.env: dict[str, str] = given.get("env") or {}
        self.labels: dict[str, str] = given.get("labels") or {}
        self.mounts: list[dict[str, Any]] = given.get("mounts") or []  # source, target, read_only
        self.cpus: float = given.get("cpus") or 0  # 0: as many as there are
        self.memory_bytes: int = given.get("memory_bytes") or 0
        #: pairs of a port of loopback and one of the container, which then has a network of its own
        self.ports: list[tuple[int, int]] = given.get("ports") or []
        self.read_only = bool(given.get("read_only"))  # the image's own files; /tmp can be written to all the same


# -- which there is


def find(wanted: str = AUTO) -> list[ContainerTool]:
    """The programs that work here, the best first; `wanted` is one of them, or AUTO.

    `NoContainerToolError` if none does.
    """
    found = []
    faults = []
    for kind in KINDS if wanted == AUTO else (wanted,):
        path = shutil.which(kind)
        if path is None:
            continue
        done = run_tool([path, "info", "--format", "{{json .}}"])
        if done.returncode == 0:
            found.append(ContainerTool(kind, path, _limits(kind, json.loads(done.stdout))))
        else:
            faults.append((path, last_line(done.stderr)))
    if found:
        return found
    if faults:
        raise NoContainerToolError(_SILENT % faults[0])
    both = ("Podman or Docker", "neither")
    raise NoContainerToolError(_NEITHER % (both if wanted == AUTO else (wanted.capitalize(), "none")))


def _limits(kind: str, info: dict[str, Any]) -> tuple[str, ...]:
    """What a container can be limited in: a user's own Podman can do what the machine hands to users."""
    if kind == DOCKER:
        names = (("memory", "MemoryLimit"), ("cpu", "CpuCfsQuota"), ("pids", "PidsLimit"))
        return tuple(name for name, key in names if info.get(key))
    host = info.get("host", {})
    if not host.get("security", {}).get("rootless"):
        return ("memory", "cpu", "pids")
    return tuple(name for name in ("memory", "cpu", "pids") if name in (host.get("cgroupControllers") or ()))


def run_tool(argv: list[str], timeout_s: float = _ASK_S) -> subprocess.CompletedProcess[str]:
    """Run a command of a tool and take what it says. One that does not come back is one that failed."""
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            errors="backslashreplace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 1, "", "it gave no answer within %g s" % timeout_s)
    except OSError as exc:
        return subprocess.CompletedProcess(argv, 1, "", str(exc.strerror))


def last_line(text: str) -> str:
    """What a program said last, without a full stop."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "it does not say why"


def architecture() -> str:
    """This machine's, in the word that images have for it."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


# -- the words


def run_command(tool: ContainerTool, container: ContainerSpec) -> list[str]:
    """The command that runs the container and stays until it ends: its output, its exit status, its signals.

    To be run with `environment` added to its own: who may list processes sees their words, but not their variables.
    """
    words = [tool.path, "run", "--name", container.name, "--pull", "never", *_network(container)]
    words += ["--cap-drop", "all", "--security-opt", "no-new-privileges", "--stop-timeout", "0"]
    words += ["--log-driver", "none", "--oom-score-adj", str(_OOM_SCORE), *_ulimits()]
    if tool.kind == PODMAN:
        words += ["--http-proxy=false", "--systemd=false"]  # no variables and no manners of the machine's own
    if os.path.exists(_SELINUX):
        words += ["--security-opt", "label=disable"]  # else nothing that is mounted can be read
    words += [*_init(tool), *_sizes(tool, container)]
    if container.read_only:
        words += ["--read-only", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp", "--tmpfs", "/run"]  # noqa: S108 - inside
    for key in sorted(container.labels):
        words += ["--label", "%s=%s" % (key, container.labels[key])]
    for mount in container.mounts:
        words += ["--mount", _mount(mount)]
    for key in sorted(container.env):
        words += ["--env", "%s=%s" % (key, container.env[key]) if _is_tools_own(key) else key]
    if container.command:
        words += ["--entrypoint", container.command[0]]
    return [*words, container.image, *container.command[1:], *container.args]


def environment(container: ContainerSpec) -> dict[str, str]:
    """The container's variables whose values the command of `run_command` takes from its own environment."""
    return {key: value for key, value in container.env.items() if not _is_tools_own(key)}


def _is_tools_own(key: str) -> bool:
    return key in _TOOLS_OWN or key.startswith(_TOOLS_OWN_HEADS)


def _network(container: ContainerSpec) -> list[str]:
    """The machine's network, or one of its own that is reached by the ports it publishes."""
    if not container.ports:
        return ["--network", "host"]
    return [word for port in container.ports for word in ("--publish", "127.0.0.1:%d:%d" % port)]


def _mount(mount: dict[str, Any]) -> str:
    """A folder of the machine for the container to see. A comma would end a name, and a quote keeps it in."""
    fields = ["type=bind", "source=%s" % mount["source"], "target=%s" % mount["target"]]
    fields += ["readonly"] if mount["read_only"] else []
    return ",".join('"%s"' % field.replace('"', '""') if "," in field or '"' in field else field for field in fields)


def _ulimits() -> list[str]:
    """This process's own, said aloud: what the tools would take by themselves may be more than the kernel gives.

    Podman lowers its own limit of processes to the number of pids that there can be.
    """
    with open("/proc/sys/kernel/pid_max") as file:
        pids = int(file.read())
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes = resource.getrlimit(resource.RLIMIT_NPROC)
    soft, hard = (pids if each == resource.RLIM_INFINITY else min(each, pids) for each in processes)
    return ["--ulimit", "nofile=%d:%d" % files, "--ulimit", "nproc=%d:%d" % (soft, hard)]


def _init(tool: ContainerTool) -> list[str]:
    """A first process that passes signals on: the kernel lets a program that is number 1 itself ignore SIGTERM."""
    if tool.kind == DOCKER:
        return ["--init"]  # it brings its own
    found = [path for path in (shutil.which(name) for name in _INITS) if path]
    found += [path for path in _INIT_PATHS if os.path.exists(path)]
    return ["--init", "--init-path", found[0]] if found else []


def _sizes(tool: ContainerTool, container: ContainerSpec) -> list[str]:
    """What of the machine it may have: no more than there is, and no limit that the tool can't set."""
    words = ["--pids-limit", str(_PIDS)] if "pids" in tool.limits else []
    cpus = os.cpu_count() or 1
    if "cpu" in tool.limits and 0 < container.cpus < cpus:
        words += ["--cpus", "%g" % container.cpus]
    memory = container.memory_bytes
    if "memory" in tool.limits and 0 < memory < _memory_bytes():
        words += ["--memory", "%d" % memory]
    shared = min(_SHM_BYTES, memory // 2) if memory else _SHM_BYTES
    return [*words, "--shm-size", "%d" % shared]


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def remove_command(tool: ContainerTool, names: list[str]) -> list[str]:
    """The command that kills containers, if they run, and takes away what is left of them."""
    return [tool.path, "rm", "--force", "--volumes", *names]


def inspect_command(tool: ContainerTool, image: str) -> list[str]:
    """The command that prints what is known of a local image: a list with one object."""
    return [tool.path, "image", "inspect", image]


def pid_command(tool: ContainerTool, name: str) -> list[str]:
    """The command that prints the pid of a container's first process, 0 if it does not run."""
    return [tool.path, "container", "inspect", "--format", "{{.State.Pid}}", name]


def pull_command(tool: ContainerTool, image: str) -> list[str]:
    return [tool.path, "pull", image]


def list_command(tool: ContainerTool, label: str) -> list[str]:
    """The command that prints the ids of all containers with a label `NAME=value`, running or not."""
    return [tool.path, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label=" + label]


# -- at the end


def remove_labelled(tool: ContainerTool, label: str) -> Optional[str]:
    """End and remove all containers with a label. What is in the way if any is left; None if none is."""
    said = ""
    for _ in range(3):
        found = run_tool(list_command(tool, label))
        if found.returncode != 0:
            said = found.stderr
            continue
        names = found.stdout.split()
        if not names:
            return None
        said = run_tool(remove_command(tool, names)).stderr
    return last_line(said)
