"""The engine that runs gangs on a Ray cluster. Supervisors stay on this machine; what they start are stand-ins.

A gang's room is a placement group, which the link, the one process that speaks to Ray, makes and removes by name. Each
is written down in a folder before it is asked for, so that none is ever forgotten. A cluster may take its time to
answer: it is asked by threads of the engine's own, and whoever asks the engine gets what they last heard.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.domain.capacity.placement import (
    NodeCapacity,
    Resources,
    ResourceShares,
    fits,
    fits_in_total,
    largest_fitting_type,
    pending_reason,
)
from trainshed.domain.jobs.reconcile import ObservedAttempt
from trainshed.domain.times import clock_time, now_us
from trainshed.engines.base import AttemptSpec, GangRequest, Outage, Pending, Reserved
from trainshed.engines.local.engine import LocalEngine
from trainshed.engines.ray.bridge_process import ClusterStatus
from trainshed.errors import EngineUnavailableError, InvalidArgumentError

LOG = logging.getLogger("trainshed.engines.ray.engine")

LEASE_S = 600.0  #: how long a replica goes on that nobody has asked after
LOOK_S = 1.0  #: between two looks at the cluster
SOON_S = 0.5  #: between two questions about a gang that waits, if no room is given back before
PLACING_S = 2.0  #: Ray places a gang that it has room for sooner than this
AHEAD = 8  #: gangs that may be waiting for Ray to place them
AWAY_S = 10.0  #: how long the cluster may be silent, as when the link is started, without a word about it

Bundles = Mapping[str, Resources]  #: what each replica of a gang asks for, by its name


class PlacementBridge(Protocol):
    """A link, as `engines.link` has it. Its methods may take some seconds."""

    @property
    def socket(self) -> Path: ...

    def cluster(self) -> ClusterStatus: ...

    def reserve(self, gang: str, bundles: Bundles, strategy: str) -> bool: ...

    def release(self, gang: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementConfig:
    """What gangs ask of the cluster."""

    address: str  #: HOST:PORT, as the operator wrote it; empty: there is none
    strategy: str  #: PACK or SPREAD
    machines: MachineTypes
    shares: ResourceShares

    @property
    def what(self) -> str:
        if not self.address:
            return "The Ray cluster, whose address the server was not given with --ray-address,"
        return f"The Ray cluster at {self.address}"

    def bundles(self, machines: Mapping[str, str], gpus: Mapping[str, int]) -> dict[str, dict[str, float]]:
        """What each replica asks for, by its name. `InvalidArgumentError` for a machine type that there is no more."""
        return {
            name: self.shares.bundle(machine, self.machines, gpus=gpus.get(name, 0))
            for name, machine in machines.items()
        }


@dataclass(slots=True)
class _Reservation:
    """An attempt for which there is, or may be, a placement group."""

    bundles: Bundles = field(default_factory=dict)  #: empty: it was asked for by an earlier server
    since_s: float = field(default_factory=time.monotonic)
    ready: bool = False
    leaving: bool = False  #: it is being removed


class RayEngine:
    """Threads may share it. `supervisors` starts and watches supervisors on this machine."""

    def __init__(self, rules: PlacementConfig, supervisors: LocalEngine, link: PlacementBridge, *, gangs: Path) -> None:
        """`gangs` is a folder for notes of our own."""
        self._rules = rules
        self._supervisors = supervisors
        self._link = link
        self._gangs = gangs
        self._view = ClusterStatus(address=rules.address, reachable=False, since_us=0)
        self._began_us = now_us()
        self._guard = threading.Lock()
        self._asked = {Path(mark.read_text()): _Reservation() for mark in gangs.glob("[!.]*@*")}  # under the guard
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._wake: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._keep_asking, name="ray-room", daemon=True)

    def begin(self, wake: Callable[[], None]) -> None:
        """Ask the cluster from now on. `wake` is called when there is room for a gang, or when it is given back."""
        self._wake = wake
        self._thread.start()

    def close(self) -> None:
        """Ask no more. What was asked for stays."""
        self._stopping.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join()

    # -- room

    def reserve(self, gang: GangRequest, others: Sequence[GangRequest]) -> Reserved | Pending:
        """Have a placement group made for the gang, if there is none yet.

        What cannot fit holds nobody up. Nor does a gang that there is room for, while Ray places it: so those behind it
        are placed meanwhile.
        """
        try:
            bundles = self._rules.bundles(gang.machines, gang.gpus)
        except InvalidArgumentError:
            return Pending(blocks_queue=False)
        self._write_down(gang.folder)
        with self._guard:
            asked = self._asked[gang.folder]
            if asked.ready and not asked.leaving:
                return Reserved()
            if not asked.bundles:
                self._news.set()
            asked.bundles = bundles
            placed = self._will_be_placed(asked)
        view = self._view
        return Pending(blocks_queue=not view.reachable or (_possible(bundles, view) and not placed))

    def _will_be_placed(self, asked: _Reservation) -> bool:
        """Whether a gang waits for nothing but Ray: there is room beside all that was asked for, as far as we know, and
        it has not waited for long.
        """
        waiting = sum(not each.ready for each in self._asked.values())
        wanted = [bundle for each in self._asked.values() for bundle in each.bundles.values()]
        return (
            time.monotonic() - asked.since_s < PLACING_S
            and waiting < AHEAD
            and fits_in_total(wanted, [node.total for node in _nodes(self._view)])
        )

    def pending_reason(self, gang: GangRequest, others: Sequence[GangRequest]) -> str:
        try:
            bundles = self._rules.bundles(gang.machines, gang.gpus)
        except InvalidArgumentError as exc:
            return str(exc).rstrip(".")
        view = self._view
        if not view.reachable:
            since = clock_time(view.since_us or self._began_us)
            why = f" ({view.why})" if view.why else ""
            return f"{self._rules.what[:1].lower()}{self._rules.what[1:]} has not answered since {since}{why}"
        nodes = _nodes(view)
        said = pending_reason(list(bundles.values()), nodes)
        if nodes and not _possible(bundles, view):
            other = largest_fitting_type(len(bundles), nodes, self._rules.machines, self._rules.shares)
            said += f"; a gang of machine type {other} would fit" if other else ""
        return said

    def reservations(self) -> Collection[Path]:
        with self._guard:
            return list(self._asked)

    def release(self, attempt: Path) -> None:
        """Have the placement group and all in it removed. Until that is done, the attempt is held."""
        with self._guard:
            asked = self._asked.get(attempt)
            if asked is None or asked.leaving:
                return
            asked.leaving = True
        threading.Thread(target=self._give_back, args=(attempt,), name="ray-release", daemon=True).start()

    def _give_back(self, attempt: Path) -> None:
        try:
            self._link.release(gang_name(attempt))
        except EngineUnavailableError as exc:
            LOG.info("ray.not_released gang=%s reason=%s", gang_name(attempt), exc)
            self._stopping.wait(LOOK_S)
            with self._guard:
                self._asked[attempt].leaving = False  # for whoever sees that it is still held
            return
        self._mark(attempt).unlink(missing_ok=True)
        with self._guard:
            del self._asked[attempt]
        self._news.set()
        self._wake()

    def _mark(self, attempt: Path) -> Path:
        return self._gangs / "@".join(attempt.parts[-3:])

    def _write_down(self, attempt: Path) -> None:
        """Note that room is asked for the attempt, before it is."""
        with self._guard:
            if attempt in self._asked:
                return
            self._gangs.mkdir(mode=0o700, parents=True, exist_ok=True)
            mark = self._mark(attempt)
            draft = mark.with_name(f".{mark.name}")
            with draft.open("w") as file:
                file.write(str(attempt))
                file.flush()
                os.fsync(file.fileno())
            draft.rename(mark)
            self._asked[attempt] = _Reservation()

    # -- the cluster

    def outage(self) -> Outage | None:
        view = self._view
        since_us = view.since_us or self._began_us
        if view.reachable or now_us() - max(since_us, self._began_us) < AWAY_S * 1e6:
            return None
        return Outage(engine=self._rules.what, since_us=since_us)

    def _keep_asking(self) -> None:
        looked_s = float("-inf")
        while not self._stopping.is_set():
            self._news.clear()
            whole = time.monotonic() - looked_s >= LOOK_S
            if whole:
                self._view, looked_s = self._link.cluster(), time.monotonic()
            self._news.wait(SOON_S if self._ask_for_room(whole=whole) else LOOK_S)

    def _ask_for_room(self, *, whole: bool) -> bool:
        """Ask for those who wait for room; in a whole look, also for what could not fit. Returns whether some wait."""
        with self._guard:
            wanted = [
                (attempt, asked)
                for attempt, asked in self._asked.items()
                if asked.bundles and not asked.ready and not asked.leaving
                if whole or _possible(asked.bundles, self._view)
            ]
        for attempt, asked in wanted:
            try:
                asked.ready = self._link.reserve(gang_name(attempt), asked.bundles, self._rules.strategy)
            except EngineUnavailableError as exc:
                LOG.info("ray.not_reserved gang=%s reason=%s", gang_name(attempt), exc)
                self._stopping.wait(LOOK_S)
                return True
            if asked.ready:
                self._wake()
        return not all(asked.ready for _, asked in wanted)

    # -- attempts

    def launch(self, launch: AttemptSpec) -> None:
        """Start the attempt's supervisor, with stand-ins below it that have the link start the replicas."""
        assert launch.elsewhere is not None
        cluster = {
            "socket": str(self._link.socket),
            "gang": gang_name(launch.folder),
            "strategy": self._rules.strategy,
            "bundles": self._rules.bundles(
                {each.name: each.machine for each in launch.replicas},
                {each.name: each.gpus for each in launch.replicas},
            ),
            "runtime": dict(launch.elsewhere.runtime),
            "packages": [dict(package) for package in launch.elsewhere.packages],
            "credentials": dict(launch.elsewhere.kit),
            "lease_s": LEASE_S,
        }
        self._supervisors.supervise(launch, cluster=cluster)

    def observe(self, attempts: Collection[Path]) -> Mapping[Path, ObservedAttempt]:
        return self._supervisors.observe(attempts)

    def cancel(self, attempt: Path) -> None:
        self._supervisors.cancel(attempt)

    def kill(self, attempt: Path, replica: str, number: int) -> None:
        """Send a signal to the replica's stand-in, which passes it on."""
        self._supervisors.kill(attempt, replica, number)


def _nodes(view: ClusterStatus) -> list[NodeCapacity]:
    return [NodeCapacity(host=node.host, total=node.total, free=node.free or None) for node in view.nodes if node.alive]


def _possible(bundles: Bundles, view: ClusterStatus) -> bool:
    """Whether the gang would fit if the cluster were empty."""
    return fits(bundles.values(), [node.total for node in _nodes(view)])


def gang_name(attempt: Path) -> str:
    """What the gang of an attempt is called on the cluster: by it, it is found again."""
    return "/".join(("trainshed", *attempt.parts[-3:]))
