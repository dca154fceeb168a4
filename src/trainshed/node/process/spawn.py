"""Spawns one process of a job: in its own process group, with output to pipes, killed when its supervisor dies.

In a supervisor that was forked from a warm process, a replica is a fork that runs its module. In all other cases, and
if the module could notice a difference, it is a new Python.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys

from ..crashpoints import crashpoint
from .environment import inherited_environment, without_installer
from .tree import allow_tracing, set_parent_death_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Protocol

    from .exit_status import ExitStatus

    class CellLimits(Protocol):
        """The limits of a cell: `sandbox.limits.CellLimits`."""

        @property
        def look_at(self) -> float: ...

        def look(self, first: int, now_s: float) -> None: ...
        def hit(self, status: ExitStatus, tail: str) -> Optional[dict[str, Any]]: ...
        def close(self) -> None: ...

    class Cell(Protocol):
        """A sandbox for one process: `sandbox.cell.Cell`, which this package does not import."""

        @property
        def private(self) -> str: ...
        @property
        def limits(self) -> Optional[CellLimits]: ...
        @property
        def has_init(self) -> bool: ...
        def fork(self) -> int: ...
        def run_init(self, status: int, alive: int, program: Callable[[], None]) -> None: ...
        def enter(self) -> None: ...
        def read_pid(self, status: int) -> int: ...
        def read_status(self, status: int) -> Optional[int]: ...
        def end(self) -> None: ...
        def environment(self, env: dict[str, str]) -> dict[str, str]: ...


_OOM_SCORE_ADJ = 500  #: added, so that the kernel kills a replica before the server
_ERROR_MAX_BYTES = 1024
_RESET_SIGNALS = (
    signal.SIGCHLD,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGPIPE,
    signal.SIGXFSZ,
)

#: Set in the warm process, and so in its forks: runs modules there (`warm.process._WarmRunner`).
warm_runner: Optional[Any] = None
#: Set in a supervisor that was started cold: the reason, if there is one to report.
cold_reason = ""


class SpawnedProcess:
    """A process and its non-blocking output pipes. `note` is a line for its log, or empty.

    `pid` is the child to wait for, `first` the first process of the program. They differ in a cell, whose status is
    in the pipe `status`.
    """

    __slots__ = ("first", "note", "pid", "status", "stderr", "stdout")

    def __init__(self, pid: int, stdout: int, stderr: int, note: str = "") -> None:
        self.pid = self.first = pid
        self.stdout = stdout
        self.stderr = stderr
        self.status = -1
        self.note = note


def spawn(
    argv: list[str],
    env: dict[str, str],
    folder: str,
    target: Optional[Callable[[], int]] = None,
    cell: Optional[Cell] = None,
) -> SpawnedProcess:
    """Start `argv` in `folder`. Raises `OSError` if it can't be started; then the program does not run.

    With `target`, which returns an exit status, the process is a fork that calls it: node code needs no new Python.
    With `cell`, it runs in that sandbox.
    """
    if cell is not None:
        env = cell.environment(env)
    reason = warm_runner.cold_start_reason(argv, env, folder) if warm_runner is not None else cold_reason
    crashpoint("replica.start.before")
    out_r, out_w = os.pipe()
    err_r, err_w = os.pipe()
    error_r, error_w = os.pipe()
    status_r, status_w = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork() if cell is None or not cell.has_init else cell.fork()
        if pid == 0:
            runner = (
                _FunctionRunner(target) if target else warm_runner if warm_runner is not None and not reason else None
            )
            _run_child(argv, env, folder, (out_w, err_w, error_w, status_w), (parent, runner, cell))
    except OSError:
        for fd in (out_r, err_r, error_r, status_r):
            os.close(fd)
        raise
    finally:
        for fd in (out_w, err_w, error_w, status_w):
            os.close(fd)
    error = os.read(error_r, _ERROR_MAX_BYTES)  # closed by exec, or when the fork is ready to run
    os.close(error_r)
    if error:
        os.waitpid(pid, 0)
        for fd in (out_r, err_r, status_r):
            os.close(fd)
        number, _, message = error.decode("utf-8", "replace").partition(" ")
        raise OSError(int(number), message)
    os.set_blocking(out_r, False)
    os.set_blocking(err_r, False)
    crashpoint("replica.start.after")
    process = SpawnedProcess(pid, out_r, err_r, _note(argv, reason))
    if cell is None or not cell.has_init:
        os.close(status_r)
    else:
        process.first, process.status = cell.read_pid(status_r), status_r
    return process


class _FunctionRunner:
    """Runs a function in a fork."""

    def __init__(self, target: Callable[[], int]) -> None:
        self._target = target

    def run(self, argv: list[str], env: dict[str, str]) -> None:
        """Never returns."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # as in a new Python
                signal.signal(number, signal.SIG_IGN)
            os.environ.clear()
            os.environ.update(env)
            status = self._target()
        except BaseException:  # noqa: BLE001 - the process ends here, and its log has the error
            import traceback  # late: rarely needed

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


