"""A container below a host: started, waited for, watched and ended. The spec says what to run."""

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

_ASK_S = 5.0  #: that an answer to a health check may take
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5  #: between health checks while it starts
_WATCH_S = 10.0  #: between health checks while it has nothing to do
_CHANCES = 4  #: health checks that may fail, one after the other
_GRACE_S = 3.0  #: between SIGTERM and its end; it has answered everything by then
_END_S = 20.0  #: that the end may take
_WORDS = 2000  #: bytes of what it printed last


@dataclass(frozen=True, slots=True, kw_only=True)
class HostContainerSpec:
    """What to run, and how to reach it."""

    image: str  #: for people
    run: tuple[str, ...]  #: the command line that runs it, in the foreground
    env: Mapping[str, str] = field(repr=False)  #: what that has in its environment besides this process's own
    end: tuple[str, ...]  #: one that ends it and removes what is left; may be repeated
    port: int  #: of loopback
    predict: str  #: paths
    health: str
    wait_s: float  #: for the first good answer to a health check
    timeout_s: float  #: for an answer to a prediction

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """`ValueError` if there are other fields, or not all."""
        if value.keys() != {each.name for each in fields(cls)}:
            raise ValueError(f"The container of the spec has the fields {', '.join(sorted(value))}.")
        return cls(**{**value, "run": tuple(value["run"]), "end": tuple(value["end"])})


class HostContainer:
    """One start of a container. Its output goes where standard error goes."""

    def __init__(self, order: HostContainerSpec) -> None:
        self._order = order
        self._words = b""
        self._ending = False
        try:
            self._process = subprocess.Popen(
                order.run,
                env={**os.environ, **order.env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as exc:
            raise LoaderError(f"{order.run[0]} can't be run: {exc.strerror}.") from exc
        self._copying = threading.Thread(target=self._copy, name="output", daemon=True)
        self._copying.start()

    def await_health(self, ending: StopSignal) -> None:
        """Return as soon as it says that it is healthy, or the end comes. `LoaderError`, with its own words, if it does
        not in time."""
        deadline, pause_s, last = time.monotonic() + self._order.wait_s, _FIRST_PAUSE_S, ""
        while (problem := self._problem()) is not None:
            if self._process.poll() is not None:
                raise LoaderError(f"The container {self._how_it_ended()} before it was healthy.{self._said()}")
            last = problem
            if time.monotonic() > deadline:
                raise LoaderError(
                    f"The container did not answer GET {self._order.health} with status 200 within "
                    f"{self._order.wait_s:g} s: {last}.{self._said()}"
                )
            if ending.received(within_s=pause_s):
                return
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def watch(self, busy: Callable[[], bool], *, every_s: float = _WATCH_S) -> None:
        """From now on, end this process when the container has ended, or is not healthy any more.

        One that is `busy` is not asked: it may be able to do one thing at a time.
        """
        threading.Thread(target=self._watch, args=(busy, every_s), name="health", daemon=True).start()

    def end(self) -> None:
        """Ask it to end, and see to it. Nothing of it is left when this returns."""
        self._ending = True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.terminate()
            self._process.wait(_GRACE_S)
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(self._order.end, stdin=subprocess.DEVNULL, capture_output=True, timeout=_END_S, check=False)
        self._process.kill()
        self._process.wait()

    def _watch(self, busy: Callable[[], bool], every_s: float) -> None:
        failed = 0
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(every_s)
                self._give_up(f"The container {self._how_it_ended()}.")
            problem = None if busy() else self._problem()
            failed = failed + 1 if problem is not None else 0
            if failed >= _CHANCES:
                self._give_up(f"The container is not healthy any more: {problem}.")

    def _give_up(self, reason: str) -> None:
        if self._ending:
            return
        self._copying.join(1.0)
        sys.stderr.write(f"{reason}\n")
        sys.stderr.flush()
        self.end()
        os._exit(1)

    def _problem(self) -> str | None:
        """Why it is not healthy; None if it is."""
        upstream = Upstream(self._order.port, timeout_s=_ASK_S)
        try:
            status = upstream.get(self._order.health).status
        except UPSTREAM_ERRORS as exc:
            return f"there was no answer ({exc or type(exc).__name__})"
        finally:
            upstream.close()
        return None if status == 200 else f"it answered with status {status}"

    def _how_it_ended(self) -> str:
        status = self._process.wait()
        return f"was killed by signal {-status}" if status < 0 else f"ended with the exit status {status}"

    def _said(self) -> str:
        self._copying.join(1.0)
        words = self._words.decode(errors="replace").strip()
        return f" It said: {words}" if words else ""

    def _copy(self) -> None:
        """Pass on what it prints, and keep the end of it."""
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        while piece := os.read(output, 1 << 16):
            self._words = (self._words + piece)[-_WORDS:]
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(2, rest) :]
