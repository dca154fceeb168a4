"""The server's side of warm processes: finds, starts and ends them, and has them start jobs and hosts.

There is at most one for each runtime, in its own folder below `Home.warm`. The folder's name is a hash of all that the
process depends on, so a process that was started with anything else is never used. Warm processes outlive a killed
server, and the next server finds them by their folders.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from trainshed.config import Home
from trainshed.engines.base import AttemptSpec
from trainshed.engines.reaped_process import LOG_MAX_BYTES
from trainshed.node.process import open_files
from trainshed.node.process.environment import build_environment, user_environment
from trainshed.node.process.tree import stat_fields
from trainshed.node.warm.compatibility import import_time_environment

LOG = logging.getLogger("trainshed.engines.local.warm")

WARM_RETENTION_S = 7 * 24 * 3600.0  #: a runtime used since then is warmed when the server starts
ORPHAN_TTL_S = 120.0  #: how long a warm process waits for the next server
IMPORT_TIMEOUT_S = 60.0  #: how long a gang waits for a warm process that is starting
_IMPORT_POLL_INTERVAL_S = 0.05
_RESPONSE_TIMEOUT_S = 10.0
_END_TIMEOUT_S = 5.0
#: Variables of the server that a warm process gets, besides those that frameworks read on import. No secrets.
_PASSED_VARIABLES = frozenset(("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "TMPDIR"))

OFF = ""
NOT_READY = "no warm process of its runtime was ready"
FAILED = "the warm process of its runtime did not start it"


class WarmProcesses:
    """Starts jobs and hosts from warm processes. `modules` are preloaded for an interpreter,
    `ship` returns the shipped code.

    A failure of a warm process raises nothing: jobs start cold then. Thread-safe.
    """

    def __init__(
        self,
        home: Home,
        *,
        modules: Mapping[Path, tuple[str, ...]],
        ship: Callable[[], Path],
        passed: Collection[str] = (),
        idle_s: float = 0.0,
    ) -> None:
        """`passed` are variables of the server that user code gets besides those on the list.

        A process that starts nothing for `idle_s` exits. 0: it stays.
        """
        self._home = home
        self._idle_s = idle_s
        self._passed = passed
        self._modules = modules
        self._ship = ship
        self._server = [os.getpid(), int(stat_fields(os.getpid())[19])]
        self._lock = threading.Lock()
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}
        self._current: dict[Path, Path] = {}
        self._closed = False
        self._stopping = threading.Event()

    def begin(self) -> None:
        """Find the processes that an earlier server left, and start those of runtimes that were used recently."""
        for spec in self._home.warm.glob("*/spec.json"):
            folder = spec.parent
            try:
                record = orjson.loads(spec.read_bytes())
                python, env = Path(record["python"]), record["env"]
                age_s = time.time() - spec.stat().st_mtime
                current = age_s < WARM_RETENTION_S and python.exists() and folder == self._folder(python, env)
                if not current:
                    shutil.rmtree(folder)  # its process notices and exits
                    continue
                self._current[python] = folder
                if self._request(folder, {"do": "hello"}) is None:
                    self._start(folder, python, env)
            except (OSError, ValueError, KeyError) as exc:
                LOG.warning("warm.not_found_again folder=%s reason=%s", folder, exc)

    def launch(self, spec: AttemptSpec) -> str | None:
        """Have a warm process start the attempt. Returns None if it did, or else the reason;
        `OFF` if the runtime has none.

        Blocks while a gang waits for a warm process that is starting: one import is faster than one for each replica.
        """
        if not self._modules.get(spec.python):
            return OFF
        env = self._attempt_environment(spec)
        request = {"do": "launch", "folder": str(spec.folder), "env": build_environment(self._passed)}
        try:
            folder = self._folder(spec.python, env)
            response = self._request(folder, request)
            if response is None:
                self._warm_up(folder, spec.python, env)
                if len(spec.replicas) > 1 and self._await_start(folder):
                    response = self._request(folder, request)
            if response is None:
                return NOT_READY
            os.utime(folder / "spec.json")
        except OSError as exc:
            LOG.warning("warm.unusable python=%s reason=%s", spec.python, exc)
            return FAILED
        error, _, status = response.partition(b"\0")
        if status == b"0":
            return None
        LOG.warning("warm.launch_failed job=%s reason=%s", spec.job, error.decode(errors="replace").strip())
        return FAILED

    def run(
        self,
        python: Path,
        argv: Sequence[str],
        *,
        log: Path,
        talks_in: Path | None = None,
        cell: Mapping[str, Any] | None = None,
    ) -> socket.socket | None:
        """Have a warm process of `python` run the module `argv[0]`, with the rest as its arguments, in a fork.

        Returns the connection: after a NUL comes the exit status, then its end. Closing it kills the fork. Returns None
        if there is no warm process; then one is started for later. With `talks_in`, the fork runs in that folder. Its
        pid comes first, in a line, and then its stdout. `cell` is its sandbox (`Sandbox.cell`).
        """
        if not self._modules.get(python):
            return None
        inherited = user_environment(self._passed)
        env = import_time_environment(inherited)
        request = {
            "do": "run",
            "argv": list(argv),
            "env": {**inherited, "PYTHONPATH": str(self._ship())},
            "log": str(log),
            "log_limit": LOG_MAX_BYTES,
            "talks_in": str(talks_in or ""),
            "cell": cell or {},
        }
        try:
            folder = self._folder(python, env)
            if (connection := _connect(folder)) is not None:
                connection.sendall(self._encode(request))
                os.utime(folder / "spec.json")
                return connection
            self._warm_up(folder, python, env)
        except OSError as exc:
            LOG.warning("warm.unusable python=%s reason=%s", python, exc)
        return None

    def prepare(self, python: Path) -> None:
        """Start the warm process that `run` would use. If it runs, put off its release."""
        if not self._modules.get(python):
            return
        env = import_time_environment(user_environment(self._passed))
        try:
            folder = self._folder(python, env)
            if self._request(folder, {"do": "keep"}) is None:
                self._warm_up(folder, python, env)
        except OSError as exc:
            LOG.warning("warm.unusable python=%s reason=%s", python, exc)

    def is_ready(self, python: Path) -> bool:
        """Whether the warm process that `run` would use is ready."""
        env = import_time_environment(user_environment(self._passed))
        return self._request(self._folder(python, env), {"do": "hello"}) is not None

    def is_starting(self, python: Path) -> bool:
        """Whether the warm process that `run` would use runs, though it may not listen yet."""
        env = import_time_environment(user_environment(self._passed))
        process = self._processes.get(self._folder(python, env))
        return process is not None and process.poll() is None

    def stop(self) -> None:
        """End the waits for processes that are starting. Nothing waits from now on."""
        self._stopping.set()

    def close(self) -> None:
        """End the processes. Jobs that were started from them continue."""
        with self._lock:
            self._closed = True
            processes = dict(self._processes)
        ending = set()
        for spec in self._home.warm.glob("*/spec.json"):
            with contextlib.suppress(OSError):  # one that can't be reached notices that there is no server
                if self._request(spec.parent, {"do": "end"}):
                    ending.add(spec.parent)
        for folder, process in processes.items():
            if folder not in ending:  # it still imports
                process.terminate()
            _wait(process)

    def _warm_up(self, folder: Path, python: Path, env: Mapping[str, str]) -> None:
        """Start one for later, unless it runs or has failed. One unusual job does not displace a working one."""
        with self._lock:
            previous, self._current[python] = self._current.get(python, folder), folder
            process = self._processes.get(folder)
            if self._closed or (process is not None and (process.poll() is None or process.returncode > 0)):
                return
            if previous != folder and self._request(previous, {"do": "hello"}) is not None:
                return
            for spec in self._home.warm.glob("*/spec.json"):
                if spec.parent != folder and orjson.loads(spec.read_bytes())["python"] == str(python):
                    shutil.rmtree(spec.parent, ignore_errors=True)  # its process notices and exits
            self._start(folder, python, env)

    def _await_start(self, folder: Path) -> bool:
        """Wait for a process that is starting. Returns whether it listens."""
        process = self._processes.get(folder)
        deadline = time.monotonic() + IMPORT_TIMEOUT_S
        while process is not None and process.poll() is None and time.monotonic() < deadline:
            if self._stopping.wait(_IMPORT_POLL_INTERVAL_S):
                break
            if self._request(folder, {"do": "hello"}) is not None:
                return True
        return False

    def _start(self, folder: Path, python: Path, env: Mapping[str, str]) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "socket").unlink(missing_ok=True)
        spec = {
            "python": str(python),
            "env": env,
            "modules": self._modules[python],
            "server": self._server,
            "patience_s": ORPHAN_TTL_S,
            "idle_s": self._idle_s,
        }
        (folder / "spec.json").write_bytes(orjson.dumps(spec))
        passed = {name: value for name, value in user_environment().items() if name in _PASSED_VARIABLES}
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(
                [python, self._ship() / "run.py", "warm", folder],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env={**passed, **env, **open_files.variables(), "PYTHONUNBUFFERED": "1"},
            )
        self._processes[folder] = process
        threading.Thread(target=process.wait, name="warm-exit", daemon=True).start()  # or it stays as a zombie
        LOG.info("warm.started python=%s folder=%s", python, folder)

    def _attempt_environment(self, spec: AttemptSpec) -> dict[str, str]:
        """The part of the job's environment that must be set before Python starts and a framework is imported."""
        return import_time_environment({**user_environment(self._passed), **spec.env, **spec.replicas[0].env})

    def _folder(self, python: Path, env: Mapping[str, str]) -> Path:
        inputs = [str(python), self._ship().name, self._modules.get(python), sorted(env.items())]
        return self._home.warm / hashlib.sha256(orjson.dumps(inputs)).hexdigest()[:16]

    def _request(self, folder: Path, request: Mapping[str, Any]) -> bytes | None:
        """Send a request to the process in `folder`. Returns None if none listens, and empty if it disconnects."""
        connection = _connect(folder)
        if connection is None:
            return None
        with connection:
            try:
                connection.sendall(self._encode(request))
                received = b""
                while chunk := connection.recv(1 << 16):
                    received += chunk
            except (TimeoutError, ConnectionError) as exc:
                LOG.warning("warm.no_answer folder=%s reason=%s", folder, exc)
                return b""
            return received

    def _encode(self, request: Mapping[str, Any]) -> bytes:
        return orjson.dumps({**request, "server": self._server, "idle_s": self._idle_s}) + b"\n"


def _connect(folder: Path) -> socket.socket | None:
    """Connect to the process in `folder`. Returns None if none listens."""
    try:
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_RESPONSE_TIMEOUT_S)
    try:
        # Through the open folder, because a socket's path is limited to 107 bytes.
        connection.connect(f"/proc/self/fd/{folder_fd}/socket")
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError:
        connection.close()
        raise
    finally:
        os.close(folder_fd)
    return connection


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait for its exit, and kill it after a timeout."""
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
