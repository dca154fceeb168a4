"""The warm process of a runtime: it has the runtime's modules imported, and forks the supervisors of jobs.

A supervisor that was forked from it forks its replicas, and none of them imports a framework again. The warm process
itself never runs user code. No job needs it after the fork, so it may be killed at any time.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import select
import socket
import struct
import sys
import time

from ..process import spawn
from ..process.reaper import run_reaped
from ..process.tree import stat_fields
from ..sandbox.reaped import make_cell
from ..supervisor import supervisor  # noqa: F401 - preloaded for the forks
from . import compatibility, run_module
from .preload import PreloadedTensorFlow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

_POLL_INTERVAL_S = 2.0
_READ_TIMEOUT_S = 5.0
_REQUEST_MAX_BYTES = 4 << 20
_USES = ("launch", "run", "keep")  # requests that put off the release of an idle process; "hello" only asks
_PEER_CREDENTIALS = struct.Struct("3i")


def serve(folder: str, start: Callable[[str], int]) -> int:
    """Import the modules that spec.json in `folder` names, then serve requests on `socket` there.

    `start` is called in a fork and starts the supervisor of an attempt. It returns 0 once that runs.

    Returns on request, when the socket is removed, after `patience_s` without a server, or after `idle_s` without use.
    Returns 1 if it can't serve, with the reason on stderr.
    """
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno != errno.EWOULDBLOCK:
            raise
        return 0  # another one runs already
    with open(os.path.join(folder, "spec.json"), "rb") as file:
        spec = json.loads(file.read().decode())
    spawn.warm_runner = _WarmRunner(spec["modules"])
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1 or not run_module.set_threads(1):
        sys.stderr.write("After the import of %s there are %d threads.\n" % (", ".join(spec["modules"]), threads))
        return 1
    gc.collect()
    gc.freeze()  # so that garbage collection does not copy shared memory
    return WarmServer(folder, spec, start).run()


class _WarmRunner:
    """Runs modules in forks of a process that has the framework imported."""

    def __init__(self, modules: list[str]) -> None:
        node_root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        self._path = [path for path in sys.path if path != node_root]
        self._start = compatibility.import_time_environment(dict(os.environ))
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads do not survive a fork; each replica starts its own
        preloaded = PreloadedTensorFlow()
        preloaded.load(modules)
        del os.environ["OPENBLAS_NUM_THREADS"]
        self._preloaded = preloaded

    def cold_start_reason(self, argv: list[str], env: dict[str, str], folder: str) -> str:
        """Why `argv` can't run in a fork. Empty if it can."""
        if argv[:2] != [sys.executable, "-m"]:
            return "it is another program"
        return compatibility.cold_start_reason(env, folder, self._start, self._preloaded.settled)

    def run(self, argv: list[str], env: dict[str, str]) -> None:
        """Run `argv` in a fork. Never returns."""
        run_module.run_as_main(argv, env, self._path, self._preloaded.hide)


