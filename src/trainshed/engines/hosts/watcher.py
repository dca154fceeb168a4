"""Host processes, and the one thread that reads their ready messages and observes their exits."""

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

from trainshed.background import BackgroundLoop
from trainshed.domain.models.hosting import HostEndpoint
from trainshed.engines.reaped_process import ProcessHandle, describe_exit, kill_marked, log_tail
from trainshed.node.process import tree
from trainshed.node.process.reaper import SIGNAL_EXIT_BASE

LOG = logging.getLogger("trainshed.engines.local.hosts")

_KILL_TIMEOUT_S = 3.0  #: for a reaper to kill everything, before it is killed itself
_READY_MAX_BYTES = 8 << 20  #: a sample may contain an image
_MESSAGE_MAX_CHARS = 4096  #: of a failure message
_NAME_MAX_CHARS = 200
_READY_FIELDS: Mapping[str, Any] = {  #: types of the fields of a ready message
    "loader": str,
    "detail": str,
    "batching": bool,
    "invariance": dict,
    "precision": dict | None,
    "sample": dict | None,
    "signatures": dict,
    "load_s": int | float,
}
_INVARIANCE_FIELDS: Mapping[str, Any] = {"difference": int | float | None, "rows": int, "message": str}
_PRECISION_FIELDS: Mapping[str, Any] = {**_INVARIANCE_FIELDS, "name": str, "agreement": int | float | None}


class HostPhase(StrEnum):
    STARTING = "STARTING"
    READY = "READY"
    ENDED = "ENDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """Observed status of a host."""

    phase: HostPhase
    socket: Path
    pid: int  #: of its reaper, or that of its proxy
    endpoint: HostEndpoint | None = None  #: where it listens instead of the socket, once it is ready
    started_s: float  #: monotonic
    prepares_s: float = 0.0  #: extra time before it loads: its node may have to be set up first
    ready: Mapping[str, Any] = field(default_factory=dict)  #: its ready message
    message: str = ""  #: why it ended

    def too_slow(self, limit_s: float, now_s: float) -> str:
        """Why the host is given up, if it has not loaded its model in time. Empty otherwise."""
        if self.phase is not HostPhase.STARTING or now_s - self.started_s <= self.prepares_s + limit_s:
            return ""
        if not self.prepares_s:
            return f"It was not loaded within {limit_s:g} s."
        return (
            f"It was not loaded within {limit_s:g} s, nor within {self.prepares_s:g} s more for room on the "
            f"cluster and for its machine to get ready. Its log says how far it got."
        )


class HostProcess:
    """One start of a host. Only the watcher's thread changes its status."""

    def __init__(
        self,
        handle: ProcessHandle,
        log: Path,
        path: Path,
        *,
        endpoint: Callable[[], HostEndpoint] | None = None,
        prepares_s: float = 0.0,
        on_exit: Callable[[], None] | None = None,
        limit: Callable[[], str] = lambda: "",
        mask: Callable[[str], str] = lambda message: message,
    ) -> None:
        """`endpoint` returns where the host listens once it is ready, if that is not `path`.
        `prepares_s` as in `HostStatus`. `limit` returns in words the limit that ended it.
        `mask` is applied to messages of user code.

        `on_exit` is called after its exit, in a new thread.
        """
        self.handle = handle
        self._endpoint = endpoint
        self._on_exit = on_exit
        self._limit = limit
        self._mask = mask
        self._log = log
        self.pidfd = os.pidfd_open(handle.pid)
        self._buffer = b""
        self._lock = threading.Lock()
        self._reason = ""
        self._released = False
        self.kill_at = float("inf")
        self.ended = threading.Event()
        self.status = HostStatus(
            phase=HostPhase.STARTING, socket=path, pid=handle.pid, started_s=time.monotonic(), prepares_s=prepares_s
        )

    def send(self, number: int) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError):
            if not self.ended.is_set():
                signal.pidfd_send_signal(self.pidfd, number)

    def end(self, reason: str) -> None:
        with self._lock:
            if not self._released and not self.ended.is_set():
                self._released = True
                self._reason = reason
                self.handle.release()
                self.kill_at = time.monotonic() + _KILL_TIMEOUT_S

    def kill_reaper(self) -> None:
        """Kill the reaper and its descendants, because it did not do so itself."""
        for pid in (*tree.descendants(self.status.pid), self.status.pid):
            tree.send_signal(pid, signal.SIGKILL)
        self.kill_at = float("inf")

    def read(self) -> bool:
        """Read the ready message. Returns False if there is nothing more to read."""
        with contextlib.suppress(BlockingIOError):
            while chunk := self.handle.read():
                self._buffer = (self._buffer + chunk)[:_READY_MAX_BYTES]
            self._parse_ready()
            return False
        return not self._parse_ready()

    def _parse_ready(self) -> bool:
        line, end, _ = self._buffer.partition(b"\n")
        if not end:
            if len(self._buffer) >= _READY_MAX_BYTES:
                self.end(f"The host said more than {_READY_MAX_BYTES:,} bytes of itself.")
            return False
        try:
            message = orjson.loads(line)
            if message["event"] == "ready":
                endpoint = self._endpoint() if self._endpoint is not None else None
                self.status = replace(
                    self.status, phase=HostPhase.READY, ready=_check_ready(message), endpoint=endpoint
                )
            else:
                self._reason = self._reason or self._mask(str(message["message"]))[:_MESSAGE_MAX_CHARS]
        except (ValueError, LookupError, TypeError, OSError) as exc:
            self.end(f"The host sent an invalid line: {exc}.")
        self._buffer = b""
        return True

    def collect(self) -> None:
        """Handle the exit."""
        self.read()
        exit_status = self.handle.status()
        if exit_status > SIGNAL_EXIT_BASE:  # perhaps the reaper was killed, and left descendants
            kill_marked(str(self.status.socket))
        ending = f"reached its limit, {limit}" if (limit := self._limit()) else describe_exit(exit_status)
        message = self._reason or f"The host {ending}. {log_tail(self._log)}".strip()
        with self._lock:
            self.status = replace(self.status, phase=HostPhase.ENDED, message=message)
            self.ended.set()
            os.close(self.pidfd)
        self.status.socket.unlink(missing_ok=True)
        self.handle.close()
        if self._on_exit is not None:
            threading.Thread(target=self._on_exit, name="after-host", daemon=True).start()


