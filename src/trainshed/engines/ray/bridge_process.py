"""The bridge to a Ray cluster, seen from the server: its process, which is restarted if it exits, and requests to it.

The bridge itself is in `engines/ray/bridge` and runs in its own environment, which has Ray. The server never imports
Ray, and no failure there can stop the server.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainshed.background import BackgroundLoop
from trainshed.config import Home
from trainshed.engines.reaped_process import describe_exit, log_tail, start_reaped
from trainshed.errors import EngineUnavailableError, TrainshedError

LOG = logging.getLogger("trainshed.engines.ray.bridge_process")

_RESPONSE_TIMEOUT_S = 10.0
_STATUS_TIMEOUT_S = 2.0
_SOCKET_PATH_MAX_BYTES = 100  #: the kernel's limit is 107
_BACKOFF_S = (0.2, 1.0, 2.0, 5.0)
_STABLE_AFTER_S = 60.0  #: a bridge that ran for this long is restarted without backoff
_POLL_INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A node of the cluster. Resources have Ray's names: CPU, memory, GPU and the names that its owner gave."""

    id: str
    host: str
    alive: bool
    total: Mapping[str, float]
    free: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """What is known of the cluster now."""

    address: str
    reachable: bool
    since_us: int  #: when its head last responded; 0: never
    reason: str = ""  #: Ray's error if the cluster is unreachable
    nodes: tuple[ClusterNode, ...] = field(default=())


class BridgeProcess:
    """The bridge process of one cluster. `python` returns an interpreter that has Ray, and may take minutes. `ship`
    returns the folder of shipped code."""

    def __init__(self, home: Home, *, address: str, python: Callable[[], Path], ship: Callable[[], Path]) -> None:
        self._folder = home.bridge_folder
        self._address = address
        self._python = python
        self._ship = ship
        self._reason = ""
        self._failures = 0  #: of starts in a row
        self._loop = BackgroundLoop("bridge", self._run_process)

    @property
    def socket(self) -> Path:
        """Path of the bridge's socket, also while it does not listen. The same for every
        server on this state folder."""
        path = self._folder / "sock"
        if len(os.fsencode(path)) <= _SOCKET_PATH_MAX_BYTES:
            return path
        return Path(tempfile.gettempdir()) / f"trainshed-{self.namespace.rpartition('-')[2]}" / "sock"

    @property
    def namespace(self) -> str:
        """Separates the names of this server's gangs from those of other servers on the same cluster."""
        path = self._folder / "id"
        with contextlib.suppress(FileNotFoundError):
            return path.read_text().strip()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f"id-{os.getpid()}-{threading.get_ident()}")
        draft.write_text(f"trainshed-{secrets.token_hex(6)}\n")
        with contextlib.suppress(FileExistsError):  # another thread was faster
            os.link(draft, path)
        draft.unlink()
        return path.read_text().strip()

    def begin(self) -> None:
        """Run the bridge from now on. Returns immediately."""
        self._loop.start()

    def close(self) -> None:
        """Stop the bridge. What runs on the cluster continues."""
        self._loop.stop()
        self._loop.join()

    # -- requests

    def cluster(self) -> ClusterStatus:
        """Status of the cluster. Returns quickly. Without a bridge, the cluster is unreachable."""
        try:
            response = self._request({"do": "cluster"}, timeout_s=_STATUS_TIMEOUT_S)
        except EngineUnavailableError:
            return ClusterStatus(
                address=self._address, reachable=False, since_us=self._last_response_us(), reason=self._reason
            )
        nodes = tuple(ClusterNode(**node) for node in response["nodes"])
        return ClusterStatus(
            address=self._address,
            reachable=response["reachable"],
            since_us=int(response["since"]),
            reason=response["why"],
            nodes=nodes,
        )

    def reserve(self, gang: str, bundles: Mapping[str, Mapping[str, float]], strategy: str) -> bool:
        """Request capacity for a gang. Returns whether it has all of it now. Idempotent. Raises
        `EngineUnavailableError` if the bridge or the cluster is unreachable."""
        requested = {name: dict(bundle) for name, bundle in bundles.items()}
        response = self._request({"do": "reserve", "gang": gang, "bundles": requested, "strategy": strategy})
        return bool(response["state"] == "ready")

    def release(self, gang: str) -> None:
        """Release a gang's capacity and kill what runs there. Idempotent.

        Raises `EngineUnavailableError` as `reserve` does.
        """
        self._request({"do": "release", "gang": gang}, timeout_s=3 * _RESPONSE_TIMEOUT_S)

    def gangs(self) -> list[str]:
        """This server's gangs with a reservation. Raises `EngineUnavailableError` as `reserve` does."""
        return [str(name) for name in self._request({"do": "gangs"})["gangs"]]

    def _request(self, request: Mapping[str, Any], *, timeout_s: float = _RESPONSE_TIMEOUT_S) -> dict[str, Any]:
        try:
            with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
                connection.settimeout(timeout_s)
                connection.connect(str(self.socket))
                connection.sendall(json.dumps(request).encode() + b"\n")
                with connection.makefile("rb") as lines:
                    line = lines.readline()
            response: dict[str, Any] = json.loads(line)
        except (OSError, ValueError) as exc:
            raise EngineUnavailableError(
                f"The Ray cluster at {self._address} can't be asked: {self._reason or exc}."
            ) from exc
        if "error" in response:
            raise EngineUnavailableError(str(response["error"]))
        return response

    def _last_response_us(self) -> int:
        try:
            return int((self._folder / "answered").read_text())
        except (FileNotFoundError, ValueError):
            return 0

    # -- the process

    def _run_process(self) -> float:
        """Run the process until it exits. Returns the seconds until the next one is started."""
        started_s = time.monotonic()
        try:
            process = self._start(self._python())
            self._watch(process)
        except (TrainshedError, OSError) as exc:
            self._reason = str(exc)
            LOG.warning("bridge.not_started reason=%s", exc)
        self._failures = 0 if time.monotonic() - started_s > _STABLE_AFTER_S else self._failures + 1
        return _BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)]

    def _start(self, python: Path) -> subprocess.Popen[bytes]:
        node = self._ship()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_socket_folder()
        config = self._folder / "config.json"
        config.write_text(
            json.dumps(
                {
                    "address": self._address,
                    "namespace": self.namespace,
                    "socket": str(self.socket),
                    "answered": str(self._folder / "answered"),
                    "node": str(node),
                }
            )
        )
        process = start_reaped(python, node, ("bridge", str(config)), log=self._folder / "log", work=self._folder)
        LOG.info("bridge.started pid=%d address=%s", process.pid, self._address)
        return process

    def _make_socket_folder(self) -> None:
        """Create the socket's folder. Only this user may own it, so that nobody can impersonate the bridge."""
        folder = self.socket.parent
        folder.mkdir(mode=0o700, exist_ok=True)
        stat = folder.lstat()
        if folder.is_symlink() or stat.st_uid != os.geteuid() or stat.st_mode & 0o022:
            raise EngineUnavailableError(
                f"The folder {folder} belongs to someone else. Remove it, and start the server again."
            )

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the process exits or the bridge is stopped."""
        try:
            while not self._loop.stopping.is_set():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(_POLL_INTERVAL_S)
                    tail = log_tail(self._folder / "log")
                    self._reason = f"the link {describe_exit(status)}"
                    LOG.warning("bridge.ended status=%d said=%s", status, tail[-300:])
                    return
        finally:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.wait()
