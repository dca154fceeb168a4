"""The engine that runs hosts on this machine, as new processes or as forks of warm ones."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from trainshed.artifacts.staging import SAFE_WRITE_FLAGS
from trainshed.config import Home
from trainshed.domain.access.secrets import masked
from trainshed.engines.hosts.processes import HostProcessEngine
from trainshed.engines.hosts.spec import HostSpec, log_of, render
from trainshed.engines.hosts.watcher import HostProcess
from trainshed.engines.local.containers import HostContainers
from trainshed.engines.local.sandbox import Sandbox
from trainshed.engines.local.warm import WarmProcesses
from trainshed.engines.reaped_process import PipeHandle, ProcessHandle, SocketHandle, limit_reached, start_reaped
from trainshed.engines.secret_files import FOLDER_VARIABLE, Values, write_secrets
from trainshed.errors import EngineUnavailableError, FailedPreconditionError
from trainshed.node.files import remove_folder
from trainshed.node.process import tree
from trainshed.node.process.environment import user_environment
from trainshed.node.supervisor.secrets import FOLDER_VARIABLE as REAPER_VARIABLE
from trainshed.serving.frames import FrameKind

LOG = logging.getLogger("trainshed.engines.local.hosts")

MODULE = "trainshed_serving"
TENSORFLOW_LOADERS = ("tensorflow", "keras")  #: loaders that import TensorFlow
_WARM_LOADERS = (*TENSORFLOW_LOADERS, "pytorch")  #: those that a warm process saves an import
_PRIVATE_FOLDER = ".private"  #: what hosts have of their own in a sandbox; no project can have this name
_SECRETS_FOLDER = "host-secrets"  #: in the state folder: a folder for each host that has secrets
_SOCKET_PATH_MAX_BYTES = 100  #: the kernel's limit is 107


@dataclass(frozen=True, slots=True, kw_only=True)
class _HostSecrets:
    """What one start of a host has of secrets."""

    folder: Path | None = None  #: which its reaper reads; it is removed with it
    files: Path | None = None
    values: tuple[str, ...] = ()

    @property
    def env(self) -> dict[str, str]:
        """Variables of the reaper."""
        if self.folder is None:
            return {}
        return {REAPER_VARIABLE: str(self.folder), FOLDER_VARIABLE: str(self.files)}


class LocalHostEngine(HostProcessEngine):
    """Hosts on this machine, which listen on unix sockets."""

    def __init__(
        self,
        home: Home,
        *,
        ship: Callable[[], Path],
        warm: WarmProcesses | None = None,
        containers: HostContainers | None = None,
        env: Callable[[], Mapping[str, str]] = user_environment,
        sandbox: Sandbox | None = None,
        secrets: Values | None = None,
    ) -> None:
        """Hosts that need TensorFlow are forked from `warm` processes, if there are any. `env` returns what hosts get
        of the server's environment. Without `sandbox`, they run as the server does. `secrets` returns
        secrets of a project by their names."""
        super().__init__(home)
        self._containers = containers
        self._ship = ship
        self._warm = warm
        self._env = env
        self._sandbox = sandbox
        self._secrets = secrets
        self._secrets_folder = home.path / _SECRETS_FOLDER
        self._sockets = home.hosts

    def open(self, on_change: Callable[[], None]) -> None:
        """Remove what an earlier server left."""
        self._sockets = _socket_folder(self._home.hosts)
        shutil.rmtree(self._home.hosts / _PRIVATE_FOLDER, ignore_errors=True)
        if self._secrets_folder.exists():
            shutil.rmtree(self._secrets_folder)
        if self._containers is not None:
            self._containers.sweep()
        super().open(on_change)

    def prepare(self, spec: HostSpec, *, existing: bool = False) -> HostSpec:
        """Nothing to add: this machine has all that hosts need."""
        return spec

    def start(self, spec: HostSpec) -> str:
        """Start a host and return its key immediately; `status` says when it is ready.

        Raises `EngineUnavailableError` if it can't be started.
        """
        key = f"{spec.project}/{spec.model}/{spec.version}/{spec.instance}#{next(self._numbers)}"
        path = self._sockets / f"{key.rpartition('#')[2]}.sock"
        try:
            folder = self.folder(spec.project, spec.model, spec.version)
            work = folder / "work"
            with self._lock:
                work.mkdir(mode=0o700, parents=True, exist_ok=True)
            spec_file = folder / f"{spec.instance}.json"
            container = self._container(spec)
            secrets = self._give_secrets(spec, path.stem)
            cell = self._cell(spec, folder, path, secrets) if container is None else None
            with open(os.open(spec_file, os.O_TRUNC | SAFE_WRITE_FLAGS, 0o600), "wb") as file:
                file.write(orjson.dumps(render(spec, path if cell is None else None, container)))
            log = log_of(folder, spec)
            handle = self._fork(spec, spec_file, log, cell)
            forked = handle is not None
            if handle is None:
                arguments = ("host" if container is None else "container-host", str(spec_file))
                handle = PipeHandle(
                    start_reaped(
                        spec.python,
                        self._ship(),
                        arguments,
                        log=log,
                        work=work,
                        mark=str(path),
                        env={**self._env(), **secrets.env} if container is None else None,  # a container has its own
                        cell=cell,
                    )
                )
            host = HostProcess(
                handle,
                log,
                path,
                on_exit=self._on_exit(container, cell, secrets),
                limit=partial(limit_reached, cell),
                mask=partial(masked, values=secrets.values),
            )
        except OSError as exc:
            remove_folder(str(self._secrets_folder / path.stem))
            raise EngineUnavailableError(
                f"A host of version {spec.version} of model {spec.model} can't be started: "
                f"{exc.filename or self._home.hosts}: {exc.strerror}."
            ) from exc
        self._add(key, host)
        LOG.info("host.started key=%s pid=%d loader=%s forked=%s", key, handle.pid, spec.loader, forked)
        return key

    def _container(self, spec: HostSpec) -> dict[str, Any] | None:
        if spec.container is None:
            return None
        if self._containers is None:
            raise EngineUnavailableError("Containers are not run here.")
        return self._containers.order(spec, spec.container)

    def _give_secrets(self, spec: HostSpec, name: str) -> _HostSecrets:
        """Write the secrets of a host, which its reaper reads. Raises `EngineUnavailableError` if one is not there."""
        if not spec.secrets or self._secrets is None:
            return _HostSecrets()
        try:
            values = self._secrets(spec.project, spec.secrets)
        except FailedPreconditionError as exc:
            raise EngineUnavailableError(str(exc)) from exc
        folder = self._secrets_folder / name
        files = write_secrets(folder, spec.secrets, values)
        return _HostSecrets(folder=folder, files=files, values=tuple(values.values()))

    def _cell(self, spec: HostSpec, folder: Path, path: Path, secrets: _HostSecrets) -> Mapping[str, Any] | None:
        """The sandbox of a host, which sees its version's files and those of its hosts."""
        if self._sandbox is None:
            return None
        return self._sandbox.cell(
            spec.project,
            private=self._home.hosts / _PRIVATE_FOLDER / path.stem,
            readable=(
                *(folder, spec.model_dir, *([Path(spec.site)] if spec.site else ())),
                *([secrets.files] if secrets.files else []),
            ),
            writable=(folder / "work",),
            listen=path,
        )

    def _on_exit(
        self, container: Mapping[str, Any] | None, cell: Mapping[str, Any] | None, secrets: _HostSecrets
    ) -> Callable[[], None]:
        """The cleanup after the exit of a host, for a thread that may block."""

        def clean() -> None:
            if secrets.folder is not None:
                remove_folder(str(secrets.folder))
            if cell is not None:
                shutil.rmtree(cell["private"], ignore_errors=True)
            elif container is not None and self._containers is not None:
                self._containers.end(container)

        return clean

    def _fork(self, spec: HostSpec, spec_file: Path, log: Path, cell: Mapping[str, Any] | None) -> ProcessHandle | None:
        """Fork a host from a warm process. Returns None if there is none, or the host may need other modules."""
        if self._warm is None or spec.site or spec.secrets or spec.loader not in _WARM_LOADERS:
            return None
        os.close(os.open(log, os.O_APPEND | SAFE_WRITE_FLAGS, 0o600))  # the reaper fails on a log it can't write
        arguments = (MODULE, "host", str(spec_file))
        connection = self._warm.run(spec.python, arguments, log=log, talks_in=spec_file.parent / "work", cell=cell)
        if connection is None:
            return None
        try:
            return SocketHandle(connection)
        except (OSError, ValueError) as exc:
            LOG.warning("host.not_forked python=%s reason=%s", spec.python, exc)
            connection.close()
            return None

    def memory_use(self, key: str) -> tuple[int, int]:
        """The pid of the host, 0 if there is none, and the unshared bytes of it and its descendants."""
        host = self._hosts.get(key)
        pids = tree.descendants(host.status.pid) if host is not None else []
        return pids[0] if pids else 0, sum(map(_unshared_bytes, pids))

    def compare(self, key: str, reference: Path, *, timeout_s: float) -> Mapping[str, Any]:
        """Difference of the host's responses from those in the file: `difference`, `within`, `text`. Raises
        `EngineUnavailableError` if it can't be computed."""
        return self._request_difference(key, FrameKind.PARITY, str(reference).encode(), timeout_s=timeout_s)

    def close(self) -> None:
        super().close()
        if self._containers is not None:
            self._containers.sweep()


def _socket_folder(hosts: Path) -> Path:
    """An empty folder for sockets. If the state folder's path is too long for a socket, it is in /tmp."""
    hosts.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = hosts / ".sockets"  # no project can have this name
    if folder.is_symlink():
        shutil.rmtree(folder.readlink(), ignore_errors=True)
        folder.unlink()
    elif folder.is_dir():
        shutil.rmtree(folder)
    if len(os.fsencode(folder / "1234567.sock")) <= _SOCKET_PATH_MAX_BYTES:
        folder.mkdir(mode=0o700)
        return folder
    short_folder = Path(tempfile.mkdtemp(prefix="trainshed-"))
    folder.symlink_to(short_folder)
    return short_folder


def _unshared_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared = file.read().split()[:3]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
