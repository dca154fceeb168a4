"""The processes that serve versions, on this machine: what each is told, and how it is started."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from trainshed.artifacts.staging import SAFE_WRITE_FLAGS
from trainshed.config import Home
from trainshed.engines.hosts.processes import HostProcessEngine
from trainshed.engines.hosts.spec import HostSpec, log_of, render
from trainshed.engines.hosts.watcher import HostProcess
from trainshed.engines.local.containers import HostContainers
from trainshed.engines.local.warm import WarmProcesses
from trainshed.engines.reaped_process import LOG_BYTES, PipeHandle, ProcessHandle, SocketHandle, start_reaped
from trainshed.errors import EngineUnavailableError
from trainshed.node.process import tree
from trainshed.serving.frames import FrameKind

LOG = logging.getLogger("trainshed.engines.local.hosts")

MODULE = "trainshed_serving"
IN_TENSORFLOW = ("tensorflow", "keras")  #: loaders that import it
_SOCKET_PATH = 100  #: bytes; the kernel takes 107


class LocalHostEngine(HostProcessEngine):
    """Hosts on this machine, which answer at sockets that are files."""

    def __init__(
        self,
        home: Home,
        *,
        ship: Callable[[], Path],
        warm: WarmProcesses | None = None,
        containers: HostContainers | None = None,
    ) -> None:
        """Hosts that need TensorFlow are forked from `warm` processes, where there are any."""
        super().__init__(home)
        self._containers = containers
        self._ship = ship
        self._warm = warm
        self._sockets = home.hosts

    def open(self, on_change: Callable[[], None]) -> None:
        """Clear what an earlier server left."""
        self._sockets = _socket_folder(self._home.hosts)
        if self._containers is not None:
            self._containers.sweep()
        super().open(on_change)

    def prepare(self, spec: HostSpec, *, existing: bool = False) -> HostSpec:
        """What hosts need is here already."""
        return spec

    def start(self, spec: HostSpec) -> str:
        """Start a host and return its key at once; `look` tells when it is ready.

        `EngineUnavailableError` if it can't be.
        """
        key = f"{spec.project}/{spec.model}/{spec.version}/{spec.instance}#{next(self._numbers)}"
        path = self._sockets / f"{key.rpartition('#')[2]}.sock"
        try:
            folder = self.folder(spec.project, spec.model, spec.version)
            work = folder / "work"
            with self._guard:
                work.mkdir(mode=0o700, parents=True, exist_ok=True)
            written = folder / f"{spec.instance}.json"
            order = self._order(spec)
            with open(os.open(written, os.O_TRUNC | SAFE_WRITE_FLAGS, 0o600), "wb") as file:
                file.write(orjson.dumps(render(spec, path, order)))
            log = log_of(folder, spec)
            line = self._fork(spec, written, log, work)
            forked = line is not None
            if line is None:
                words = ("host" if order is None else "container-host", str(written))
                line = PipeHandle(start_reaped(spec.python, self._ship(), words, log=log, work=work, mark=str(path)))
            host = HostProcess(line, log, path, after=self._after(order))
        except OSError as exc:
            raise EngineUnavailableError(
                f"A host of version {spec.version} of model {spec.model} can't be started: "
                f"{exc.filename or self._home.hosts}: {exc.strerror}."
            ) from exc
        self._add(key, host)
        LOG.info("host.started key=%s pid=%d loader=%s forked=%s", key, line.pid, spec.loader, forked)
        return key

    def _order(self, spec: HostSpec) -> dict[str, Any] | None:
        if spec.container is None:
            return None
        if self._containers is None:
            raise EngineUnavailableError("Containers are not run here.")
        return self._containers.order(spec, spec.container)

    def _after(self, order: Mapping[str, Any] | None) -> Callable[[], None] | None:
        """What is to be done after the end of a host, by a thread that may wait."""
        if order is None or self._containers is None:
            return None
        return partial(self._containers.end, order)

    def _fork(self, spec: HostSpec, written: Path, log: Path, work: Path) -> ProcessHandle | None:
        """A host that a warm process forked; None if there is none, or the host may need other modules than it has."""
        if self._warm is None or spec.site or spec.loader not in IN_TENSORFLOW:
            return None
        os.close(os.open(log, os.O_APPEND | SAFE_WRITE_FLAGS, 0o600))  # what can't be written to would stop the guard
        words = (MODULE, "host", str(written))
        connection = self._warm.run(spec.python, words, log=log, log_limit=LOG_BYTES, talks_in=work)
        if connection is None:
            return None
        try:
            return SocketHandle(connection)
        except (OSError, ValueError) as exc:
            LOG.warning("host.not_forked python=%s reason=%s", spec.python, exc)
            connection.close()
            return None

    def memory_use(self, key: str) -> tuple[int, int]:
        """The pid of the host itself, 0 if there is none, and the bytes that it and all it started hold alone."""
        host = self._hosts.get(key)
        pids = tree.descendants(host.sighting.pid) if host is not None else []
        return pids[0] if pids else 0, sum(map(_resident, pids))

    def compare(self, key: str, reference: Path, *, timeout_s: float) -> Mapping[str, Any]:
        """How far the host's answers are from those in the file: `difference`, `within`, `text`.
        `EngineUnavailableError` if it can't tell.
        """
        return self._difference(key, FrameKind.PARITY, str(reference).encode(), timeout_s=timeout_s)

    def close(self) -> None:
        super().close()
        if self._containers is not None:
            self._containers.sweep()


def _socket_folder(hosts: Path) -> Path:
    """A folder for sockets, empty. Where the state folder's own path is too long for them, it is one in /tmp."""
    hosts.mkdir(mode=0o700, parents=True, exist_ok=True)
    link = hosts / ".sockets"  # no project can have this name
    if link.is_symlink():
        shutil.rmtree(link.readlink(), ignore_errors=True)
        link.unlink()
    elif link.is_dir():
        shutil.rmtree(link)
    if len(os.fsencode(link / "1234567.sock")) <= _SOCKET_PATH:
        link.mkdir(mode=0o700)
        return link
    short = Path(tempfile.mkdtemp(prefix="trainshed-"))
    link.symlink_to(short)
    return short


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared = file.read().split()[:3]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
