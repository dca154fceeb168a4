"""Hosts as watched processes: status, requests, drain and kill, for all engines.

Each host, or the proxy of a remote one, runs below a reaper (`node.process.reaper`) on this machine. The reaper kills
it with all descendants as soon as the server releases it. No host outlives the server; the next server starts new ones.
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

STATS_FIELDS = ("waiting", "runningSeconds", "requests", "instances", "batches", "failed", "refused", "cancelled")
_STATS_TIMEOUT_S = 0.5
_RESPONSE_MAX_BYTES = 1 << 20  #: of a response to the server itself


class HostProcessEngine:
    """Base of engines that run hosts. A key names one start of a host. Unknown keys and ended
    hosts are ignored. Thread-safe."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._hosts: dict[str, HostProcess] = {}
        self._watcher = HostWatcher()

    def open(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called by the watcher's thread whenever a status changes."""
        self._watcher.open(on_change)

    def _add(self, key: str, host: HostProcess) -> None:
        with self._lock:
            self._hosts[key] = host
        self._watcher.add(host)

    def folder(self, project: str, model: str, version: str) -> Path:
        return self._home.hosts / project / model / version

    def remove(self, project: str, model: str, version: str) -> None:
        """Remove the folder of a version's hosts. None of them may run any more."""
        folder = self.folder(project, model, version)
        with self._lock:
            shutil.rmtree(folder, ignore_errors=True)
            for parent in (folder.parent, folder.parent.parent):
                with contextlib.suppress(OSError):  # not empty, or it never existed
                    parent.rmdir()

    def status(self, key: str) -> HostStatus | None:
        """Returns None if the key is unknown."""
        host = self._hosts.get(key)
        return host.status if host is not None else None

    def drain(self, key: str) -> None:
        """Let the host finish in-flight requests and exit. Returns immediately."""
        if host := self._hosts.get(key):
            host.send(signal.SIGTERM)

    def kill(self, key: str, *, reason: str = "") -> None:
        """Kill the host with all descendants. Returns immediately. `reason` becomes the message of its status."""
        if host := self._hosts.get(key):
            host.end(reason)
            self._watcher.wakeup()

    def forget(self, key: str) -> None:
        """Forget a host that has ended."""
        with self._lock:
            host = self._hosts.get(key)
            if host is not None and host.status.phase is HostPhase.ENDED:
                del self._hosts[key]

    def discard(self, key: str) -> None:
        """Kill the host and forget it."""
        self.kill(key)
        with self._lock:
            self._hosts.pop(key, None)

    def _request_difference(self, key: str, kind: FrameKind, body: bytes, *, timeout_s: float) -> Mapping[str, Any]:
        status, response = self.ask(key, kind, body, timeout_s=timeout_s)
        if status != 200:
            raise EngineUnavailableError(response.decode(errors="replace"))
        return {str(name): value for name, value in orjson.loads(response).items()}

    def stats(self, key: str) -> dict[str, float]:
        """Requests waiting at a host and its counters since its start. Empty if it does not respond immediately."""
        try:
            status, body = self.ask(key, FrameKind.STATS, b"", timeout_s=_STATS_TIMEOUT_S)
            content = orjson.loads(body) if status == 200 else {}
        except (EngineUnavailableError, orjson.JSONDecodeError):
            return {}
        counters = content if isinstance(content, dict) else {}
        return {name: counters[name] for name in STATS_FIELDS if type(counters.get(name)) in (int, float)}

    def ask(self, key: str, kind: FrameKind, body: bytes, *, timeout_s: float) -> tuple[int, bytes]:
        """Send one request to a host and wait for the response. Raises `EngineUnavailableError` if there is none."""
        host_status = self.status(key)
        if host_status is None:
            raise EngineUnavailableError("The host is gone.")
        secret = host_status.endpoint.secret if host_status.endpoint is not None else ""
        try:
            with _connect(host_status, timeout_s) as connection:
                connection.sendall(auth_frame(secret) + pack_request(1, kind, body))
                with connection.makefile("rb") as file:
                    return _read_response(file)
        except OSError as exc:
            raise EngineUnavailableError(f"The host does not answer: {exc}.") from exc

    def close(self) -> None:
        """Kill all hosts. Blocks until none is left."""
        with self._lock:
            hosts = list(self._hosts.values())
        for host in hosts:
            host.end("The server stops.")
        self._watcher.close()


def _connect(host_status: HostStatus, timeout_s: float) -> socket.socket:
    """Connect to a host."""
    if (endpoint := host_status.endpoint) is not None:
        return socket.create_connection((endpoint.host, endpoint.port), timeout_s)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        connection.connect(str(host_status.socket))
    except OSError:
        connection.close()
        raise
    return connection


def _read_response(file: IO[bytes]) -> tuple[int, bytes]:
    header = file.read(ANSWER_HEAD.size)
    if len(header) < ANSWER_HEAD.size:
        raise ConnectionError("it closed the connection")
    length, _, status = ANSWER_HEAD.unpack(header)
    if length > _RESPONSE_MAX_BYTES:
        raise ConnectionError(f"it answers with {length:,} bytes")
    body = file.read(length)
    if len(body) < length:
        raise ConnectionError("it closed the connection")
    return status, body
