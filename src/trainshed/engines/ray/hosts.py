"""Hosts on the machines of a Ray cluster. What runs here for each of them is a stand-in, as for a replica of a job.

A host is a gang of one: the link has room made for it, apart from other hosts of its version where that can be, and the
keeper there gets its machine ready, fetches the files from this server and starts it. The host listens on a port of its
machine; the gateway connects to it there, and says its secret first, which is new for each start.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from trainshed.artifacts.manifest import ArtifactAccess, ArtifactManifest
from trainshed.artifacts.staging import SAFE_WRITE_FLAGS
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

GANGS = "trainshed/@hosts/"  #: begins the names of what hosts have on the cluster; no project can be called so
PREPARES_S = 900.0  #: that a machine may take until it has room, the runtime and the files
ROUND, REPLICA = "0", "host"
SPEC = "host.json"  #: what the host works by, in the kit
_SWEEP_S = 30.0  #: between looks for room that nobody needs any more
_AGAIN_S = 2.0


class HostBridge(Protocol):
    """A link, as `engines.link` has it. Its methods may take some seconds."""

    @property
    def socket(self) -> Path: ...

    def gangs(self) -> list[str]: ...

    def release(self, gang: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RayHostConfig:
    """What hosts ask of the cluster, and how their machines get what they need."""

    machines: MachineTypes
    shares: ResourceShares
    way: Callable[[HostSpec], ArtifactAccess]
    recipe: Callable[[str], Mapping[str, Any]]  #: from which a runtime is built there, by its name
    body_limit: int  #: bytes that a host takes at once
    lacking: str = ""  #: why there can be none, and what to do about it

    def bundle(self, machine: str) -> dict[str, float]:
        """What a host on a machine of this type asks for. `InvalidArgumentError` for a type that there is no more."""
        return self.shares.amounts(self.machines.serving(machine))


class RayHostEngine(HostProcessEngine):
    """Hosts on a cluster, which answer at ports of its machines."""

    def __init__(self, home: Home, *, ship: Callable[[], Path], link: HostBridge, rules: RayHostConfig) -> None:
        super().__init__(home)
        self._ship = ship
        self._link = link
        self._rules = rules
        self._folders: dict[str, Path] = {}  # of the stand-ins, by key
        self._gangs: set[str] = set()  # that are needed
        self._leaving = threading.Event()
        self._stopping = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="host-room", daemon=True)

    def open(self, on_change: Callable[[], None]) -> None:
        for left in self._home.hosts.glob("*/*/*/remote/*"):  # by a server that was killed
            shutil.rmtree(left, ignore_errors=True)
        super().open(on_change)
        if not self._rules.lacking:
            self._leaving.set()  # an earlier server may have left some
            self._sweeper.start()

    def prepare(self, spec: HostSpec, *, existing: bool = False) -> HostSpec:
        """With a list of what its machine has to fetch. `FailedPreconditionError` if that is not known any more."""
        folder = self.folder(spec.project, spec.model, spec.version)
        needs = (
            ArtifactManifest.read(folder)
            if existing
            else ArtifactManifest.gather(folder, spec.model_dir, spec.packages)
        )
        return replace(spec, provisions=needs, alone=True)

    def start(self, spec: HostSpec) -> str:
        """Have one started and return its key at once; `look` tells when it is ready.

        `EngineUnavailableError` if it can't be.
        """
        if self._rules.lacking:
            raise EngineUnavailableError(self._rules.lacking)
        name = f"{spec.instance}-{secrets.token_hex(4)}"
        key = f"{spec.project}/{spec.model}/{spec.version}/{name}"
        gang = f"{GANGS}{spec.project}/{spec.model}/{spec.version}/{name}"
        folder = self.folder(spec.project, spec.model, spec.version)
        place, log = folder / "remote" / name, log_of(folder, spec)
        secret = secrets.token_urlsafe(32)
        with self._guard:
            self._gangs.add(gang)
            self._folders[key] = place
        try:
            order = self._order(spec, gang, secret)
            place.mkdir(mode=0o700, parents=True)
            with open(os.open(place / "spec.json", SAFE_WRITE_FLAGS, 0o600), "w") as file:
                json.dump(order, file)
            words = ("replica-proxy", str(place), REPLICA, f"{ROUND}.1")
            mark = place / "mark"
            process = start_reaped(Path(sys.executable), self._ship(), words, log=log, work=place, mark=str(mark))
            host = HostProcess(
                PipeHandle(process),
                log,
                mark,
                place=partial(_place, place, secret),
                prepares_s=PREPARES_S,
                after=partial(self._after, key, gang),
            )
        except InvalidArgumentError as exc:
            self._after(key, gang)
            raise EngineUnavailableError(str(exc)) from exc
        except OSError as exc:
            self._after(key, gang)
            raise EngineUnavailableError(
                f"A host of version {spec.version} of model {spec.model} can't be started: "
                f"{exc.filename or place}: {exc.strerror}."
            ) from exc
        self._add(key, host)
        LOG.info("host.started key=%s pid=%d loader=%s gang=%s", key, process.pid, spec.loader, gang)
        return key

    def _order(self, spec: HostSpec, gang: str, secret: str) -> dict[str, Any]:
        """What the stand-in works by."""
        bundle, way, needs = self._rules.bundle(spec.machine), self._rules.way(spec), spec.provisions
        assert needs is not None  # it was equipped
        threads = max(1, int(bundle.get(CPU, 1)))
        told = render(replace(spec, threads=threads, memory_bytes=0), Path())
        told |= {
            "model_dir": "@model@",
            "site": "@site@" if needs.packages else "",
            "address": [f"@host:{REPLICA}@", f"@port:{REPLICA}@"],
            "secret": secret,
        }
        kit = {"files": {SPEC: json.dumps(told)}, "sidecar_proxy": None, "ca": way.ca, "token": way.token}
        return {
            "module": "",
            "args": ["host", f"@node@/credentials/{SPEC}"],
            "env": {"OMP_NUM_THREADS": str(threads)},
            "replicas": [{"name": REPLICA, "env": {}}],
            "cluster": {
                "hosts": True,
                "socket": str(self._link.socket),
                "gang": gang,
                "apart": f"{gang.rpartition('/')[0]}/",
                "strategy": "PACK",
                "bundles": {REPLICA: bundle},
                "runtime": dict(self._rules.recipe(spec.runtime)),
                "packages": [_fetched(each.as_json(), way, uri=each.name) for each in needs.packages],
                "files": [_fetched(each.as_json(), way, uri=each.name, what="file") for each in needs.files],
                "credentials": kit,
                "lease_s": LEASE_S,
            },
        }

    def memory_use(self, key: str) -> tuple[int, int]:
        """It has no pid here. The bytes that it was last said to hold."""
        try:
            line = (self._folders[key] / "samples.jsonl").read_bytes().splitlines()[-1]
            return 0, int(json.loads(line)["rss"])
        except (OSError, LookupError, ValueError):
            return 0, 0

    def compare(self, key: str, reference: Path, *, timeout_s: float) -> Mapping[str, Any]:
        """How far the host's answers are from those in the file: `difference`, `within`, `text`.
        `EngineUnavailableError` if it can't tell, as when the file is longer than what a host takes at once.
        """
        limit = self._rules.body_limit
        if (size := reference.stat().st_size) > limit:
            raise EngineUnavailableError(
                f"The answers of TensorFlow to compare with take {size:,} bytes. A host on another "
                f"machine is sent {limit:,} bytes at most (body_limit_mb)."
            )
        return self._difference(key, FrameKind.PARITY_WITH, reference.read_bytes(), timeout_s=timeout_s)

    def close(self) -> None:
        with self._guard:
            gangs = list(self._gangs)
        super().close()
        self._stopping.set()
        self._leaving.set()
        if gangs:
            pool = ThreadPoolExecutor(len(gangs), thread_name_prefix="host-room")
            for gang in gangs:
                pool.submit(self._release, gang)
            pool.shutdown(wait=True)

    # -- room

    def _after(self, key: str, gang: str) -> None:
        with self._guard:
            self._gangs.discard(gang)
            place = self._folders.pop(key)
        shutil.rmtree(place, ignore_errors=True)
        self._leaving.set()

    def _sweep(self) -> None:
        """Give room back that no host has any more: also that of an earlier server's, and what could not be before."""
        while not self._stopping.is_set():
            self._leaving.wait(_SWEEP_S)
            self._leaving.clear()
            if self._stopping.is_set():
                return
            try:
                left = [gang for gang in self._link.gangs() if gang.startswith(GANGS)]
            except EngineUnavailableError as exc:
                LOG.info("host.capacity_unknown reason=%s", exc)
                left = []
                self._stopping.wait(_AGAIN_S)
                self._leaving.set()
            for gang in left:
                with self._guard:
                    needed = gang in self._gangs
                if not needed and not self._stopping.is_set():
                    self._release(gang)

    def _release(self, gang: str) -> None:
        try:
            self._link.release(gang)
        except EngineUnavailableError as exc:
            LOG.info("host.capacity_not_released gang=%s reason=%s", gang, exc)


def _fetched(provision: Mapping[str, Any], way: ArtifactAccess, **words: str) -> dict[str, Any]:
    return {**provision, "url": f"{way.url}{provision['sha256']}", **words}


def _place(folder: Path, secret: str) -> HostEndpoint:
    """Where the host listens, as its keeper said. `ValueError` if that is not known."""
    found = GangAddresses(str(folder / "addresses" / ROUND)).of(REPLICA)
    if found is None:
        raise ValueError("nobody knows where it listens")
    return HostEndpoint(host=found[0], port=int(found[1]), secret=secret)