def _check_ready(message: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a ready message. The host has run user code before it. Raises `ValueError` if they are invalid."""
    for name, kind in _READY_FIELDS.items():
        if not isinstance(message.get(name), kind):
            raise ValueError(f"{name} is {str(message.get(name))[:40]!r}")
    for name in ("loader", "detail"):
        if len(message[name]) > _NAME_MAX_CHARS:
            raise ValueError(f"{name} is longer than {_NAME_MAX_CHARS} characters")
    _check_fields("invariance", message["invariance"], _INVARIANCE_FIELDS)
    if message["precision"] is not None:
        _check_fields("precision", message["precision"], _PRECISION_FIELDS)
    return {name: message[name] for name in _READY_FIELDS}


def _check_fields(name: str, value: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless the value has exactly these fields, of these types and not too long."""
    if value.keys() != kinds.keys() or not all(isinstance(value[field], kind) for field, kind in kinds.items()):
        raise ValueError(f"{name} is {str(value)[:40]!r}")
    if len(value["message"]) > _MESSAGE_MAX_CHARS:
        raise ValueError(f"{name} is longer than {_MESSAGE_MAX_CHARS} characters")


class HostWatcher:
    """The thread that observes ready messages and exits."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wakeup_r, self._wakeup_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._wakeup_r, selectors.EVENT_READ)
        self._added: list[HostProcess] = []
        self._hosts: set[HostProcess] = set()
        self._closing = False
        self._on_change: Callable[[], None] = lambda: None
        self._loop = BackgroundLoop("hosts", self._step)

    def open(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._loop.start()

    def add(self, host: HostProcess) -> None:
        self._added.append(host)
        self.wakeup()

    def wakeup(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wakeup_w, b"x")

    def close(self) -> None:
        """Blocks until all hosts that were ended have exited."""
        self._closing = True
        self.wakeup()
        self._loop.join()

    def _step(self) -> float:
        """Wait for an event and handle it. Stops the loop after `close`, when no host is left."""
        if self._closing and not self._hosts and not self._added:
            self._loop.stop()
            return 0.0
        timeout_s = min((host.kill_at for host in self._hosts), default=float("inf")) - time.monotonic()
        self._handle(self._selector.select(None if timeout_s == float("inf") else max(0.0, timeout_s)))
        return 0.0

    def _handle(self, events: list[tuple[selectors.SelectorKey, int]]) -> None:
        # The wakeup is read before the list: a host that is added in between leaves its own byte for the next step.
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup_r, 1024)
        while self._added:
            self._register(self._added.pop())
        changed = False
        for key, _ in events:
            if key.data is None:
                continue
            host, has_exited = key.data
            changed = True
            if has_exited:
                self._collect(host)
            elif host in self._hosts and not host.read():
                self._selector.unregister(host.handle)
        for host in self._hosts:
            if host.kill_at <= time.monotonic():
                host.kill_reaper()
        if changed:
            self._on_change()

    def _register(self, host: HostProcess) -> None:
        self._hosts.add(host)
        self._selector.register(host.handle, selectors.EVENT_READ, (host, False))
        self._selector.register(host.pidfd, selectors.EVENT_READ, (host, True))

    def _collect(self, host: HostProcess) -> None:
        self._hosts.discard(host)
        self._selector.unregister(host.pidfd)
        with contextlib.suppress(KeyError):
            self._selector.unregister(host.handle)
        host.collect()
