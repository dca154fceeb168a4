"""The link to a Ray cluster: its process, which is started again if it ends, and questions to it.

The link itself is in `engines/ray/bridge` and runs in an environment of its own, which has Ray. Nothing in the server
imports Ray, and nothing that happens there can stop it.
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

from trainshed.config import Home
from trainshed.engines.reaped_process import describe_exit, log_tail, start_reaped
from trainshed.errors import EngineUnavailableError, TrainshedError

LOG = logging.getLogger("trainshed.engines.ray.bridge_process")

_ANSWER_S = 10.0
_GLANCE_S = 2.0
_SOCKET_PATH = 100  #: bytes; the kernel takes 107
_BACK_OFF_S = (0.2, 1.0, 2.0, 5.0)
_STEADY_S = 60.0  #: a link that lived for so long is started again at once
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A machine of the cluster. Resources have Ray's names: CPU, memory, GPU and whatever its owner gave it."""

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
    since_us: int  #: when its head last answered; 0: never
    why: str = ""  #: what Ray said when it could not be reached
    nodes: tuple[ClusterNode, ...] = field(default=())


class BridgeProcess:
    """One cluster. `python` gives the interpreter that has Ray, and may take minutes; `ship` the shipped code."""

    def __init__(self, home: Home, *, address: str, python: Callable[[], Path], ship: Callable[[], Path]) -> None:
        self._folder = home.bridge_folder
        self._address = address
        self._python = python
        self._ship = ship
        self._why = ""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def socket(self) -> Path:
        """Where the link listens, also while it does not. The same for every server on this state folder."""
        usual = self._folder / "sock"
        if len(os.fsencode(usual)) <= _SOCKET_PATH:
            return usual
        return Path(tempfile.gettempdir()) / f"trainshed-{self.namespace.rpartition('-')[2]}" / "sock"

    @property
    def namespace(self) -> str:
        """What keeps the names of this server's gangs apart from those of others on the same cluster."""
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
        """Have the link running from now on. Returns at once."""
        self._thread = threading.Thread(target=self._keep_running, name="bridge", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it. What runs on the cluster goes on."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    # -- questions

    def cluster(self) -> ClusterStatus:
        """What is known of the cluster. Returns at once; a link that is away makes it one that can't be reached."""
        try:
            said = self._ask({"do": "cluster"}, timeout_s=_GLANCE_S)
        except EngineUnavailableError:
            return ClusterStatus(address=self._address, reachable=False, since_us=self._answered_us(), why=self._why)
        nodes = tuple(ClusterNode(**each) for each in said["nodes"])
        return ClusterStatus(
            address=self._address,
            reachable=said["reachable"],
            since_us=int(said["since"]),
            why=said["why"],
            nodes=nodes,
        )

    def reserve(self, gang: str, bundles: Mapping[str, Mapping[str, float]], strategy: str) -> bool:
        """Ask for room for a gang, unless that was done before; whether it has all of it now.
        `EngineUnavailableError` if nobody can be asked.
        """
        asked = {name: dict(bundle) for name, bundle in bundles.items()}
        said = self._ask({"do": "reserve", "gang": gang, "bundles": asked, "strategy": strategy})
        return bool(said["state"] == "ready")

    def release(self, gang: str) -> None:
        """Give a gang's room back and end what runs there; nothing if it has none.

        `EngineUnavailableError` as above.
        """
        self._ask({"do": "release", "gang": gang}, timeout_s=3 * _ANSWER_S)

    def gangs(self) -> list[str]:
        """The gangs of this server that have asked for room. `EngineUnavailableError` as above."""
        return [str(name) for name in self._ask({"do": "gangs"})["gangs"]]

    def _ask(self, request: Mapping[str, Any], *, timeout_s: float = _ANSWER_S) -> dict[str, Any]:
        try:
            with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
                connection.settimeout(timeout_s)
                connection.connect(str(self.socket))
                connection.sendall(json.dumps(request).encode() + b"\n")
                with connection.makefile("rb") as lines:
                    line = lines.readline()
            said: dict[str, Any] = json.loads(line)
        except (OSError, ValueError) as exc:
            raise EngineUnavailableError(
                f"The Ray cluster at {self._address} can't be asked: {self._why or exc}."
            ) from exc
        if "error" in said:
            raise EngineUnavailableError(str(said["error"]))
        return said

    def _answered_us(self) -> int:
        try:
            return int((self._folder / "answered").read_text())
        except (FileNotFoundError, ValueError):
            return 0

    # -- the process

    def _keep_running(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began_s = time.monotonic()
            try:
                process = self._start(self._python())
                self._watch(process)
            except (TrainshedError, OSError) as exc:
                self._why = str(exc)
                LOG.warning("bridge.not_started reason=%s", exc)
            failures = 0 if time.monotonic() - began_s > _STEADY_S else failures + 1
            self._stopping.wait(_BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)])

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
        """Only this user may have it: whoever can write there could answer in the link's place."""
        folder = self.socket.parent
        folder.mkdir(mode=0o700, exist_ok=True)
        stat = folder.lstat()
        if folder.is_symlink() or stat.st_uid != os.geteuid() or stat.st_mode & 0o022:
            raise EngineUnavailableError(
                f"The folder {folder} belongs to someone else. Remove it, and start the server again."
            )

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Until it ends, or has to."""
        try:
            while not self._stopping.is_set():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(_LOOK_S)
                    said = log_tail(self._folder / "log")
                    self._why = f"the link {describe_exit(status)}"
                    LOG.warning("bridge.ended status=%d said=%s", status, said[-300:])
                    return
        finally:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.wait()
