"""A container below a host: start, wait for health, watch, stop. The spec says what to run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from ..errors import LoaderError
from ..host.lifecycle import StopSignal
from .upstream import UPSTREAM_ERRORS, Upstream

_HEALTH_TIMEOUT_S = 5.0  #: of a health check
#: between health checks during startup, with exponential backoff
_MIN_POLL_INTERVAL_S, _MAX_POLL_INTERVAL_S = 0.02, 0.5
_WATCH_INTERVAL_S = 10.0  #: between health checks while it is idle
_MAX_FAILED_CHECKS = 4  #: consecutive ones, before it counts as unhealthy
_STOP_GRACE_S = 3.0  #: between SIGTERM and SIGKILL; all requests are answered by then
_REMOVE_TIMEOUT_S = 20.0  #: for the removal command
_MAX_TAIL_BYTES = 2000  #: of its last output


@dataclass(frozen=True, slots=True, kw_only=True)
class HostContainerSpec:
    """What to run, and how to reach it."""

    image: str  #: for people
    run: tuple[str, ...]  #: command line that runs it in the foreground
    env: Mapping[str, str] = field(repr=False)  #: extra environment variables of that command
    end: tuple[str, ...]  #: idempotent command that kills and removes it
    port: int  #: on loopback
    predict: str  #: paths
    health: str
    wait_s: float  #: until the first successful health check
    timeout_s: float  #: of a prediction

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the spec. Raises `ValueError` if fields are unknown or missing."""
        if value.keys() != {item.name for item in fields(cls)}:
            raise ValueError(f"The container of the spec has the fields {', '.join(sorted(value))}.")
        return cls(**{**value, "run": tuple(value["run"]), "end": tuple(value["end"])})


class HostContainer:
    """One start of a container. Its output goes to standard error."""

    def __init__(self, spec: HostContainerSpec) -> None:
        self._spec = spec
        self._output_tail = b""
        self._stopping = False
        try:
            self._process = subprocess.Popen(
                spec.run,
                env={**os.environ, **spec.env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as exc:
            raise LoaderError(f"{spec.run[0]} can't be run: {exc.strerror}.") from exc
        self._copy_thread = threading.Thread(target=self._copy_output, name="output", daemon=True)
        self._copy_thread.start()

    def await_health(self, stop: StopSignal) -> None:
        """Block until it is healthy or a stop signal arrives.

        Raises `LoaderError`, with its last output, on a timeout.
        """
        deadline, pause_s, last = time.monotonic() + self._spec.wait_s, _MIN_POLL_INTERVAL_S, ""
        while (problem := self._health_problem()) is not None:
            if self._process.poll() is not None:
                raise LoaderError(
                    f"The container {self._describe_exit()} before it was healthy.{self._describe_output()}"
                )
            last = problem
            if time.monotonic() > deadline:
                raise LoaderError(
                    f"The container did not answer GET {self._spec.health} with status 200 within "
                    f"{self._spec.wait_s:g} s: {last}.{self._describe_output()}"
                )
            if stop.received(within_s=pause_s):
                return
            pause_s = min(2 * pause_s, _MAX_POLL_INTERVAL_S)

    def watch(self, busy: Callable[[], bool], *, interval_s: float = _WATCH_INTERVAL_S) -> None:
        """From now on, exit this process when the container exits or becomes unhealthy.

        No health checks are sent while it is `busy`, because it may handle only one request at a time.
        """
        threading.Thread(target=self._watch, args=(busy, interval_s), name="health", daemon=True).start()

    def end(self) -> None:
        """Stop the container. Blocks until it is removed."""
        self._stopping = True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.terminate()
            self._process.wait(_STOP_GRACE_S)
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                self._spec.end, stdin=subprocess.DEVNULL, capture_output=True, timeout=_REMOVE_TIMEOUT_S, check=False
            )
        self._process.kill()
        self._process.wait()

    def _watch(self, busy: Callable[[], bool], interval_s: float) -> None:
        failed_checks = 0
        while not self._stopping:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(interval_s)
                self._exit_host(f"The container {self._describe_exit()}.")
            problem = None if busy() else self._health_problem()
            failed_checks = failed_checks + 1 if problem is not None else 0
            if failed_checks >= _MAX_FAILED_CHECKS:
                self._exit_host(f"The container is not healthy any more: {problem}.")

    def _exit_host(self, reason: str) -> None:
        if self._stopping:
            return
        self._copy_thread.join(1.0)
        sys.stderr.write(f"{reason}\n")
        sys.stderr.flush()
        self.end()
        os._exit(1)

    def _health_problem(self) -> str | None:
        """Why it is not healthy. Returns None if it is."""
        upstream = Upstream(self._spec.port, timeout_s=_HEALTH_TIMEOUT_S)
        try:
            status = upstream.get(self._spec.health).status
        except UPSTREAM_ERRORS as exc:
            return f"there was no answer ({exc or type(exc).__name__})"
        finally:
            upstream.close()
        return None if status == 200 else f"it answered with status {status}"

    def _describe_exit(self) -> str:
        status = self._process.wait()
        return f"was killed by signal {-status}" if status < 0 else f"ended with the exit status {status}"

    def _describe_output(self) -> str:
        self._copy_thread.join(1.0)
        tail = self._output_tail.decode(errors="replace").strip()
        return f" It said: {tail}" if tail else ""

    def _copy_output(self) -> None:
        """Copy its output to standard error, and keep the tail."""
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        while chunk := os.read(output, 1 << 16):
            self._output_tail = (self._output_tail + chunk)[-_MAX_TAIL_BYTES:]
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(2, rest) :]
