"""TensorBoard processes of the server: one for a folder, on loopback, below a guard that ends it with the server.

All that it serves lies below a prefix that nobody can guess, so that its port opens nothing to others on the machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import orjson

from trainshed.artifacts.staging import SAFE_WRITE_FLAGS
from trainshed.engines.reaped_process import describe_exit, log_tail, start_reaped
from trainshed.errors import EngineUnavailableError

_READY = re.compile(rb"TensorBoard \S+ at http://[^\s/]+?:(\d+)/")
_LOG_HEAD = 1 << 16


class TensorBoard:
    """One process. It ends when it is told to, and when this process ends."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, spec: Path) -> None:
        self._process = process
        self._log = log
        self._spec = spec
        self._port = 0

    def port(self) -> int:
        """Where it listens on loopback; 0: not yet. `EngineUnavailableError`, with its last words, if it has ended."""
        if (status := self._process.poll()) is not None:
            said = log_tail(self._log).splitlines()[-1:]
            raise EngineUnavailableError(f"TensorBoard {describe_exit(status)}: {' '.join(said) or 'it said nothing'}")
        if not self._port:
            with open(self._log, "rb") as file:
                found = _READY.search(file.read(_LOG_HEAD))
            if found is not None:
                self._port = int(found[1])
                self._spec.unlink(missing_ok=True)
        return self._port

    def end(self) -> None:
        """End it, and wait until it is gone. May be called again."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()
        self._spec.unlink(missing_ok=True)


class TensorBoardStarter:
    """Starts them with what it has at hand: a folder for their logs, and the node (`ship`)."""

    def __init__(self, folder: Path, *, ship: Callable[[], Path]) -> None:
        self._folder = folder
        self._ship = ship

    def begin(self) -> None:
        """Clear what an earlier server left."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, python: Path, logdir: Path, *, number: int, prefix: str) -> TensorBoard:
        """Start one on a folder, there already or not, and return at once. `EngineUnavailableError` if it can't be."""
        words = [
            *("--logdir", str(logdir), "--host", "127.0.0.1", "--port", "0", "--path_prefix", prefix),
            *("--load_fast", "false", "--reload_interval", "5"),  # its fast loader would listen to all on the machine
        ]
        log, spec = self._folder / f"{number}.log", self._folder / f"{number}.json"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for old in (log, spec):
                old.unlink(missing_ok=True)
            with open(os.open(spec, os.O_TRUNC | SAFE_WRITE_FLAGS, 0o600), "wb") as file:
                file.write(orjson.dumps(words))
            process = start_reaped(python, self._ship(), ("tensorboard", str(spec)), log=log, work=self._folder)
        except OSError as exc:
            raise EngineUnavailableError(
                f"TensorBoard can't be started: {exc.filename or self._folder}: {exc.strerror}."
            ) from exc
        return TensorBoard(process, log, spec)
