"""Starting one process of a job: in a process group of its own, its output to pipes, dead as soon as its supervisor is.

In a supervisor that was forked from a warm process, a replica is a fork that runs its module itself; everywhere else,
and wherever that could make a difference to the module, it is a new Python.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys

from .tree import set_parent_death_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

_OOM_SCORE = 500  #: added, so that the kernel takes a replica before it takes the server
_RESET = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE, signal.SIGXFSZ)

#: Set in the warm process, and so in its forks: what runs modules there (`warm._Ahead`).
warm_runner: Optional[Any] = None
#: Set in a supervisor that was started cold: why, if there is anything to say about it.
cold_reason = ""


class SpawnedProcess:
    """A process and the ends of its output pipes, which do not block. `note` is a line for its log, or empty."""

    __slots__ = ("note", "pid", "stderr", "stdout")

    def __init__(self, pid: int, stdout: int, stderr: int, note: str = "") -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.note = note


def spawn(argv: list[str], env: dict[str, str], folder: str, be: Optional[Callable[[], int]] = None) -> SpawnedProcess:
    """Start `argv` in `folder`. `OSError` if it can't be; the program itself is then not running.

    With `be`, which gives its exit status, it is a fork that runs this: a program of ours needs no new Python.
    """
    misfit = warm_runner.misfit(argv, env, folder) if warm_runner is not None else cold_reason
    out_r, out_w = os.pipe()
    err_r, err_w = os.pipe()
    fault_r, fault_w = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork()
        if pid == 0:
            forked = _Own(be) if be else warm_runner if warm_runner is not None and not misfit else None
            _become(argv, env, folder, (out_w, err_w, fault_w), (parent, forked))
    except OSError:
        for fd in (out_r, err_r, fault_r):
            os.close(fd)
        raise
    finally:
        for fd in (out_w, err_w, fault_w):
            os.close(fd)
    fault = os.read(fault_r, 64)  # closed by exec, or when the fork is ready to run
    os.close(fault_r)
    if fault:
        os.waitpid(pid, 0)
        os.close(out_r)
        os.close(err_r)
        raise OSError(int(fault), os.strerror(int(fault)))
    os.set_blocking(out_r, False)
    os.set_blocking(err_r, False)
    return SpawnedProcess(pid, out_r, err_r, _note(argv, misfit))


class _Own:
    """Runs a function in a fork."""

    def __init__(self, be: Callable[[], int]) -> None:
        self._be = be

    def run(self, argv: list[str], env: dict[str, str]) -> None:
        """Never returns."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # as in a new Python
                signal.signal(number, signal.SIG_IGN)
            os.environ.clear()
            os.environ.update(env)
            status = self._be()
        except BaseException:  # noqa: BLE001 - the end of the process: whatever it was, its log tells
            import traceback  # late: nobody should ever need it

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


def _note(argv: list[str], misfit: str) -> str:
    if argv[1:2] != ["-m"]:
        return ""
    if misfit:
        return "Started cold, with a new Python: %s." % misfit
    return "Started warm: the modules of the runtime were imported beforehand." if warm_runner is not None else ""


def _become(argv: list[str], env: dict[str, str], folder: str, fds: Any, origin: Any) -> None:
    """In the child: turn into `argv`, by running it in this process if there is something to do that. Never returns."""
    out, err, fault = fds
    parent, forked = origin
    try:
        # a group, not a session: Linux shares the cores out by sessions, and those of one job would fight for them
        os.setpgid(0, 0)
        set_parent_death_signal(parent, signal.SIGKILL)
        raise_oom_score()
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(folder)
        if forked is not None:
            close_inherited_fds()
            forked.run(argv, env)
        os.execve(argv[0], argv, env)  # noqa: S606 - no shell is wanted
    except OSError as exc:
        os.write(fault, b"%d" % (exc.errno or 0))
    finally:
        os._exit(127)


def close_inherited_fds() -> None:
    """Close every file but the first three."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError as exc:
                if exc.errno != errno.EBADF:  # the listing's own
                    raise


def raise_oom_score() -> None:
    """Let the kernel take this process before others when memory runs out."""
    with open("/proc/self/oom_score_adj", "r+b", 0) as file:
        score = int(file.read())
        file.write(b"%d" % min(1000, score + _OOM_SCORE))


def log_header(spec: dict[str, Any], replica: dict[str, Any]) -> list[str]:
    """What a replica's log begins with."""
    lines = []
    config = replica["env"].get("TF_CONFIG")
    if config:
        parts = json.loads(config)
        told = ["--%s=%s" % (key, json.dumps(parts[key])) for key in ("cluster", "task", "job") if key in parts]
        lines.append("Running task with arguments: " + " ".join(told))
    image = replica.get("container", {}).get("image")
    lines.append("Running the image %s." % image if image else "Running module %s." % spec["module"])
    return lines


def command(spec: dict[str, Any], replica: dict[str, Any], folder: str) -> list[str]:
    """What to start for a replica of the attempt in `folder`."""
    if "container" in replica:
        return node_command(spec["python"], "run-container", folder, replica["name"])
    return [spec["python"], "-m", spec["module"], *spec["args"]]


def node_command(python: str, *words: str) -> list[str]:
    """The command line of one of the node's own programs."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    run = os.path.join(root, "run.py")
    return [python, "-I", "-S", run, *words]


def runtime_command(python: str, *words: str) -> list[str]:
    """The same for one that needs what the runtime of that Python holds."""
    return [word for word in node_command(python, *words) if word != "-S"]


def display_command(spec: dict[str, Any], replica: dict[str, Any]) -> str:
    """The same for the log: what people would type."""
    if "container" not in replica:
        return " ".join(["python3", "-m", spec["module"], *spec["args"]])
    container = replica["container"]
    return " ".join([container["image"], *container["command"], *container["args"]])


def environment(spec: dict[str, Any], replica: dict[str, Any], site: str) -> dict[str, str]:
    """What a replica finds in its environment. `site` is the folder of installed packages, or empty."""
    env = inherited_environment()
    if "container" in replica:
        return env  # of the process that stands for it; the container has one of its own
    env.update(spec["env"])
    env.update(replica["env"])
    env["PYTHONUNBUFFERED"] = "1"
    if site:
        env["PYTHONPATH"] = site + (os.pathsep + env["PYTHONPATH"] if env.get("PYTHONPATH") else "")
    return env


def inherited_environment() -> dict[str, str]:
    """The server's environment without its own settings and secrets, and without what is meant for its own Python."""
    return {key: value for key, value in os.environ.items() if not key.startswith(_NOT_FOR_USERS)}


_NOT_FOR_USERS = ("TRAINSHED_", "PYTHON", "VIRTUAL_ENV")