def _note(argv: list[str], reason: str) -> str:
    if argv[1:2] != ["-m"]:
        return ""
    if reason:
        return "Started cold, with a new Python: %s." % reason
    return "Started warm: the modules of the runtime were imported beforehand." if warm_runner is not None else ""


def _run_child(argv: list[str], env: dict[str, str], folder: str, fds: Any, origin: Any) -> None:
    """Runs in the child: exec `argv`, or run it in this process if there is a runner. Never returns."""
    out, err, error, status = fds
    parent, runner, cell = origin

    def run() -> None:
        try:
            raise_oom_score()
            for number in _RESET_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            # A group, not a session: Linux divides the cores by session, and those of one job would compete.
            os.setpgid(0, 0)
            if cell is None or not cell.has_init:
                set_parent_death_signal(parent, signal.SIGKILL)
                allow_tracing(parent)  # for the stack of a replica that hangs
            os.dup2(out, 1)
            os.dup2(err, 2)
            if cell is not None:
                cell.enter()
            os.chdir(folder)
            if runner is not None:
                close_inherited_fds()
                runner.run(argv, env)
            os.execve(argv[0], argv, env)  # noqa: S606 - no shell is involved
        except OSError as exc:
            _report(error, exc)
        finally:
            os._exit(127)

    try:
        if cell is not None and cell.has_init:
            cell.run_init(status, error, run)
        run()
    except OSError as exc:
        _report(error, exc, "its sandbox can't be set up: ")
    finally:
        os._exit(127)


def _report(error: int, exc: OSError, prefix: str = "") -> None:
    """Tell the parent why the program can't be started."""
    message = prefix + (exc.strerror or "an unknown reason")
    os.write(error, ("%d %s" % (exc.errno or 0, message)).encode("utf-8", "replace")[:_ERROR_MAX_BYTES])


def close_inherited_fds() -> None:
    """Close all descriptors except the first three."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError as exc:
                if exc.errno != errno.EBADF:  # the descriptor of the listing itself
                    raise


def raise_oom_score() -> None:
    """Let the kernel kill this process before others when memory runs out."""
    with open("/proc/self/oom_score_adj", "r+b", 0) as file:
        score = int(file.read())
        file.write(b"%d" % min(1000, score + _OOM_SCORE_ADJ))


def log_header(spec: dict[str, Any], replica: dict[str, Any]) -> list[str]:
    """The first lines of a replica's log."""
    lines = []
    config = replica["env"].get("TF_CONFIG")
    if config:
        parts = json.loads(config)
        arguments = ["--%s=%s" % (key, json.dumps(parts[key])) for key in ("cluster", "task", "job") if key in parts]
        lines.append("Running task with arguments: " + " ".join(arguments))
    image = replica.get("container", {}).get("image")
    lines.append("Running the image %s." % image if image else "Running module %s." % spec["module"])
    return lines


def command(spec: dict[str, Any], replica: dict[str, Any], folder: str) -> list[str]:
    """The command of a replica of the attempt in `folder`."""
    if "container" in replica:
        return node_command(spec["python"], "run-container", folder, replica["name"])
    return [spec["python"], "-m", spec["module"], *spec["args"]]


def node_command(python: str, *arguments: str) -> list[str]:
    """The command line of a node command."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    run = os.path.join(root, "run.py")
    return [python, "-I", "-S", run, *arguments]


def runtime_command(python: str, *arguments: str) -> list[str]:
    """The command line of a node command that needs the packages of its runtime."""
    return [argument for argument in node_command(python, *arguments) if argument != "-S"]


def display_command(spec: dict[str, Any], replica: dict[str, Any]) -> str:
    """The command of a replica for the log, as people would type it."""
    if "container" not in replica:
        return " ".join(["python3", "-m", spec["module"], *spec["args"]])
    container = replica["container"]
    return " ".join([container["image"], *container["command"], *container["args"]])


def environment(spec: dict[str, Any], replica: dict[str, Any], site: str) -> dict[str, str]:
    """The environment of a replica. `site` is the folder of installed packages, or empty."""
    env = inherited_environment()
    if "container" in replica:
        return env  # of the process that represents it; the container has its own
    env = without_installer(env)  # the server passed it no other variables than those on the list
    env.update(spec["env"])
    env.update(replica["env"])
    env["PYTHONUNBUFFERED"] = "1"
    if site:
        env["PYTHONPATH"] = site + (os.pathsep + env["PYTHONPATH"] if env.get("PYTHONPATH") else "")
    return env
