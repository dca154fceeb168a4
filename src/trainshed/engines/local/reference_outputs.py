"""TensorFlow's own answers for a version, to hold another loader's against.

TensorFlow takes seconds to import, so they are worked out in a fork of the runtime's warm process where there is one.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from trainshed.engines.hosts.spec import HostSpec, render
from trainshed.engines.local.hosts import IN_TENSORFLOW, MODULE
from trainshed.engines.local.warm import WarmProcesses
from trainshed.engines.reaped_process import (
    LOG_BYTES,
    LOOK_S,
    ChildRun,
    ReapedRun,
    describe_exit,
    log_tail,
    start_reaped,
    wait,
)
from trainshed.errors import DeadlineExceededError, EngineUnavailableError

_WARMING_S = 60.0  #: how long a warm process that is being started is waited for


class ReferenceOutputs:
    """`ship` gives the node. Safe to use from many threads."""

    def __init__(self, warm: WarmProcesses, *, ship: Callable[[], Path]) -> None:
        self._warm = warm
        self._ship = ship

    def expect(self, python: Path) -> None:
        """Have a warm process for this interpreter, if there shall be any, for the first `compute`."""
        self._warm.prepare(python)

    def await_warm(self, spec: HostSpec, *, check: Callable[[], None]) -> None:
        """Wait until a host of this spec can be forked, if it is to be: importing twice takes no less. Then, or if no
        warm process comes, return; what `check`, called meanwhile, raises goes through.
        """
        if spec.site or spec.loader not in IN_TENSORFLOW:
            return
        self._warm.prepare(spec.python)
        deadline = time.monotonic() + _WARMING_S
        while self._warm.coming(spec.python) and not self._warm.listens(spec.python) and time.monotonic() < deadline:
            check()
            time.sleep(LOOK_S)

    def compute(self, spec: HostSpec, folder: Path, *, timeout_s: float, check: Callable[[], None]) -> Path:
        """The file with the answers, in `folder`. Blocks; `check` is called meanwhile, and what it raises ends it.

        `EngineUnavailableError`, with the reason, if there are none.
        """
        out, log, written = folder / "reference.npz", folder / "reference.log", folder / "reference.json"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for old in (out, log):
                old.unlink(missing_ok=True)
            written.write_bytes(orjson.dumps(render(spec, folder / "none")))
            run = self._start(spec.python, ("reference", str(written), str(out)), log, check)
        except OSError as exc:
            raise EngineUnavailableError(
                f"TensorFlow can't be started: {exc.filename or folder}: {exc.strerror}."
            ) from exc
        try:
            status = wait(run, timeout_s=timeout_s, check=check)
        except DeadlineExceededError as exc:
            raise EngineUnavailableError(f"TensorFlow did not answer within {timeout_s:g} s.") from exc
        if status != 0 or not out.exists():
            raise EngineUnavailableError(log_tail(log) or f"TensorFlow {describe_exit(status)}.")
        return out

    def _start(self, python: Path, words: tuple[str, ...], log: Path, check: Callable[[], None]) -> ChildRun:
        """In a fork of the warm process, which is waited for if it is on its way: importing twice takes no less."""
        deadline = time.monotonic() + _WARMING_S
        while True:
            connection = self._warm.run(python, (MODULE, *words), log=log, log_limit=LOG_BYTES)
            if connection is not None:
                return _Forked(connection)
            if not self._warm.coming(python) or time.monotonic() > deadline:
                return ReapedRun(start_reaped(python, self._ship(), words, log=log, work=log.parent))
            check()
            time.sleep(LOOK_S)


class _Forked:
    """A run in a fork of a warm process."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connection.settimeout(LOOK_S)
        self._said = b""

    def status(self) -> int | None:
        """A warm process that broke off counts as a failure."""
        with contextlib.suppress(TimeoutError):
            while piece := self._connection.recv(1 << 16):
                self._said += piece
            word = self._said.rpartition(b"\0")[2]
            return int(word) if word.isdigit() else 1
        return None

    def end(self) -> None:
        self._connection.close()
