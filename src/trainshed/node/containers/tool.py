"""Runs containers with Podman or Docker: finds the tool of this machine, and builds its command lines.

A container is unprivileged and sees only the files that are mounted. It has the machine's network, so that addresses
mean the same inside and outside, unless it publishes ports.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess

from ..failure import CONTAINER_TOOL_MISSING, NodeFailureError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

AUTO = "auto"
PODMAN = "podman"
DOCKER = "docker"
KINDS = (PODMAN, DOCKER)

_TOOL_TIMEOUT_S = 60.0
_MAX_PIDS = 4096
_OOM_SCORE_ADJ = 500  #: the same as for replicas without a container
_SHM_BYTES = 1 << 30
_SELINUX_FILE = "/sys/fs/selinux/enforce"
_INITS = ("catatonit", "tini", "dumb-init")
_INIT_PATHS = ("/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit")
#: Variables that configure the tools and their children. A container's own value of one goes on the command line, or
#: else it would configure the tool.
_TOOL_VARIABLES = {
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "NOTIFY_SOCKET", "REGISTRY_AUTH_FILE", "TRAINSHED_HOST"),
    *("GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK", "GLIBC_TUNABLES"),
}
_TOOL_VARIABLE_PREFIXES = (
    "LD_",
    "XDG_",
    "DBUS_",
    "LISTEN_",
    "CONTAINER",
    "_CONTAINERS_",
    "PODMAN_",
    "STORAGE_",
    "DOCKER_",
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386", "riscv64": "riscv64"}

_NO_TOOL = (
    "A container image needs %s to run it, and this machine has %s. Install it, such as with: "
    "sudo apt-get install podman"
)
_BROKEN_TOOL = (
    "A container image needs Podman or Docker to run it, and %s does not work on this machine: %s. Start Docker's "
    "daemon, or install Podman, which needs none."
)


class NoContainerToolError(NodeFailureError):
    """This machine has no tool that runs containers."""


class ContainerTool:
    """A program that runs containers here, and the limits it can set: some of "memory", "cpu" and "pids"."""

    __slots__ = ("kind", "limits", "path")

    def __init__(self, kind: str, path: str, limits: tuple[str, ...]) -> None:
        self.kind = kind
        self.path = path
        self.limits = limits

    def words(self) -> dict[str, Any]:
        """As JSON, for `ContainerTool.of`."""
        return {"kind": self.kind, "path": self.path, "limits": list(self.limits)}

    @classmethod
    def of(cls, fields: dict[str, Any]) -> ContainerTool:
        return cls(fields["kind"], fields["path"], tuple(fields["limits"]))


class ContainerSpec:
    """A container to run: an image, a command that replaces the image's own if given, and its environment."""

    __slots__ = (
        *("args", "command", "cpus", "env", "image", "labels", "memory_bytes", "mounts", "name", "ports", "read_only"),
    )

    def __init__(self, name: str, image: str, **options: Any) -> None:
        self.name = name
        self.image = image
        self.command: list[str] = options.get("command") or []
        self.args: list[str] = options.get("args") or []
        self.env: dict[str, str] = options.get("env") or {}
        self.labels: dict[str, str] = options.get("labels") or {}
        self.mounts: list[dict[str, Any]] = options.get("mounts") or []  # source, target, read_only
        self.cpus: float = options.get("cpus") or 0  # 0: no limit
        self.memory_bytes: int = options.get("memory_bytes") or 0
        #: pairs of a loopback port and a container port; the container then has its own network
        self.ports: list[tuple[int, int]] = options.get("ports") or []
        self.read_only = bool(options.get("read_only"))  # the image's files; /tmp stays writable


# -- finding the tool


def find(kind_wanted: str = AUTO) -> list[ContainerTool]:
    """The tools that work here, the best first. `kind_wanted` is one of KINDS, or AUTO.

    Raises `NoContainerToolError` if none does.
    """
    tools = []
    failures = []
    for kind in KINDS if kind_wanted == AUTO else (kind_wanted,):
        path = shutil.which(kind)
        if path is None:
            continue
        process = run_tool([path, "info", "--format", "{{json .}}"])
        if process.returncode == 0:
            tools.append(ContainerTool(kind, path, _limits(kind, json.loads(process.stdout))))
        else:
            failures.append((path, last_line(process.stderr)))
    if tools:
        return tools
    if failures:
        path, reason = failures[0]
        raise NoContainerToolError(_BROKEN_TOOL % failures[0], CONTAINER_TOOL_MISSING, broken=path, detail=reason)
    wanted, has = ("Podman or Docker", "neither") if kind_wanted == AUTO else (kind_wanted.capitalize(), "none")
    raise NoContainerToolError(_NO_TOOL % (wanted, has), CONTAINER_TOOL_MISSING, wanted=wanted)


def _limits(kind: str, info: dict[str, Any]) -> tuple[str, ...]:
    """The limits that the tool can set. Rootless Podman has the controllers that the machine delegates to users."""
    if kind == DOCKER:
        names = (("memory", "MemoryLimit"), ("cpu", "CpuCfsQuota"), ("pids", "PidsLimit"))
        return tuple(name for name, key in names if info.get(key))
    host = info.get("host", {})
    if not host.get("security", {}).get("rootless"):
        return ("memory", "cpu", "pids")
    return tuple(name for name in ("memory", "cpu", "pids") if name in (host.get("cgroupControllers") or ()))


