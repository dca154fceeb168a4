"""TensorBoard processes of the server: one a folder, below a reaper that kills it with the server.

In a sandbox with a network of its own, the server reaches one by a unix socket. Else it listens on loopback.

All paths have an unguessable prefix, so that the port gives nothing to other users of the machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from trainshed.artifacts.staging import SAFE_WRITE_FLAGS
from trainshed.domain.jobs.board_folder import BoardFolder
from trainshed.engines.local.sandbox import Sandbox
from trainshed.engines.reaped_process import describe_exit, log_tail, start_reaped
from trainshed.errors import EngineUnavailableError
from trainshed.node.process.environment import user_environment
from trainshed.node.tensorboard import RELAYED_PORT

_LISTENING = re.compile(rb"TensorBoard \S+ at http://[^\s/]+?:(\d+)/")
_LOG_SCAN_BYTES = 1 << 16
_SOCKET_PATH_MAX_BYTES = 107


class TensorBoard:
    """One TensorBoard process. It ends on `end`, and with this process."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, listener: Path | None = None) -> None:
        """`listener` is its unix socket, if it has one."""
        self._process = process
        self._folder = folder
        self._listener = listener
        self._log, self._spec = folder / "log", folder / "arguments.json"
        self._port = 0

    def address(self) -> int | Path | None:
        """Its loopback port or its unix socket; None if it does not listen yet. Raises `EngineUnavailableError` with
        its log tail if it has exited."""
        if (status := self._process.poll()) is not None:
            tail = log_tail(self._log).splitlines()[-1:]
            raise EngineUnavailableError(f"TensorBoard {describe_exit(status)}: {' '.join(tail) or 'it said nothing'}")
        if not self._port:
            with open(self._log, "rb") as file:
                match = _LISTENING.search(file.read(_LOG_SCAN_BYTES))
            if match is not None:
                self._port = int(match[1])
                self._spec.unlink(missing_ok=True)
        return self._listener or self._port if self._port else None

    def end(self) -> None:
        """Kill it. Blocks until it is gone. Idempotent."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class LocalTensorBoardLauncher:
    """Starts TensorBoard processes, with a folder for their logs and the shipped code (`ship`)."""

    def __init__(
        self,
        folder: Path,
        *,
        ship: Callable[[], Path],
        env: Callable[[], Mapping[str, str]] = user_environment,
        sandbox: Sandbox | None = None,
    ) -> None:
        """Without `sandbox`, they run as the server does."""
        self._folder = folder
        self._env = env
        self._ship = ship
        self._sandbox = sandbox

    def begin(self) -> None:
        """Remove what an earlier server left."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, python: Path, events: BoardFolder, *, number: int, prefix: str) -> TensorBoard:
        """Start one on a folder, which may not exist yet. Returns immediately. Raises
        `EngineUnavailableError` if it fails."""
        folder = self._folder / str(number)
        listener = self._listener(folder)
        arguments = [
            *("--logdir", str(events.path), "--host", "127.0.0.1", "--port", str(RELAYED_PORT) if listener else "0"),
            *("--path_prefix", prefix),
            *("--load_fast", "false", "--reload_interval", "5"),  # its fast loader would listen on all interfaces
        ]
        log, spec, work = folder / "log", folder / "arguments.json", folder / "work"
        try:
            work.mkdir(mode=0o700, parents=True)
            cell = self._cell(events, folder, listener)
            with open(os.open(spec, os.O_TRUNC | SAFE_WRITE_FLAGS, 0o600), "wb") as file:
                file.write(orjson.dumps(arguments))
            process = start_reaped(
                python, self._ship(), ("tensorboard", str(spec)), log=log, work=work, env=self._env(), cell=cell
            )
        except OSError as exc:
            raise EngineUnavailableError(
                f"TensorBoard can't be started: {exc.filename or self._folder}: {exc.strerror}."
            ) from exc
        return TensorBoard(process, folder, listener)

    def _listener(self, folder: Path) -> Path | None:
        """The unix socket of one that has a network of its own."""
        path = folder / "socket"
        own = self._sandbox is not None and self._sandbox.networks is not None
        return path if own and len(os.fsencode(path)) <= _SOCKET_PATH_MAX_BYTES else None

    def _cell(self, events: BoardFolder, folder: Path, listener: Path | None) -> Mapping[str, Any] | None:
        if self._sandbox is None:
            return None
        return self._sandbox.cell(
            events.project,
            private=folder / "private",
            readable=(folder / "arguments.json", events.root),
            writable=(folder / "work",),
            listen=listener,
            network=listener is not None,
        )
