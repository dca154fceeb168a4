"""Hosts as processes that are watched: looked at, asked, drained and killed, wherever they run.

Each runs, or is stood for, below a guard of its own (`node.guard`) on this machine, which ends it and all that it
started as soon as the server lets go of it. Nothing of a host outlives the server; the next one starts them anew.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import IO, Any

import orjson

from trainshed.config import Home
from trainshed.engines.hosts.watcher import HostPhase, HostProcess, HostStatus, HostWatcher
from trainshed.errors import EngineUnavailableError
from trainshed.serving.frames import ANSWER_HEAD, FrameKind, auth_frame, pack_request

FIGURES = ("waiting", "running_s", "requests", "instances", "batches", "failed", "refused", "cancelled")
_FIGURES_S = 0.5
_ANSWER_BYTES = 1 << 20  #: of what a host answers to us, and not to a caller


class HostProcessEngine:
    """Keys name single starts of hosts; one that is unknown or ended is left alone. Safe to use from many threads."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._numbers = count(1)
        self._guard = threading.Lock()
        self._hosts: dict[str, HostProcess] = {}
        self._watch = HostWatcher()

    def open(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called by the watcher's thread whenever a status changes."""
        self._watch.open(on_change)

    def _add(self, key: str, host: HostProcess) -> None:
        with self._guard:
            self._hosts[key] = host
        self._watch.add(host)

    def folder(self, project: str, model: str, version: str) -> Path:
        return self._home.hosts / project / model / version

    def remove(self, project: str, model: str, version: str) -> None:
        """Remove what the hosts of a version had. None of them may run any more."""
        folder = self.folder(project, model, version)
        with self._guard:
            shutil.rmtree(folder, ignore_errors=True)
            for above in (folder.parent, folder.parent.parent):
                with contextlib.suppress(OSError):  # others are there, or none ever was
                    above.rmdir()

    def status(self, key: str) -> HostStatus | None:
        """None if it was forgotten."""
        host = self._hosts.get(key)
        return host.sighting if host is not None else None

    def drain(self, key: str) -> None:
        """Let it answer what it has and end. Returns at once."""
        if host := self._hosts.get(key):
            host.send(signal.SIGTERM)

    def kill(self, key: str, *, reason: str = "") -> None:
        """End it, and all that it started, now. Returns at once. `reason` is what its sighting will say."""
        if host := self._hosts.get(key):
            host.end(reason)
            self._watch.wakeup()

    def forget(self, key: str) -> None:
        """Drop a host that ended."""
        with self._guard:
            host = self._hosts.get(key)
            if host is not None and host.sighting.phase is HostPhase.ENDED:
                del self._hosts[key]

    def discard(self, key: str) -> None:
        """End it now, and know nothing of it any more."""
        self.kill(key)
        with self._guard:
            self._hosts.pop(key, None)

    def _difference(self, key: str, kind: FrameKind, body: bytes, *, timeout_s: float) -> Mapping[str, Any]:
        status, said = self.ask(key, kind, body, timeout_s=timeout_s)
        if status != 200:
            raise EngineUnavailableError(said.decode(errors="replace"))
        return {str(name): value for name, value in orjson.loads(said).items()}

    def stats(self, key: str) -> dict[str, float]:
        """How many requests wait at a host, and what it did since its start; nothing if it does not tell at once."""
        try:
            status, body = self.ask(key, FrameKind.STATS, b"", timeout_s=_FIGURES_S)
            said = orjson.loads(body) if status == 200 else {}
        except (EngineUnavailableError, orjson.JSONDecodeError):
            return {}
        known = said if isinstance(said, dict) else {}
        return {name: known[name] for name in FIGURES if type(known.get(name)) in (int, float)}

    def ask(self, key: str, kind: FrameKind, body: bytes, *, timeout_s: float) -> tuple[int, bytes]:
        """Send one request to a host and wait. `EngineUnavailableError` if it does not answer."""
        sighting = self.status(key)
        if sighting is None:
            raise EngineUnavailableError("The host is gone.")
        secret = sighting.endpoint.secret if sighting.endpoint is not None else ""
        try:
            with _connected(sighting, timeout_s) as connection:
                connection.sendall(auth_frame(secret) + pack_request(1, kind, body))
                with connection.makefile("rb") as file:
                    return _answer(file)
        except OSError as exc:
            raise EngineUnavailableError(f"The host does not answer: {exc}.") from exc

    def close(self) -> None:
        """End all of them; returns when none is left."""
        with self._guard:
            hosts = list(self._hosts.values())
        for host in hosts:
            host.end("The server stops.")
        self._watch.close()


def _connected(sighting: HostStatus, timeout_s: float) -> socket.socket:
    """A connection to a host that takes requests."""
    if (place := sighting.endpoint) is not None:
        return socket.create_connection((place.host, place.port), timeout_s)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        connection.connect(str(sighting.socket))
    except OSError:
        connection.close()
        raise
    return connection


def _answer(file: IO[bytes]) -> tuple[int, bytes]:
    head = file.read(ANSWER_HEAD.size)
    if len(head) < ANSWER_HEAD.size:
        raise ConnectionError("it closed the connection")
    length, _, status = ANSWER_HEAD.unpack(head)
    if length > _ANSWER_BYTES:
        raise ConnectionError(f"it answers with {length:,} bytes")
    body = file.read(length)
    if len(body) < length:
        raise ConnectionError("it closed the connection")
    return status, body