def run_tool(argv: list[str], timeout_s: float = _TOOL_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run a tool and capture its output. A timeout counts as a failure."""
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


def last_line(output: str) -> str:
    """The last line of a tool's output, without a full stop."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "it does not say why"


def architecture() -> str:
    """This machine's architecture, as images name it."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


# -- command lines


def run_command(tool: ContainerTool, container: ContainerSpec) -> list[str]:
    """The command that runs the container in the foreground: with its output, its exit status, its signals.

    Run it with `environment` added. Other users can list the arguments of processes, but not their variables.
    """
    argv = [tool.path, "run", "--name", container.name, "--pull", "never", *_network(container)]
    argv += ["--cap-drop", "all", "--security-opt", "no-new-privileges", "--stop-timeout", "0"]
    argv += ["--log-driver", "none", "--oom-score-adj", str(_OOM_SCORE_ADJ), *_ulimits()]
    if tool.kind == PODMAN:
        argv += ["--http-proxy=false", "--systemd=false"]  # nothing from the machine's configuration
    if os.path.exists(_SELINUX_FILE):
        argv += ["--security-opt", "label=disable"]  # else mounted files can't be read
    argv += [*_init(tool), *_resources(tool, container)]
    if container.read_only:
        argv += ["--read-only", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp", "--tmpfs", "/run"]  # noqa: S108 - inside
    for key in sorted(container.labels):
        argv += ["--label", "%s=%s" % (key, container.labels[key])]
    for mount in container.mounts:
        argv += ["--mount", _mount(mount)]
    for key in sorted(container.env):
        argv += ["--env", "%s=%s" % (key, container.env[key]) if _is_tool_variable(key) else key]
    if container.command:
        argv += ["--entrypoint", container.command[0]]
    return [*argv, container.image, *container.command[1:], *container.args]


def environment(container: ContainerSpec) -> dict[str, str]:
    """The variables whose values the `run_command` process passes from its own environment."""
    return {key: value for key, value in container.env.items() if not _is_tool_variable(key)}


def _is_tool_variable(key: str) -> bool:
    return key in _TOOL_VARIABLES or key.startswith(_TOOL_VARIABLE_PREFIXES)


def _network(container: ContainerSpec) -> list[str]:
    """The machine's network, or a separate one with published ports."""
    if not container.ports:
        return ["--network", "host"]
    return [argument for port in container.ports for argument in ("--publish", "127.0.0.1:%d:%d" % port)]


def _mount(mount: dict[str, Any]) -> str:
    """A bind mount. Quotes protect a comma, which would otherwise end a name."""
    fields = ["type=bind", "source=%s" % mount["source"], "target=%s" % mount["target"]]
    fields += ["readonly"] if mount["read_only"] else []
    return ",".join('"%s"' % field.replace('"', '""') if "," in field or '"' in field else field for field in fields)


def _ulimits() -> list[str]:
    """This process's own limits, explicitly: the tools' defaults may exceed what the kernel allows.

    Podman lowers its own limit of processes to the kernel's maximum of pids.
    """
    with open("/proc/sys/kernel/pid_max") as file:
        pids = int(file.read())
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes = resource.getrlimit(resource.RLIMIT_NPROC)
    soft, hard = (pids if each == resource.RLIM_INFINITY else min(each, pids) for each in processes)
    return ["--ulimit", "nofile=%d:%d" % files, "--ulimit", "nproc=%d:%d" % (soft, hard)]


def _init(tool: ContainerTool) -> list[str]:
    """An init process that forwards signals: the kernel lets a program with pid 1 ignore SIGTERM."""
    if tool.kind == DOCKER:
        return ["--init"]  # Docker ships its own
    paths = [path for path in (shutil.which(name) for name in _INITS) if path]
    paths += [path for path in _INIT_PATHS if os.path.exists(path)]
    return ["--init", "--init-path", paths[0]] if paths else []


def _resources(tool: ContainerTool, container: ContainerSpec) -> list[str]:
    """Resource limits: no more than the machine has, and only those that the tool can set."""
    argv = ["--pids-limit", str(_MAX_PIDS)] if "pids" in tool.limits else []
    cpus = os.cpu_count() or 1
    if "cpu" in tool.limits and 0 < container.cpus < cpus:
        argv += ["--cpus", "%g" % container.cpus]
    memory = container.memory_bytes
    if "memory" in tool.limits and 0 < memory < _memory_bytes():
        argv += ["--memory", "%d" % memory]
    shared = min(_SHM_BYTES, memory // 2) if memory else _SHM_BYTES
    return [*argv, "--shm-size", "%d" % shared]


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def remove_command(tool: ContainerTool, names: list[str]) -> list[str]:
    """The command that kills and removes containers with their volumes."""
    return [tool.path, "rm", "--force", "--volumes", *names]


def inspect_command(tool: ContainerTool, image: str) -> list[str]:
    """The command that prints a local image's details: a list with one object."""
    return [tool.path, "image", "inspect", image]


def pid_command(tool: ContainerTool, name: str) -> list[str]:
    """The command that prints the pid of a container's first process, or 0 if it does not run."""
    return [tool.path, "container", "inspect", "--format", "{{.State.Pid}}", name]


def pull_command(tool: ContainerTool, image: str) -> list[str]:
    return [tool.path, "pull", image]


def list_command(tool: ContainerTool, label: str) -> list[str]:
    """The command that prints the ids of all containers with a label `NAME=value`, running or not."""
    return [tool.path, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label=" + label]


# -- removal


def remove_labelled(tool: ContainerTool, label: str) -> Optional[str]:
    """Kill and remove all containers with a label. Returns None if none is left, or else the reason."""
    error = ""
    for _ in range(3):
        listing = run_tool(list_command(tool, label))
        if listing.returncode != 0:
            error = listing.stderr
            continue
        names = listing.stdout.split()
        if not names:
            return None
        error = run_tool(remove_command(tool, names)).stderr
    return last_line(error)
