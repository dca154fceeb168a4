"""The warm process of a runtime: it has the runtime's modules imported, and forks the supervisors of jobs.

A supervisor that was forked from it forks its replicas, and none of them has to import a framework again. The warm
process itself never runs a line of a user's code. No job needs it after the fork, so it may be killed at any time.
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
from ..supervisor import supervisor  # noqa: F401 - preloaded for the forks
from . import compatibility, run_module
from .preload import PreloadedTensorFlow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

_LOOK_S = 2.0
_READ_S = 5.0
_REQUEST_LIMIT = 4 << 20
_PEER = struct.Struct("3i")


def serve(folder: str, start: Callable[[str], int]) -> int:
    """Import the modules that spec.json in `folder` names, then take requests from `socket` there.

    `start`, called in a fork, starts the supervisor of an attempt; it returns 0 if that is at work.

    Returns when it is told to end, when the socket is taken away, or when there was no server for `patience_s`. 1: it
    can't serve; why is on stderr.
    """
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno != errno.EWOULDBLOCK:
            raise
        return 0  # there is one already
    with open(os.path.join(folder, "spec.json"), "rb") as file:
        spec = json.loads(file.read().decode())
    spawn.warm_runner = _Ahead(spec["modules"])
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1 or not run_module.set_threads(1):
        sys.stderr.write("After the import of %s there are %d threads.\n" % (", ".join(spec["modules"]), threads))
        return 1
    gc.collect()
    gc.freeze()  # so that looking for garbage does not copy the memory that is shared
    return _Warm(folder, spec, start).run()


class _Ahead:
    """Runs modules in forks of a process that has others imported."""

    def __init__(self, modules: list[str]) -> None:
        own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        self._path = [path for path in sys.path if path != own]
        self._start = compatibility.import_time_environment(dict(os.environ))
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads don't survive a fork; each replica gets its own
        gate = PreloadedTensorFlow()
        gate.load(modules)
        del os.environ["OPENBLAS_NUM_THREADS"]
        self._gate = gate

    def misfit(self, argv: list[str], env: dict[str, str], folder: str) -> str:
        """Why `argv` can't be run so; empty if it can."""
        if argv[:2] != [sys.executable, "-m"]:
            return "it is another program"
        return compatibility.cold_start_reason(env, folder, self._start, self._gate.settled)

    def run(self, argv: list[str], env: dict[str, str]) -> None:
        """In a fork: be `argv`. Never returns."""
        run_module.run_as_main(argv, env, self._path, self._gate.hide)


class _Warm:
    """The loop of the warm process. It knows the server that it works for by its pid and start time."""

    def __init__(self, folder: str, spec: dict[str, Any], start: Callable[[str], int]) -> None:
        self._start = start
        self._path = os.path.join(folder, "socket")
        self._server = spec["server"]
        self._patience_s = spec["patience_s"]
        self._seen_at = time.monotonic()
        self._listener = _listen(folder)
        self._inode = os.stat(self._path).st_ino

    def run(self) -> int:
        told_to_end = False
        while not told_to_end and self._wanted():
            if select.select([self._listener], [], [], _LOOK_S)[0]:
                connection = self._listener.accept()[0]
                with connection:
                    told_to_end = self._answer(connection)
            _reap()
        if self._listens():
            os.unlink(self._path)
        return 0

    def _listens(self) -> bool:
        """Whether those who look for it there still find it."""
        try:
            return os.stat(self._path).st_ino == self._inode
        except FileNotFoundError:
            return False

    def _wanted(self) -> bool:
        if not self._listens():
            return False
        now = time.monotonic()
        fields = stat_fields(self._server[0])
        if fields and int(fields[19]) == self._server[1]:
            self._seen_at = now
        return bool(now - self._seen_at < self._patience_s)

    def _answer(self, connection: socket.socket) -> bool:
        """Do what is asked. True: it is to end."""
        request = _read(connection)
        if request is None:
            return False
        self._server = request["server"]
        self._seen_at = time.monotonic()
        try:
            if request["do"] not in ("launch", "run"):
                connection.sendall(b"\0000")
            elif os.fork() == 0:
                try:
                    if request["do"] == "run":
                        _run(connection, request)
                    _launch(connection, request, self._start)
                finally:
                    os._exit(1)
        except OSError as exc:  # no process can be had, or nobody waits for the answer; the asker can do without
            sys.stderr.write("%s: %s\n" % (request["do"], exc))
        return bool(request["do"] == "end")


def _listen(folder: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        draft = os.path.join(folder, "socket.%d" % os.getpid())
        # By way of the open folder, because the name of a socket may have no more than 107 bytes.
        listener.bind("/proc/self/fd/%d/socket.%d" % (here, os.getpid()))
    finally:
        os.close(here)
    os.chmod(draft, 0o600)
    listener.listen(64)
    os.rename(draft, os.path.join(folder, "socket"))
    return listener


def _read(connection: socket.socket) -> Optional[dict[str, Any]]:
    """A request from a process of the same user: a line of JSON. None if it is none."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    if _PEER.unpack(credentials)[1] != os.getuid():
        return None
    connection.settimeout(_READ_S)
    received = b""
    try:
        while not received.endswith(b"\n") and len(received) < _REQUEST_LIMIT:
            chunk = connection.recv(1 << 16)
            if not chunk:
                return None
            received += chunk
        request = json.loads(received.decode())
    except (OSError, ValueError):
        return None
    return request if isinstance(request, dict) and {"do", "server"} <= set(request) else None


def _launch(connection: socket.socket, request: dict[str, Any], start: Callable[[str], int]) -> None:
    """In a fork: start a supervisor. What `start` writes on stderr and, after a NUL, its status are the answer."""
    connection.settimeout(None)
    os.setsid()
    os.dup2(connection.fileno(), 2)
    os.chdir("/")
    os.environ.clear()
    os.environ.update(request["env"])
    status = start(request["folder"])
    os.write(2, b"\0%d" % status)
    os._exit(status)


def _run(connection: socket.socket, request: dict[str, Any]) -> None:
    """In a fork: be the module that is asked for, under a guard, until it ends or the asker goes. Never returns.

    After a NUL, its status is the answer. With a folder to talk in, the guard's pid comes before that, in a line, and
    the connection is the module's stdin and stdout.
    """
    connection.settimeout(None)
    os.setsid()
    talks = request.get("talks_in", "")
    os.chdir(talks or "/")
    if talks:
        connection.sendall(b"%d\n" % os.getpid())

    def be() -> int:
        assert spawn.warm_runner is not None
        if talks:
            os.dup2(connection.fileno(), 0)
            os.dup2(connection.fileno(), 1)
        spawn.close_inherited_fds()
        spawn.warm_runner.run([sys.executable, "-m", *request["argv"]], request["env"])
        return 1

    status = run_reaped(connection.fileno(), request["log"], be, request["log_limit"])
    connection.sendall(b"\0%d" % status)
    os._exit(0)


def _reap() -> None:
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return
