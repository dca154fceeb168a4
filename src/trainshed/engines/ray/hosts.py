"""The engine that runs hosts on nodes of a Ray cluster. Each has a replica proxy here, like a replica of a job.

A host is a gang of one. The bridge reserves its capacity, if possible on another node than other hosts of its version.
The agent there sets up the node, fetches the files from this server and starts the host. The host listens on a port of
its node. The gateway connects to it there and authenticates with a secret that is new for each start.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from trainshed.artifacts.manifest import ArtifactAccess, ArtifactManifest
from trainshed.artifacts.staging import SAFE_WRITE_FLAGS
from trainshed.background import BackgroundLoop
from trainshed.config import Home
from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.domain.capacity.placement import CPU, ResourceShares
from trainshed.domain.models.hosting import HostEndpoint
from trainshed.engines.hosts.processes import HostProcessEngine
from trainshed.engines.hosts.spec import HostSpec, log_of, render
from trainshed.engines.hosts.watcher import HostProcess
from trainshed.engines.ray.engine import LEASE_S
from trainshed.engines.reaped_process import PipeHandle, start_reaped
from trainshed.errors import EngineUnavailableError, InvalidArgumentError
from trainshed.node.remote.replica_proxy import GangAddresses
from trainshed.serving.frames import FrameKind

LOG = logging.getLogger("trainshed.engines.local.hosts")

GANG_PREFIX = "trainshed/@hosts/"  #: prefix of the names of hosts on the cluster; no project can have this name
SETUP_TIMEOUT_S = 900.0  #: for capacity, the runtime and the files
ROUND, REPLICA = "0", "host"
HOST_SPEC_FILE = "host.json"  #: the host's spec file, in the credentials bundle
_SWEEP_INTERVAL_S = 30.0  #: between two checks for unused reservations
_RETRY_INTERVAL_S = 2.0


class HostBridge(Protocol):
    """The bridge, as `engines.ray.bridge_process` implements it. Its methods may take some seconds."""

    @property
    def socket(self) -> Path: ...

    def gangs(self) -> list[str]: ...

    def release(self, gang: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RayHostConfig:
    """What hosts request from the cluster, and how their nodes get artifacts and runtimes."""

    machines: MachineTypes
    shares: ResourceShares
    access: Callable[[HostSpec], ArtifactAccess]
    recipe: Callable[[str], Mapping[str, Any]]  #: the recipe of a runtime's environment, by its name
    body_limit: int  #: maximum bytes of one request to a host
    unavailable_reason: str = ""  #: why there can be no hosts, with a remedy

    def bundle(self, machine_type: str) -> dict[str, float]:
        """Resources of a host with this machine type. Raises `InvalidArgumentError` for an unknown type."""
        return self.shares.amounts(self.machines.serving(machine_type))


class RayHostEngine(HostProcessEngine):
    """Hosts on a cluster, which listen on ports of its nodes."""

    def __init__(self, home: Home, *, ship: Callable[[], Path], bridge: HostBridge, config: RayHostConfig) -> None:
        super().__init__(home)
        self._ship = ship
        self._bridge = bridge
        self._config = config
        self._folders: dict[str, Path] = {}  # of the proxies, by key
        self._gangs: set[str] = set()  # in use
        self._sweeper = BackgroundLoop("host-reservations", self._sweep)

    def open(self, on_change: Callable[[], None]) -> None:
        for folder in self._home.hosts.glob("*/*/*/remote/*"):  # by a server that was killed
            shutil.rmtree(folder, ignore_errors=True)
        super().open(on_change)
        if not self._config.unavailable_reason:
            self._sweeper.start()  # an earlier server may have left some

    def prepare(self, spec: HostSpec, *, existing: bool = False) -> HostSpec:
        """Add the manifest of what the node has to fetch. Raises `FailedPreconditionError`
        if it is not known any more."""
        folder = self.folder(spec.project, spec.model, spec.version)
        manifest = (
            ArtifactManifest.read(folder)
            if existing
            else ArtifactManifest.gather(folder, spec.model_dir, spec.packages)
        )
        return replace(spec, manifest=manifest, alone=True)

    def start(self, spec: HostSpec) -> str:
        """Start a host and return its key immediately; `status` says when it is ready.

        Raises `EngineUnavailableError` if it can't be started.
        """
        if self._config.unavailable_reason:
            raise EngineUnavailableError(self._config.unavailable_reason)
        name = f"{spec.instance}-{secrets.token_hex(4)}"
        key = f"{spec.project}/{spec.model}/{spec.version}/{name}"
        gang = f"{GANG_PREFIX}{spec.project}/{spec.model}/{spec.version}/{name}"
        folder = self.folder(spec.project, spec.model, spec.version)
        proxy_folder, log = folder / "remote" / name, log_of(folder, spec)
        secret = secrets.token_urlsafe(32)
        with self._lock:
            self._gangs.add(gang)
            self._folders[key] = proxy_folder
        try:
            proxy_spec = self._proxy_spec(spec, gang, secret)
            proxy_folder.mkdir(mode=0o700, parents=True)
            with open(os.open(proxy_folder / "spec.json", SAFE_WRITE_FLAGS, 0o600), "w") as file:
                json.dump(proxy_spec, file)
            arguments = ("replica-proxy", str(proxy_folder), REPLICA, f"{ROUND}.1")
            mark = proxy_folder / "mark"
            process = start_reaped(
                Path(sys.executable), self._ship(), arguments, log=log, work=proxy_folder, mark=str(mark)
            )
            host = HostProcess(
                PipeHandle(process),
                log,
                mark,
                endpoint=partial(_endpoint, proxy_folder, secret),
                prepares_s=SETUP_TIMEOUT_S,
                on_exit=partial(self._on_exit, key, gang),
            )
        except InvalidArgumentError as exc:
            self._on_exit(key, gang)
            raise EngineUnavailableError(str(exc)) from exc
        except OSError as exc:
            self._on_exit(key, gang)
            raise EngineUnavailableError(
                f"A host of version {spec.version} of model {spec.model} can't be started: "
                f"{exc.filename or proxy_folder}: {exc.strerror}."
            ) from exc
        self._add(key, host)
        LOG.info("host.started key=%s pid=%d loader=%s gang=%s", key, process.pid, spec.loader, gang)
        return key

    def _proxy_spec(self, spec: HostSpec, gang: str, secret: str) -> dict[str, Any]:
        """The spec file of the replica proxy."""
        bundle, access, manifest = self._config.bundle(spec.machine), self._config.access(spec), spec.manifest
        assert manifest is not None  # `prepare` has set it
        threads = max(1, int(bundle.get(CPU, 1)))
        host_spec = render(replace(spec, threads=threads, memory_bytes=0), Path())
        host_spec |= {
            "model_dir": "@model@",
            "site": "@site@" if manifest.packages else "",
            "address": [f"@host:{REPLICA}@", f"@port:{REPLICA}@"],
            "secret": secret,
        }
        credentials = {
            "files": {HOST_SPEC_FILE: json.dumps(host_spec)},
            "sidecar_proxy": None,
            "ca": access.ca,
            "token": access.token,
        }
        return {
            "module": "",
            "args": ["host", f"@node@/credentials/{HOST_SPEC_FILE}"],
            "env": {"OMP_NUM_THREADS": str(threads)},
            "replicas": [{"name": REPLICA, "env": {}}],
            "cluster": {
                "hosts": True,
                "socket": str(self._bridge.socket),
                "gang": gang,
                "apart": f"{gang.rpartition('/')[0]}/",
                "strategy": "PACK",
                "bundles": {REPLICA: bundle},
                "runtime": dict(self._config.recipe(spec.runtime)),
                "packages": [_fetch_entry(entry.as_json(), access, uri=entry.name) for entry in manifest.packages],
                "files": [
                    _fetch_entry(entry.as_json(), access, uri=entry.name, what="file") for entry in manifest.files
                ],
                "credentials": credentials,
                "lease_s": LEASE_S,
            },
        }

    def memory_use(self, key: str) -> tuple[int, int]:
        """No local pid, and the bytes of the last sample."""
        try:
            line = (self._folders[key] / "samples.jsonl").read_bytes().splitlines()[-1]
            return 0, int(json.loads(line)["rss"])
        except (OSError, LookupError, ValueError):
            return 0, 0

    def compare(self, key: str, reference: Path, *, timeout_s: float) -> Mapping[str, Any]:
        """Difference of the host's responses from those in the file: `difference`, `within`, `text`. Raises
        `EngineUnavailableError` if it can't be computed, as when the file exceeds what a host accepts."""
        limit = self._config.body_limit
        if (size := reference.stat().st_size) > limit:
            raise EngineUnavailableError(
                f"The answers to compare with take {size:,} bytes. A host on another "
                f"machine is sent {limit:,} bytes at most (body_limit_mb)."
            )
        return self._request_difference(key, FrameKind.PARITY_WITH, reference.read_bytes(), timeout_s=timeout_s)

    def close(self) -> None:
        with self._lock:
            gangs = list(self._gangs)
        super().close()
        self._sweeper.stop()
        if gangs:
            pool = ThreadPoolExecutor(len(gangs), thread_name_prefix="host-reservations")
            for gang in gangs:
                pool.submit(self._release, gang)
            pool.shutdown(wait=True)
        self._sweeper.join()

    # -- reservations

    def _on_exit(self, key: str, gang: str) -> None:
        with self._lock:
            self._gangs.discard(gang)
            proxy_folder = self._folders.pop(key)
        shutil.rmtree(proxy_folder, ignore_errors=True)
        self._sweeper.wake()

    def _sweep(self) -> float:
        """Release unused reservations, including those of an earlier server and those that failed before."""
        try:
            existing = [gang for gang in self._bridge.gangs() if gang.startswith(GANG_PREFIX)]
        except EngineUnavailableError as exc:
            LOG.info("host.capacity_unknown reason=%s", exc)
            return _RETRY_INTERVAL_S
        for gang in existing:
            with self._lock:
                in_use = gang in self._gangs
            if not in_use and not self._sweeper.stopping.is_set():
                self._release(gang)
        return _SWEEP_INTERVAL_S

    def _release(self, gang: str) -> None:
        try:
            self._bridge.release(gang)
        except EngineUnavailableError as exc:
            LOG.info("host.capacity_not_released gang=%s reason=%s", gang, exc)


def _fetch_entry(entry: Mapping[str, Any], access: ArtifactAccess, **fields: str) -> dict[str, Any]:
    return {**entry, "url": f"{access.url}{entry['sha256']}", **fields}


def _endpoint(folder: Path, secret: str) -> HostEndpoint:
    """Where the host listens, as its agent reported. Raises `ValueError` if that is not known."""
    address = GangAddresses(str(folder / "addresses" / ROUND)).of(REPLICA)
    if address is None:
        raise ValueError("nobody knows where it listens")
    return HostEndpoint(host=address[0], port=int(address[1]), secret=secret)
