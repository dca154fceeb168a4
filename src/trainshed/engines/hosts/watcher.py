"""Single starts of hosts, and the one thread that hears what they say of themselves and when they end."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from trainshed.domain.models.hosting import HostEndpoint
from trainshed.engines.reaped_process import ProcessHandle, describe_exit, kill_marked, log_tail
from trainshed.node.process import tree
from trainshed.node.process.reaper import SIGNAL_EXIT_BASE

LOG = logging.getLogger("trainshed.engines.local.hosts")

_KILL_S = 3.0  #: that a guard has to end everything, before it is killed itself
_LINE = 8 << 20  #: bytes; there may be a picture in it
_WORDS = 4096  #: characters of why it failed
_NAME = 200  #: characters
_READY: Mapping[str, Any] = {  #: what a host says of itself when it is ready
    "loader": str,
    "detail": str,
    "batching": bool,
    "sample": dict | None,
    "signatures": dict,
    "load_s": int | float,
}


class HostPhase(StrEnum):
    STARTING = "STARTING"
    READY = "READY"
    ENDED = "ENDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """What is known of a host."""

    phase: HostPhase
    socket: Path
    pid: int  #: of its guard, or that of what stands for it
    endpoint: HostEndpoint | None = None  #: where it listens instead of at the socket, once it is ready
    started_s: float  #: by the monotonic clock
    prepares_s: float = 0.0  #: that may pass before it begins to load: its machine may have to be made ready first
    ready: Mapping[str, Any] = field(default_factory=dict)  #: what it said of itself when it was ready
    message: str = ""  #: why it ended

    def too_slow(self, limit_s: float, now_s: float) -> str:
        """Why it is given up, if it has not loaded its model for so long; else nothing."""
        if self.phase is not HostPhase.STARTING or now_s - self.started_s <= self.prepares_s + limit_s:
            return ""
        if not self.prepares_s:
            return f"It was not loaded within {limit_s:g} s."
        return (
            f"It was not loaded within {limit_s:g} s, nor within {self.prepares_s:g} s more for room on the "
            f"cluster and for its machine to get ready. Its log says how far it got."
        )


class HostProcess:
    """One start of a host. Its sighting is changed by the watching thread alone."""

    def __init__(
        self,
        line: ProcessHandle,
        log: Path,
        path: Path,
        *,
        place: Callable[[], HostEndpoint] | None = None,
        prepares_s: float = 0.0,
        after: Callable[[], None] | None = None,
    ) -> None:
        """`place` tells where it listens once it is ready, if that is not at `path`. `prepares_s` as the sighting says.

        `after` is called when it has ended, by a thread of its own.
        """
        self.line = line
        self._place = place
        self._after = after
        self._log = log
        self.pidfd = os.pidfd_open(line.pid)
        self._said = b""
        self._lock = threading.Lock()
        self._reason = ""
        self._let_go = False
        self.kill_at = float("inf")
        self.ended = threading.Event()
        self.sighting = HostStatus(
            phase=HostPhase.STARTING, socket=path, pid=line.pid, started_s=time.monotonic(), prepares_s=prepares_s
        )

    def send(self, number: int) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError):
            if not self.ended.is_set():
                signal.pidfd_send_signal(self.pidfd, number)

    def end(self, reason: str) -> None:
        with self._lock:
            if not self._let_go and not self.ended.is_set():
                self._let_go = True
                self._reason = reason
                self.line.release()
                self.kill_at = time.monotonic() + _KILL_S

    def kill_guard(self) -> None:
        """Its guard did not do its work."""
        for pid in (*tree.descendants(self.sighting.pid), self.sighting.pid):
            tree.send_signal(pid, signal.SIGKILL)
        self.kill_at = float("inf")

    def read(self) -> bool:
        """Take what it says of itself. False if there is nothing more to come."""
        with contextlib.suppress(BlockingIOError):
            while piece := self.line.read():
                self._said = (self._said + piece)[:_LINE]
            self._understand()
            return False
        return not self._understand()

    def _understand(self) -> bool:
        line, end, _ = self._said.partition(b"\n")
        if not end:
            if len(self._said) >= _LINE:
                self.end(f"The host said more than {_LINE:,} bytes of itself.")
            return False
        try:
            said = orjson.loads(line)
            if said["event"] == "ready":
                place = self._place() if self._place is not None else None
                self.sighting = replace(self.sighting, phase=HostPhase.READY, ready=_checked(said), endpoint=place)
            else:
                self._reason = self._reason or str(said["message"])[:_WORDS]
        except (ValueError, LookupError, TypeError, OSError) as exc:
            self.end(f"The host said what makes no sense: {exc}.")
        self._said = b""
        return True

    def collect(self) -> None:
        """After its end."""
        self.read()
        status = self.line.status()
        if status > SIGNAL_EXIT_BASE:  # perhaps its guard was, which then could not see to the rest
            kill_marked(str(self.sighting.socket))
        message = self._reason or f"The host {describe_exit(status)}. {log_tail(self._log)}".strip()
        with self._lock:
            self.sighting = replace(self.sighting, phase=HostPhase.ENDED, message=message)
            self.ended.set()
            os.close(self.pidfd)
        self.sighting.socket.unlink(missing_ok=True)
        self.line.close()
        if self._after is not None:
            threading.Thread(target=self._after, name="after-host", daemon=True).start()


def _checked(said: Mapping[str, Any]) -> dict[str, Any]:
    """What a host may say of itself. It has run a user's code before it does. `ValueError` if it is something else."""
    for name, kind in _READY.items():
        if not isinstance(said.get(name), kind):
            raise ValueError(f"{name} is {str(said.get(name))[:40]!r}")
    for name in ("loader", "detail"):
        if len(said[name]) > _NAME:
            raise ValueError(f"{name} is longer than {_NAME} characters")
    return {name: said[name] for name in _READY}