class WarmServer:
    """The loop of the warm process. It identifies its server by pid and start time."""

    def __init__(
        self,
        folder: str,
        spec: dict[str, Any],
        start: Callable[[str], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start = start
        self._clock = clock
        self._path = os.path.join(folder, "socket")
        self._server = spec["server"]
        self._patience_s = spec["patience_s"]
        self._idle_s = spec["idle_s"]
        self._server_seen_at = self._used_at = clock()
        self._listener = _listen(folder)
        self._inode = os.stat(self._path).st_ino

    def run(self) -> int:
        stopping = False
        while not stopping and self.is_needed():
            stopping = self.serve_one(_POLL_INTERVAL_S)
            _reap()
        self.close()
        return 0

    def close(self) -> None:
        """Stop listening. Those who connected before are served."""
        if self._is_listening():
            os.unlink(self._path)
        while select.select([self._listener], [], [], 0)[0]:
            self.serve_one(0)
        self._listener.close()

    def serve_one(self, timeout_s: float) -> bool:
        """Handle the next request, if one comes in time. Returns True if the process should end."""
        if not select.select([self._listener], [], [], timeout_s)[0]:
            return False
        connection = self._listener.accept()[0]
        with connection:
            return self._handle(connection)

    def _is_listening(self) -> bool:
        """Whether the socket's path still leads to this process."""
        try:
            return os.stat(self._path).st_ino == self._inode
        except FileNotFoundError:
            return False

    def is_needed(self) -> bool:
        """Whether the server can still reach it and, lately, used it."""
        if not self._is_listening():
            return False
        now = self._clock()
        fields = stat_fields(self._server[0])
        if fields and int(fields[19]) == self._server[1]:
            self._server_seen_at = now
        is_idle = 0 < self._idle_s <= now - self._used_at
        return bool(now - self._server_seen_at < self._patience_s and not is_idle)

    def _handle(self, connection: socket.socket) -> bool:
        """Handle one request. Returns True if the process should end."""
        request = _read(connection)
        if request is None:
            return False
        self._server, self._idle_s = request["server"], request["idle_s"]
        self._server_seen_at = self._clock()
        if request["do"] in _USES:
            self._used_at = self._server_seen_at
        try:
            if request["do"] not in ("launch", "run"):
                connection.sendall(b"\0000")
            elif os.fork() == 0:
                try:
                    if request["do"] == "run":
                        _run_request(connection, request)
                    _launch(connection, request, self._start)
                finally:
                    os._exit(1)
        except OSError as exc:  # the fork failed, or the client is gone; it can start cold
            sys.stderr.write("%s: %s\n" % (request["do"], exc))
        return bool(request["do"] == "end")


def _listen(folder: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        draft = os.path.join(folder, "socket.%d" % os.getpid())
        # Through the open folder, because a socket's path is limited to 107 bytes.
        listener.bind("/proc/self/fd/%d/socket.%d" % (folder_fd, os.getpid()))
    finally:
        os.close(folder_fd)
    os.chmod(draft, 0o600)
    listener.listen(64)
    os.rename(draft, os.path.join(folder, "socket"))
    return listener


def _read(connection: socket.socket) -> Optional[dict[str, Any]]:
    """A request of the same user: a line of JSON. Returns None if it is invalid."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    if _PEER_CREDENTIALS.unpack(credentials)[1] != os.getuid():
        return None
    connection.settimeout(_READ_TIMEOUT_S)
    received = b""
    try:
        while not received.endswith(b"\n") and len(received) < _REQUEST_MAX_BYTES:
            chunk = connection.recv(1 << 16)
            if not chunk:
                return None
            received += chunk
        request = json.loads(received.decode())
    except (OSError, ValueError):
        return None
    return request if isinstance(request, dict) and {"do", "server", "idle_s"} <= set(request) else None


def _launch(connection: socket.socket, request: dict[str, Any], start: Callable[[str], int]) -> None:
    """Start a supervisor, in a fork. The response is what `start` writes to stderr and, after a NUL, its status."""
    connection.settimeout(None)
    os.setsid()
    os.dup2(connection.fileno(), 2)
    os.chdir("/")
    os.environ.clear()
    os.environ.update(request["env"])
    status = start(request["folder"])
    os.write(2, b"\0%d" % status)
    os._exit(status)


def _run_request(connection: socket.socket, request: dict[str, Any]) -> None:
    """Run the requested module in a fork, under a reaper, until it exits or the client disconnects. Never returns.

    The response is its status, after a NUL. With a folder in `talks_in`, the reaper's pid comes before that, in a line,
    and the connection is the module's stdin and stdout. With a `cell` it runs in that sandbox, and its
    stdin is the socket that is made for it, if there is one.
    """
    connection.settimeout(None)
    os.setsid()
    folder = request.get("talks_in", "")
    os.chdir(folder or "/")
    if folder:
        connection.sendall(b"%d\n" % os.getpid())

    cell, listener = make_cell(request.get("cell", {}), request["env"])
    env = request["env"] if cell is None else cell.environment(request["env"])

    def run() -> int:
        assert spawn.warm_runner is not None
        if folder:
            os.dup2(connection.fileno(), 1)
            if listener < 0:
                os.dup2(connection.fileno(), 0)
        spawn.close_inherited_fds()
        spawn.warm_runner.run([sys.executable, "-m", *request["argv"]], env)
        return 1

    status = run_reaped(connection.fileno(), request["log"], run, request["log_limit"], cell, listener)
    connection.sendall(b"\0%d" % status)
    os._exit(0)


def _reap() -> None:
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return
