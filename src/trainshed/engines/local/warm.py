"""Warm processes as the server sees them: which there are, asking them to start jobs, starting and ending them.

There is at most one for each runtime, in a folder of its own below `Home.warm`. The folder's name is made from all that
the process depends on, so one that was started with anything else is never asked. They outlive a server that is killed;
the next server finds them by their folders.
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from trainshed.config import Home
from trainshed.engines.base import AttemptSpec
from trainshed.node.process.spawn import inherited_environment
from trainshed.node.process.tree import stat_fields
from trainshed.node.warm.compatibility import import_time_environment

LOG = logging.getLogger("trainshed.engines.local.warm")

RECENT_S = 7 * 24 * 3600.0  #: a runtime used since then is warmed up when the server starts
PATIENCE_S = 120.0  #: how long a warm process waits for the next server when its own is gone
_ANSWER_S = 10.0
_END_S = 5.0
#: What a warm process has of the server's environment, besides what frameworks read when they are imported. No secrets.
_KEPT = frozenset(("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "TMPDIR"))

OFF = ""
NOT_READY = "no warm process of its runtime was ready"
FAILED = "the warm process of its runtime did not start it"


class WarmProcesses:
    """Starts jobs from warm processes. `modules` is what is imported for an interpreter, `ship` gives the node.

    Nothing here raises because a warm process fails: then jobs start cold. Safe to use from many threads.
    """

    def __init__(self, home: Home, *, modules: Mapping[Path, tuple[str, ...]], ship: Callable[[], Path]) -> None:
        self._home = home
        self._modules = modules
        self._ship = ship
        self._server = [os.getpid(), int(stat_fields(os.getpid())[19])]
        self._guard = threading.Lock()
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}
        self._wanted: dict[Path, Path] = {}
        self._closed = False

    def begin(self) -> None:
        """Find the processes that an earlier server left, and start those for runtimes that were used recently."""
        for spec in self._home.warm.glob("*/spec.json"):
            folder = spec.parent
            try:
                known = orjson.loads(spec.read_bytes())
                python, env = Path(known["python"]), known["env"]
                age_s = time.time() - spec.stat().st_mtime
                current = age_s < RECENT_S and python.exists() and folder == self._folder(python, env)
                if not current:
                    shutil.rmtree(folder)  # its process sees that, and ends
                    continue
                self._wanted[python] = folder
                if self._ask(folder, {"do": "hello"}) is None:
                    self._start(folder, python, env)
            except (OSError, ValueError, KeyError) as exc:
                LOG.warning("warm.not_found_again folder=%s reason=%s", folder, exc)

    def launch(self, launch: AttemptSpec) -> str | None:
        """Have the attempt started by a warm process. None: done; else why not, or `OFF` if there is none to be had."""
        if not self._modules.get(launch.python):
            return OFF
        env = _environment(launch)
        try:
            folder = self._folder(launch.python, env)
            answer = self._ask(folder, {"do": "launch", "folder": str(launch.folder), "env": inherited_environment()})
            if answer is None:
                self._warm_up(folder, launch.python, env)
                return NOT_READY
            os.utime(folder / "spec.json")
        except OSError as exc:
            LOG.warning("warm.unusable python=%s reason=%s", launch.python, exc)
            return FAILED
        said, _, status = answer.partition(b"\0")
        if status == b"0":
            return None
        LOG.warning("warm.launch_failed job=%s reason=%s", launch.job, said.decode(errors="replace").strip())
        return FAILED

    def run(
        self, python: Path, argv: Sequence[str], *, log: Path, log_limit: int, talks_in: Path | None = None
    ) -> socket.socket | None:
        """Have a warm process of `python` run our own module `argv[0]`, with the rest as its arguments, in a fork.

        Returns what it answers on: after a NUL the exit status, then nothing more. Closing it ends the fork. None if
        there is no warm process; then one is started, for the next time. With a folder to talk in, the fork runs there,
        its pid comes first, in a line, and then what it says on its standard output.
        """
        if not self._modules.get(python):
            return None
        plain = inherited_environment()
        env = import_time_environment(plain)
        request = {
            "do": "run",
            "argv": list(argv),
            "env": {**plain, "PYTHONPATH": str(self._ship())},
            "log": str(log),
            "log_limit": log_limit,
            "talks_in": str(talks_in or ""),
        }
        try:
            folder = self._folder(python, env)
            if (connection := _connect(folder)) is not None:
                connection.sendall(self._line(request))
                os.utime(folder / "spec.json")
                return connection
            self._warm_up(folder, python, env)
        except OSError as exc:
            LOG.warning("warm.unusable python=%s reason=%s", python, exc)
        return None

    def prepare(self, python: Path) -> None:
        """Start the warm process that `run` would ask, unless it is there."""
        if not self._modules.get(python):
            return
        env = import_time_environment(inherited_environment())
        try:
            folder = self._folder(python, env)
            if self._ask(folder, {"do": "hello"}) is None:
                self._warm_up(folder, python, env)
        except OSError as exc:
            LOG.warning("warm.unusable python=%s reason=%s", python, exc)

    def listens(self, python: Path) -> bool:
        """Whether a warm process that `run` would ask is there and ready."""
        return (
            self._ask(self._folder(python, import_time_environment(inherited_environment())), {"do": "hello"})
            is not None
        )

    def coming(self, python: Path) -> bool:
        """Whether a warm process that `run` would ask is there, though it may not listen yet."""
        process = self._processes.get(self._folder(python, import_time_environment(inherited_environment())))
        return process is not None and process.poll() is None

    def close(self) -> None:
        """End the processes. Jobs that were started from them go on."""
        with self._guard:
            self._closed = True
            own = dict(self._processes)
        told = set()
        for spec in self._home.warm.glob("*/spec.json"):
            with contextlib.suppress(OSError):  # whoever can't be told notices that there is no server
                if self._ask(spec.parent, {"do": "end"}):
                    told.add(spec.parent)
        for folder, process in own.items():
            if folder not in told:  # it still imports
                process.terminate()
            _wait(process)

    def _warm_up(self, folder: Path, python: Path, env: Mapping[str, str]) -> None:
        """Start one for the next time, unless it is on its way or has failed. One odd job displaces no other."""
        with self._guard:
            last, self._wanted[python] = self._wanted.get(python, folder), folder
            process = self._processes.get(folder)
            if self._closed or (process is not None and (process.poll() is None or process.returncode > 0)):
                return
            if last != folder and self._ask(last, {"do": "hello"}) is not None:
                return
            for spec in self._home.warm.glob("*/spec.json"):
                if spec.parent != folder and orjson.loads(spec.read_bytes())["python"] == str(python):
                    shutil.rmtree(spec.parent, ignore_errors=True)  # its process sees that, and ends
            self._start(folder, python, env)

    def _start(self, folder: Path, python: Path, env: Mapping[str, str]) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "socket").unlink(missing_ok=True)
        spec = {
            "python": str(python),
            "env": env,
            "modules": self._modules[python],
            "server": self._server,
            "patience_s": PATIENCE_S,
        }
        (folder / "spec.json").write_bytes(orjson.dumps(spec))
        kept = {name: value for name, value in inherited_environment().items() if name in _KEPT}
        with open(folder / "log", "wb") as log:
            self._processes[folder] = subprocess.Popen(
                [python, self._ship() / "run.py", "warm", folder],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env={**kept, **env, "PYTHONUNBUFFERED": "1"},
            )
        LOG.info("warm.started python=%s folder=%s", python, folder)

    def _folder(self, python: Path, env: Mapping[str, str]) -> Path:
        made_of = [str(python), self._ship().name, self._modules.get(python), sorted(env.items())]
        return self._home.warm / hashlib.sha256(orjson.dumps(made_of)).hexdigest()[:16]

    def _ask(self, folder: Path, request: Mapping[str, Any]) -> bytes | None:
        """What the process in `folder` answers; None if there is none that listens, empty if it broke off."""
        connection = _connect(folder)
        if connection is None:
            return None
        with connection:
            try:
                connection.sendall(self._line(request))
                received = b""
                while chunk := connection.recv(1 << 16):
                    received += chunk
            except (TimeoutError, ConnectionError) as exc:
                LOG.warning("warm.no_answer folder=%s reason=%s", folder, exc)
                return b""
            return received

    def _line(self, request: Mapping[str, Any]) -> bytes:
        return orjson.dumps({**request, "server": self._server}) + b"\n"


def _connect(folder: Path) -> socket.socket | None:
    """A connection to the process in `folder`; None if there is none that listens."""
    try:
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_ANSWER_S)
    try:
        # By way of the open folder, because the name of a socket may have no more than 107 bytes.
        connection.connect(f"/proc/self/fd/{here}/socket")
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError:
        connection.close()
        raise
    finally:
        os.close(here)
    return connection


def _environment(launch: AttemptSpec) -> dict[str, str]:
    """What of the job's environment must be there when Python starts and a framework is imported."""
    return import_time_environment({**inherited_environment(), **launch.env, **launch.replicas[0].env})


def _wait(process: subprocess.Popen[bytes]) -> None:
    """For its end, but not for ever."""
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
