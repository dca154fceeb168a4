"""The node agent: the process on a node that sets it up and runs one replica of a gang, or one host.

The agent reports the address of the replica, starts it when the whole gang is ready, and writes output and status to a
stream. The process that started the agent reads the stream and holds the agent's stdin. Commands come over stdin, one
line of JSON each. When stdin is closed, for whatever reason, all descendants of the agent are killed.

The agent is two processes, like a supervisor: a reaper that only waits, and its child that works. The reaper
cleans up if the child is killed. Both hold a lock, so a new incarnation of the replica starts only when
nothing of the old one is left.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import selectors
import signal
import sys
import time

from .. import failure
from ..process import spawn, tree
from ..process.environment import inherited_environment
from ..process.exit_status import ExitStatus
from ..process.metric_reports import HYPERTUNE_FOLDER, METRIC_FILE_VARIABLE, ReportReader
from ..process.ports import reserve_known_port, reserve_port
from ..process.sampler import SAMPLE_INTERVAL_S, ProcessSampler, oom_kills
from ..process.tree import signal_pipe
from . import streams
from .workspace import SPEC_FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Callable, Optional

    from .sidecar_proxy import SidecarProxy

STREAM_FOLDER = "stream"  #: in the agent's folder: output and status frames
SETUP_FILE = "prepared.json"  #: in the agent's folder: the results of `prepare_node`
_CHUNK_BYTES = 1 << 16
_DRAIN_MAX_BYTES = 64 << 20
_PENDING_MAX_BYTES = 4 << 20  #: bytes that wait for disk space before the replica is paused
_POLL_INTERVAL_S = 0.02
_REPORT_INTERVAL_S = 0.5  #: between two looks for reports of a trial's metric


def run_agent(folder: str) -> int:
    """Run the replica of the spec in `folder`. Blocks until nothing of it is left."""
    tree.become_subreaper()
    _reset_priority()
    with open(os.path.join(folder, SPEC_FILE), "rb") as file:
        spec = json.loads(file.read().decode())
    if not _take_lock(spec["lock"]):
        return 1
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = _run_child(folder, spec)
        finally:
            os._exit(status)
    os.close(0)
    while os.waitpid(-1, 0)[0] != child:
        pass
    tree.kill_descendants()
    remove_replica_containers(folder)
    return 0


def remove_replica_containers(folder: str) -> None:
    """Remove the replica's container, if it has one. A container outlives its processes."""
    if not os.path.exists(os.path.join(folder, "containers.json")):
        return
    from ..containers.replica import remove_containers  # late: most replicas need no containers

    reason = remove_containers(folder)
    if reason is not None:
        sys.stderr.write("A container is left, and can't be removed: %s.\n" % reason)
    tree.kill_descendants()


def _run_child(folder: str, spec: dict[str, Any]) -> int:
    tree.become_subreaper()
    signals = signal_pipe((signal.SIGCHLD, signal.SIGTERM))
    return Agent(folder, spec, signals, _detach_stdin()).run()