class HostWatcher:
    """The thread that hears of everything: ready lines and ends."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._nudge_r, self._nudge_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._nudge_r, selectors.EVENT_READ)
        self._added: list[HostProcess] = []
        self._hosts: set[HostProcess] = set()
        self._closing = False
        self._on_change: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="hosts", daemon=True)

    def open(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._thread.start()

    def add(self, host: HostProcess) -> None:
        self._added.append(host)
        self.wakeup()

    def wakeup(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._nudge_w, b"x")

    def close(self) -> None:
        """Returns when all that were told to end have ended."""
        self._closing = True
        self.wakeup()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closing or self._hosts or self._added:
            late = min((host.kill_at for host in self._hosts), default=float("inf")) - time.monotonic()
            events = self._selector.select(None if late == float("inf") else max(0.0, late))
            try:
                self._take(events)
            except Exception:  # the others must still be watched
                LOG.exception("host.watch_failed")

    def _take(self, events: list[tuple[selectors.SelectorKey, int]]) -> None:
        while self._added:
            self._register(self._added.pop())
        changed = False
        for key, _ in events:
            if key.data is None:
                os.read(self._nudge_r, 1024)
                continue
            host, ended = key.data
            changed = True
            if ended:
                self._collect(host)
            elif host in self._hosts and not host.read():
                self._selector.unregister(host.line)
        for host in self._hosts:
            if host.kill_at <= time.monotonic():
                host.kill_guard()
        if changed:
            self._on_change()

    def _register(self, host: HostProcess) -> None:
        self._hosts.add(host)
        self._selector.register(host.line, selectors.EVENT_READ, (host, False))
        self._selector.register(host.pidfd, selectors.EVENT_READ, (host, True))

    def _collect(self, host: HostProcess) -> None:
        self._hosts.discard(host)
        self._selector.unregister(host.pidfd)
        with contextlib.suppress(KeyError):
            self._selector.unregister(host.line)
        host.collect()
