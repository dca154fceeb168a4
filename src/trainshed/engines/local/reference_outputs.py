"""Computes a framework's own responses for a version, to compare with those of another loader.

TensorFlow takes seconds to import, so they are computed in a fork of the runtime's warm process if there is one.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from trainshed.domain.models.hosting import REFERENCES
from trainshed.engines.hosts.spec import HostSpec, render
from trainshed.engines.local.hosts import MODULE, TENSORFLOW_LOADERS
from trainshed.engines.local.sandbox import Sandbox
from trainshed.engines.local.warm import WarmProcesses
from trainshed.engines.reaped_process import (
    STATUS_TIMEOUT_S,
    ChildRun,
    ReapedRun,
    describe_exit,
    log_tail,
    start_reaped,
    wait,
)
from trainshed.errors import DeadlineExceededError, EngineUnavailableError
from trainshed.node.process.environment import user_environment

_WARM_TIMEOUT_S = 60.0  #: for a warm process that is starting


class ReferenceOutputs:
    """Computes reference outputs. `ship` returns the folder of shipped code, `env` what a new process gets of the
    server's environment. Thread-safe."""

    def __init__(
        self,
        warm: WarmProcesses,
        *,
        ship: Callable[[], Path],
        env: Callable[[], Mapping[str, str]] = user_environment,
        sandbox: Sandbox | None = None,
    ) -> None:
        """Without `sandbox`, TensorFlow runs as the server does."""
        self._warm = warm
        self._env = env
        self._ship = ship
        self._sandbox = sandbox

    def expect(self, python: Path) -> None:
        """Start the warm process of this interpreter, if it has one, before the first `compute`."""
        self._warm.prepare(python)

    def await_warm(self, spec: HostSpec, *, check: Callable[[], None]) -> None:
        """Blocks until a host of this spec can be forked, or no warm process is starting. A second import is no
        faster. Propagates what `check`, called meanwhile, raises."""
        if spec.site or spec.loader not in TENSORFLOW_LOADERS:
            return
        self._warm.prepare(spec.python)
        deadline = time.monotonic() + _WARM_TIMEOUT_S
        while (
            self._warm.is_starting(spec.python) and not self._warm.is_ready(spec.python) and time.monotonic() < deadline
        ):
            check()
            time.sleep(STATUS_TIMEOUT_S)

    def compute(self, spec: HostSpec, folder: Path, *, timeout_s: float, check: Callable[[], None]) -> Path:
        """Compute the responses of the spec's loader into a file in `folder`, and return its path. Blocks; what
        `check` raises meanwhile ends it.

        Raises `EngineUnavailableError` with the reason if it fails.
        """
        framework = REFERENCES[spec.loader]
        results, log, spec_file = folder / "reference", folder / "reference.log", folder / "reference.json"
        out, private = results / "outputs.npz", folder / "reference.private"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in (results, private):
                shutil.rmtree(left, ignore_errors=True)
            results.mkdir(mode=0o700)
            log.unlink(missing_ok=True)
            spec_file.write_bytes(orjson.dumps(render(spec, None)))
            cell = self._cell(spec, spec_file, private=private, results=results)
            run = self._start(spec, ("reference", str(spec_file), str(out)), log, check, cell)
        except OSError as exc:
            raise EngineUnavailableError(
                f"{framework} can't be started: {exc.filename or folder}: {exc.strerror}."
            ) from exc
        try:
            status = wait(run, timeout_s=timeout_s, check=check)
        except DeadlineExceededError as exc:
            raise EngineUnavailableError(f"{framework} did not answer within {timeout_s:g} s.") from exc
        finally:
            shutil.rmtree(private, ignore_errors=True)
        if status != 0 or not out.exists():
            raise EngineUnavailableError(log_tail(log) or f"{framework} {describe_exit(status)}.")
        return out

    def _cell(self, spec: HostSpec, spec_file: Path, *, private: Path, results: Path) -> Mapping[str, Any] | None:
        if self._sandbox is None:
            return None
        readable = (spec_file, spec.model_dir, *([Path(spec.site)] if spec.site else ()))
        return self._sandbox.cell(spec.project, private=private, readable=readable, writable=(results,))

    def _start(
        self,
        spec: HostSpec,
        arguments: tuple[str, ...],
        log: Path,
        check: Callable[[], None],
        cell: Mapping[str, Any] | None,
    ) -> ChildRun:
        """Start it, in a fork of the warm process if it needs TensorFlow. Waits for one that is starting, because a
        second import is no faster."""
        python, needs_tensorflow = spec.python, spec.loader in TENSORFLOW_LOADERS
        deadline = time.monotonic() + _WARM_TIMEOUT_S
        while needs_tensorflow:
            connection = self._warm.run(python, (MODULE, *arguments), log=log, cell=cell)
            if connection is not None:
                return _ForkedRun(connection)
            if not self._warm.is_starting(python) or time.monotonic() > deadline:
                break
            check()
            time.sleep(STATUS_TIMEOUT_S)
        work = Path(arguments[-1]).parent
        process = start_reaped(python, self._ship(), arguments, log=log, work=work, env=self._env(), cell=cell)
        return ReapedRun(process)


class _ForkedRun:
    """A run in a fork of a warm process."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connection.settimeout(STATUS_TIMEOUT_S)
        self._buffer = b""

    def status(self) -> int | None:
        """A warm process that disconnects counts as a failure."""
        with contextlib.suppress(TimeoutError):
            while chunk := self._connection.recv(1 << 16):
                self._buffer += chunk
            status = self._buffer.rpartition(b"\0")[2]
            return int(status) if status.isdigit() else 1
        return None

    def end(self) -> None:
        self._connection.close()