def _detach_stdin() -> int:
    """Move stdin to another descriptor, so that a replica that reads its stdin does not get commands."""
    commands = os.dup(0)
    os.set_blocking(commands, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return commands


def _reset_priority() -> None:
    """Give the replica normal priority, where that is allowed. Ray starts its processes with a lower one."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        with open("/proc/self/oom_score_adj", "r+b", 0) as file:
            file.write(b"0")
    except PermissionError:
        return


def _take_lock(path: str) -> bool:
    """Wait for the lock, which this process and its forks hold until they exit. Returns False if stdin is closed."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            poll = select.poll()
            poll.register(0, select.POLLHUP)
            if poll.poll(_POLL_INTERVAL_S * 1000):
                return False


class Agent:
    """Runs one replica or host on this node. `run` is called once."""

    def __init__(self, folder: str, spec: dict[str, Any], signals: int, commands: int) -> None:
        """`commands` is a non-blocking pipe."""
        self._folder = folder
        self._commands_fd = commands
        self._spec = spec
        self._stream = streams.StreamWriter(os.path.join(folder, STREAM_FOLDER))
        self._sampler = ProcessSampler(folder if spec.get("container") else "")
        self._selector = selectors.DefaultSelector()
        self._selector.register(commands, selectors.EVENT_READ, self._on_commands)
        self._selector.register(signals, selectors.EVENT_READ, lambda: self._on_signals(signals))
        self._commands = b""
        self._pipes: dict[int, int] = {}  # the child's pipes, with the kind of frame for each
        self._paused = False  # the disk is full, so output stays in the pipes
        self._child = 0
        self._on_child_exit: Callable[[ExitStatus], None] = self._on_prepared  # called when the child exits
        self._port: Optional[socket.socket] = None  # held until the replica binds it
        self._sample_at = self._report_at = float("inf")
        self._reports = ReportReader(os.path.join(folder, "work"), HYPERTUNE_FOLDER)
        self._oom_kills = oom_kills()
        self._exit_status: Optional[ExitStatus] = None
        self._failure: dict[str, Any] = {}  # what is known of it here, as in `failure.py`
        self._running = True
        self._sidecar: Optional[SidecarProxy] = None
        self._sidecar_pid = 0

    def run(self) -> int:
        """Run until the replica has exited and its output is written, or stdin is closed."""
        self._start(["prepare"], _node_environment(), self._folder, self._prepare)
        while self._running and self._exit_status is None:
            self._run_once()
        tree.kill_descendants()
        if not self._running:
            return 1
        self._drain()
        self._send_reports()
        assert self._exit_status is not None
        failed = dict(self._failure, memory_peak_bytes=self._sampler.peaks.get(self._spec["replica"]))
        status = self._exit_status
        self._stream.append(streams.EXIT, _json(code=status.code, signal=status.signal, failure=failed))
        while self._running and not self._stream.flush():
            self._run_once(0.2)
        return 0

    # -- the loop

    def _run_once(self, timeout_s: float = 3600.0) -> None:
        due_s = min(self._sample_at, self._report_at) - time.monotonic()
        wait_s = min(max(0.0, due_s), timeout_s, 0.2 if self._paused else timeout_s)
        for key, _ in self._selector.select(wait_s):
            if self._selector.get_map().get(key.fd) is key:  # else an earlier callback closed it
                key.data()
        self._pause(self._stream.pending_bytes > _PENDING_MAX_BYTES and not self._stream.flush())
        if time.monotonic() >= self._sample_at and self._child:
            self._sample_at = time.monotonic() + SAMPLE_INTERVAL_S
            lines = self._sampler.lines({self._spec["replica"]: self._child}, time.monotonic())
            if lines:
                self._stream.append(streams.SAMPLE, lines.encode())
        if time.monotonic() >= self._report_at and self._child:
            self._report_at = time.monotonic() + _REPORT_INTERVAL_S
            self._send_reports()

    def _send_reports(self) -> None:
        """Send what a trial has reported since. Nothing is read of other jobs."""
        lines = self._reports.new_lines() if METRIC_FILE_VARIABLE in self._spec["env"] else b""
        if lines:
            self._stream.append(streams.REPORT, lines)

    def _pause(self, full: bool) -> None:
        """Leave the child's output in its pipes while the disk is full."""
        if full == self._paused:
            return
        self._paused = full
        for fd in self._pipes:
            if full:
                self._selector.unregister(fd)
            else:
                self._selector.register(fd, selectors.EVENT_READ, self._reader(fd))

    def _on_commands(self) -> None:
        data = os.read(self._commands_fd, _CHUNK_BYTES)
        if not data:
            self._running = False
            return
        lines = (self._commands + data).split(b"\n")
        self._commands = lines.pop()
        for line in lines:
            command = json.loads(line.decode())
            if command["do"] == "signal":
                self._send_signal(command["number"])
            elif command["do"] == "addresses" and self._port is not None:
                self._run_replica(command["addresses"])

    def _send_signal(self, number: int) -> None:
        if self._child:
            tree.send_signal(self._child, number)
            tree.send_signal(self._child, signal.SIGCONT)  # a stopped process can't receive it
        else:
            self._exit_status = ExitStatus(None, number)

    def _on_signals(self, fd: int) -> None:
        if signal.SIGTERM in os.read(fd, 4096):
            self._running = False
        tree.reap(self._on_exit)

    def _on_exit(self, pid: int, status: int) -> None:
        if self._sidecar is not None and pid == self._sidecar_pid:
            self._sidecar_pid = self._sidecar.start()
        if pid == self._child:
            self._drain()
            self._child = 0
            self._on_child_exit(ExitStatus.of(status))

    # -- the child

    def _prepare(self) -> int:
        """Set up the node. Runs in a child process."""
        from .setup import prepare_node

        return prepare_node(self._folder, self._spec, os.path.join(self._folder, SETUP_FILE))

    def _start(
        self, argv: list[str], env: dict[str, str], folder: str, target: Optional[Callable[[], int]] = None
    ) -> None:
        process = spawn.spawn(argv, env, folder, target)
        self._child = process.pid
        self._pipes = {process.stdout: streams.OUT, process.stderr: streams.ERR}
        for fd in self._pipes:
            self._selector.register(fd, selectors.EVENT_READ, self._reader(fd))

    def _reader(self, fd: int) -> Callable[[], bool]:
        return lambda: self._read(fd)

    def _read(self, fd: int) -> bool:
        """Read once from a pipe. Returns False if it is empty or closed."""
        try:
            data = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._stream.append(self._pipes[fd], data)
            return True
        if not self._paused:
            self._selector.unregister(fd)
        os.close(fd)
        del self._pipes[fd]
        return False

    def _drain(self) -> None:
        """Read what the pipes hold now. Does not wait for their end: a descendant may hold them open for ever."""
        for fd in list(self._pipes):
            for _ in range(_DRAIN_MAX_BYTES // _CHUNK_BYTES):
                if not self._read(fd):
                    break

    def _log(self, line: str, kind: int = streams.OUT) -> None:
        self._stream.append(kind, line.encode("utf-8", "backslashreplace") + b"\n")

    def _fail(self, message: str) -> None:
        """End because the replica can't be started."""
        self._failure = {"cause": failure.START_FAILED, "message": message}
        self._log(message, streams.ERR)
        self._exit_status = ExitStatus(1)

    # -- starting the replica

    def _on_prepared(self, status: ExitStatus) -> None:
        if not status.ok:
            self._failure = failure.read_failure(self._folder, failure.INSTALLATION) or {}
            self._exit_status = status
            return
        try:
            host, port = self._spec["host"], self._spec["port"]
            self._port = reserve_known_port(host, port) if port else reserve_port(host)
        except OSError as exc:
            self._fail("No port is free on %s: %s." % (self._spec["host"], exc.strerror))
            return
        self._stream.append(streams.ADDRESS, _json(host=self._spec["host"], port=self._port.getsockname()[1]))

    def _run_replica(self, addresses: dict[str, list[str]]) -> None:
        with open(os.path.join(self._folder, SETUP_FILE), "rb") as file:
            prepared = json.loads(file.read().decode())
        values = dict(self._start_sidecar(), node=self._folder)
        is_host = not self._spec["module"] and not self._spec.get("container")  # a host runs no user code
        if is_host:
            values.update(site=prepared["site"], model=prepared["model"])
        from .setup import substitution

        substitute = substitution(values, addresses)
        if self._spec["credentials"]["files"]:
            from . import credentials

            credentials.unpack_credentials(
                self._spec["credentials"], self._folder, substitute, for_all=bool(self._spec.get("container"))
            )
        env = dict(_node_environment(), **{key: substitute(value) for key, value in self._spec["env"].items()})
        env["PYTHONUNBUFFERED"] = "1"
        args = [substitute(arg) for arg in self._spec["args"]]
        if not is_host:
            for line in spawn.log_header(self._spec, {"env": env, "container": self._spec.get("container") or {}}):
                self._log(line)
            if prepared["site"]:
                env["PYTHONPATH"] = prepared["site"] + (os.pathsep + env["PYTHONPATH"] if env.get("PYTHONPATH") else "")
            argv = [prepared["python"], "-m", self._spec["module"], *args]
        else:
            argv = spawn.runtime_command(prepared["python"], *args)
        if self._spec.get("container"):
            from ..containers import replica as container_replica

            container_replica.write_spec(self._folder, self._spec, substitute)
            argv, env = (
                spawn.node_command(prepared["python"], "run-container", self._folder, self._spec["replica"]),
                _node_environment(),
            )
        work = os.path.join(self._folder, "work")
        os.makedirs(work, mode=0o700, exist_ok=True)
        if METRIC_FILE_VARIABLE in self._spec["env"]:
            self._report_at = time.monotonic() + _REPORT_INTERVAL_S
            os.makedirs(os.path.join(work, HYPERTUNE_FOLDER), exist_ok=True)
            os.chmod(os.path.join(work, HYPERTUNE_FOLDER), 0o777)  # noqa: S103 - an image's user may be any
        assert self._port is not None
        self._port.close()
        self._port = None
        self._on_child_exit = self._on_replica_exit
        try:
            self._start(argv, env, work)
        except OSError as exc:
            self._fail("%s can't be started: %s." % (prepared["python"], exc.strerror))
            return
        self._stream.append(streams.STARTED, b"")
        self._sample_at = time.monotonic() + SAMPLE_INTERVAL_S

    def _start_sidecar(self) -> dict[str, str]:
        """Start the sidecar proxy if the replica needs one. Returns its placeholder values."""
        if self._spec["credentials"]["sidecar_proxy"] is None:
            return {}
        from .sidecar_proxy import SidecarProxy

        self._sidecar = SidecarProxy(self._spec["credentials"]["sidecar_proxy"])
        self._sidecar_pid = self._sidecar.start()
        return {"sidecar_proxy": self._sidecar.address}

    def _on_replica_exit(self, status: ExitStatus) -> None:
        if status.signal == signal.SIGKILL and oom_kills() > self._oom_kills:
            self._failure = {"cause": failure.OUT_OF_MEMORY}
            self._log("The memory of %s ran out, and its kernel killed a process." % self._spec["host"], streams.ERR)
        self._exit_status = status


def _node_environment() -> dict[str, str]:
    """The node's environment without the variables that Ray sets for its own processes."""
    env = inherited_environment()
    return {key: value for key, value in env.items() if not key.startswith("RAY_") and key != "OMP_NUM_THREADS"}


def _json(**facts: Any) -> bytes:
    return json.dumps(facts).encode()
