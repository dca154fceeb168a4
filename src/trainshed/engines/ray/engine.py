"""The engine that runs gangs on a Ray cluster. Supervisors stay on this machine, and their
children are replica proxies.

The reservation of a gang is a placement group, which the bridge creates and removes by name. Each is recorded in a
folder before it is requested, so that none is ever forgotten. A cluster may respond slowly, so the engine's own threads
talk to it, and callers get the last known state.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trainshed.background import BackgroundLoop
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
from trainshed.node.files import write_file

LOG = logging.getLogger("trainshed.engines.ray.engine")

LEASE_S = 600.0  #: how long a replica continues that no proxy reads from
STATUS_INTERVAL_S = 1.0  #: between two cluster status requests
PENDING_POLL_INTERVAL_S = 0.5  #: while a placement group is pending; a release wakes the loop earlier
PLACEMENT_GRACE_S = 2.0  #: Ray places a gang that fits sooner than this
MAX_PENDING_GANGS = 8  #: gangs that may be pending in Ray at once
OUTAGE_GRACE_S = 10.0  #: how long the cluster may be unreachable, as when the bridge restarts, before it is reported

Bundles = Mapping[str, Resources]  #: the resources of each replica of a gang, by its name


class PlacementBridge(Protocol):
    """The bridge, as `engines.ray.bridge_process` implements it. Its methods may take some seconds."""

    @property
    def socket(self) -> Path: ...

    def cluster(self) -> ClusterStatus: ...

    def reserve(self, gang: str, bundles: Bundles, strategy: str) -> bool: ...

    def release(self, gang: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementConfig:
    """What gangs request from the cluster."""

    address: str  #: HOST:PORT, as the operator wrote it; empty: there is none
    strategy: str  #: PACK or SPREAD
    machines: MachineTypes
    shares: ResourceShares
    single_replica_share: float = 0.0  #: of the cores, kept for jobs of one replica

    @property
    def name(self) -> str:
        if not self.address:
            return "The Ray cluster, whose address the server was not given with --ray-address,"
        return f"The Ray cluster at {self.address}"

    def bundles(self, machines: Mapping[str, str], gpus: Mapping[str, int]) -> dict[str, dict[str, float]]:
        """Resources of each replica, by its name. Raises `InvalidArgumentError` for an unknown machine type."""
        return {
            name: self.shares.bundle(machine_type, self.machines, gpus=gpus.get(name, 0))
            for name, machine_type in machines.items()
        }


@dataclass(slots=True)
class _Reservation:
    """An attempt that has, or may have, a placement group."""

    bundles: Bundles = field(default_factory=dict)  #: empty: an earlier server requested it
    since_s: float = field(default_factory=time.monotonic)
    ready: bool = False
    releasing: bool = False  #: it is being removed


class RayEngine:
    """Runs gangs on a Ray cluster. Thread-safe. `supervisors` starts and watches supervisors on this machine."""

    def __init__(
        self, config: PlacementConfig, supervisors: LocalEngine, bridge: PlacementBridge, *, gangs: Path
    ) -> None:
        """`gangs` is the folder of reservation records."""
        self._config = config
        self._supervisors = supervisors
        self._bridge = bridge
        self._gangs = gangs
        self._status = ClusterStatus(address=config.address, reachable=False, since_us=0)
        self._created_us = now_us()
        self._lock = threading.Lock()
        # Under the lock.
        self._reservations = {Path(record.read_text()): _Reservation() for record in gangs.glob("[!.]*@*")}
        self._status_s = float("-inf")  #: when the cluster was last asked for its status
        self._wake: Callable[[], None] = lambda: None
        self._loop = BackgroundLoop("ray-reservations", self._step)

    def begin(self, wake: Callable[[], None]) -> None:
        """Talk to the cluster from now on. `wake` is called when a gang gets its capacity, and
        when capacity is released."""
        self._wake = wake
        self._loop.start()

    def close(self) -> None:
        """Stop talking to the cluster. Reservations stay."""
        self._loop.stop()
        self._loop.join()

    # -- reservations

    def reserve(
        self, gang: GangRequest, others: Sequence[GangRequest], ahead: Sequence[GangRequest] = ()
    ) -> Reserved | Pending:
        """Request a placement group for the gang, if it has none yet.

        A gang that can't fit does not block the queue. Nor does one that fits, while Ray places it: so later
        gangs are placed meanwhile. Nothing is requested behind gangs that nothing may overtake: Ray would place
        what fits first.
        """
        if ahead:
            return Pending(full=True)
        try:
            bundles = self._config.bundles(gang.machines, gang.gpus)
        except InvalidArgumentError:
            return Pending(blocks_queue=False)
        if self._must_leave_kept_share(gang.folder, bundles):
            return Pending()
        self._record(gang.folder)
        with self._lock:
            reservation = self._reservations[gang.folder]
            if reservation.ready and not reservation.releasing:
                return Reserved()
            if not reservation.bundles:
                self._loop.wake()
            reservation.bundles = bundles
            being_placed = self._is_being_placed(reservation)
        status = self._status
        return Pending(blocks_queue=not status.reachable or (_fits_empty_cluster(bundles, status) and not being_placed))

    def _must_leave_kept_share(self, attempt: Path, bundles: Bundles) -> bool:
        """Whether a gang of several replicas would, beside others, take cores that are kept for jobs of one replica.

        One that needs more than all other cores is only requested when no other gang has a placement group.
        """
        if len(bundles) == 1 or not self._config.single_replica_share or not self._status.reachable:
            return False
        with self._lock:
            if attempt in self._reservations:
                return False
            others = sum(_cpus(each.bundles) for each in self._reservations.values() if len(each.bundles) > 1)
        total = sum(node.total.get("CPU", 0.0) for node in _nodes(self._status))
        return others > 0 and others + _cpus(bundles) > total * (1 - self._config.single_replica_share)

    def _is_being_placed(self, reservation: _Reservation) -> bool:
        """Whether a gang waits only for Ray: it fits beside all known reservations, and has not waited long."""
        pending = sum(not each.ready for each in self._reservations.values())
        requested = [bundle for each in self._reservations.values() for bundle in each.bundles.values()]
        return (
            time.monotonic() - reservation.since_s < PLACEMENT_GRACE_S
            and pending < MAX_PENDING_GANGS
            and fits_in_total(requested, [node.total for node in _nodes(self._status)])
        )

    def pending_reason(self, gang: GangRequest, others: Sequence[GangRequest]) -> str:
        try:
            bundles = self._config.bundles(gang.machines, gang.gpus)
        except InvalidArgumentError as exc:
            return str(exc).rstrip(".")
        status = self._status
        if not status.reachable:
            since = clock_time(status.since_us or self._created_us)
            detail = f" ({status.reason})" if status.reason else ""
            return f"{self._config.name[:1].lower()}{self._config.name[1:]} has not answered since {since}{detail}"
        nodes = _nodes(status)
        reason = pending_reason(list(bundles.values()), nodes)
        if nodes and not _fits_empty_cluster(bundles, status):
            machine_type = largest_fitting_type(len(bundles), nodes, self._config.machines, self._config.shares)
            reason += f"; a gang of machine type {machine_type} would fit" if machine_type else ""
        return reason

    def reservations(self) -> Collection[Path]:
        with self._lock:
            return list(self._reservations)

    def release(self, attempt: Path) -> None:
        """Remove the placement group with all that runs in it. Until that is done, the
        attempt keeps its reservation."""
        with self._lock:
            reservation = self._reservations.get(attempt)
            if reservation is None or reservation.releasing:
                return
            reservation.releasing = True
        threading.Thread(target=self._release, args=(attempt,), name="ray-release", daemon=True).start()

    def _release(self, attempt: Path) -> None:
        try:
            self._bridge.release(gang_name(attempt))
        except EngineUnavailableError as exc:
            LOG.info("ray.not_released gang=%s reason=%s", gang_name(attempt), exc)
            self._loop.stopping.wait(STATUS_INTERVAL_S)
            with self._lock:
                self._reservations[attempt].releasing = False  # the next reconcile pass tries again
            return
        self._record_path(attempt).unlink(missing_ok=True)
        with self._lock:
            del self._reservations[attempt]
        self._loop.wake()
        self._wake()

    def _record_path(self, attempt: Path) -> Path:
        return self._gangs / "@".join(attempt.parts[-3:])

    def _record(self, attempt: Path) -> None:
        """Record that capacity is requested for the attempt, before the request."""
        with self._lock:
            if attempt in self._reservations:
                return
            self._gangs.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(self._record_path(attempt), str(attempt).encode(), durable=True)
            self._reservations[attempt] = _Reservation()

    # -- the cluster

    def outage(self) -> Outage | None:
        status = self._status
        since_us = status.since_us or self._created_us
        if status.reachable or now_us() - max(since_us, self._created_us) < OUTAGE_GRACE_S * 1e6:
            return None
        return Outage(engine=self._config.name, since_us=since_us)

    def _step(self) -> float:
        full = time.monotonic() - self._status_s >= STATUS_INTERVAL_S
        if full:
            self._status, self._status_s = self._bridge.cluster(), time.monotonic()
        return PENDING_POLL_INTERVAL_S if self._request_pending(full=full) else STATUS_INTERVAL_S

    def _request_pending(self, *, full: bool) -> bool:
        """Request the capacity of pending gangs. In a `full` pass, also of those that could not fit.
        Returns whether any is pending."""
        with self._lock:
            pending = [
                (attempt, reservation)
                for attempt, reservation in self._reservations.items()
                if reservation.bundles and not reservation.ready and not reservation.releasing
                if full or _fits_empty_cluster(reservation.bundles, self._status)
            ]
        for attempt, reservation in pending:
            try:
                reservation.ready = self._bridge.reserve(gang_name(attempt), reservation.bundles, self._config.strategy)
            except EngineUnavailableError as exc:
                LOG.info("ray.not_reserved gang=%s reason=%s", gang_name(attempt), exc)
                self._loop.stopping.wait(STATUS_INTERVAL_S)
                return True
            if reservation.ready:
                self._wake()
        return not all(reservation.ready for _, reservation in pending)

    # -- attempts

    def launch(self, spec: AttemptSpec) -> None:
        """Start the attempt's supervisor, with replica proxies that have the bridge start the replicas."""
        assert spec.remote is not None
        cluster = {
            "socket": str(self._bridge.socket),
            "gang": gang_name(spec.folder),
            "strategy": self._config.strategy,
            "bundles": self._config.bundles(
                {each.name: each.machine for each in spec.replicas},
                {each.name: each.gpus for each in spec.replicas},
            ),
            "runtime": dict(spec.remote.runtime),
            "packages": [dict(package) for package in spec.remote.packages],
            "credentials": dict(spec.remote.credentials),
            "lease_s": LEASE_S,
        }
        self._supervisors.supervise(spec, cluster=cluster)

    def observe(self, attempts: Collection[Path]) -> Mapping[Path, ObservedAttempt]:
        return self._supervisors.observe(attempts)

    def cancel(self, attempt: Path) -> None:
        self._supervisors.cancel(attempt)

    def kill(self, attempt: Path, replica: str, number: int) -> None:
        """Send a signal to the replica's proxy, which forwards it."""
        self._supervisors.kill(attempt, replica, number)


def _nodes(status: ClusterStatus) -> list[NodeCapacity]:
    return [
        NodeCapacity(host=node.host, total=node.total, free=node.free or None) for node in status.nodes if node.alive
    ]


def _cpus(bundles: Bundles) -> float:
    return sum(bundle.get("CPU", 0.0) for bundle in bundles.values())


def _fits_empty_cluster(bundles: Bundles, status: ClusterStatus) -> bool:
    """Whether the gang would fit if the cluster were empty."""
    return fits(bundles.values(), [node.total for node in _nodes(status)])


def gang_name(attempt: Path) -> str:
    """The name of an attempt's gang on the cluster."""
    return "/".join(("trainshed", *attempt.parts[-3:]))
