"""The deployment controller: reconciles hosts with the rows of versions. It provisions, restarts, scales and deletes.

It also publishes routes, always before it acknowledges what they promise. A version is routed before its row says
READY, and withdrawn before its hosts are drained.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from trainshed.background import BackgroundLoop, PassFailures
from trainshed.control.deployments.completion import (
    CancelRequested,
    DeploymentStores,
    ShutdownRequested,
    VersionCompletion,
)
from trainshed.control.deployments.fleet import Fleet
from trainshed.control.deployments.provisioner import ModelLoadError, ProvisionedVersion, VersionProvisioner
from trainshed.control.deployments.route_publisher import RoutePublisher
from trainshed.domain.models.autoscaling import Scaling
from trainshed.domain.models.version import Version, VersionState
from trainshed.domain.models.version_details import VersionParity
from trainshed.domain.operations import CANCELLED, EMPTY, FAILED_PRECONDITION, INTERNAL, INVALID_ARGUMENT
from trainshed.domain.times import now_us
from trainshed.engines.hosts.watcher import HostPhase
from trainshed.engines.reaped_process import log_tail
from trainshed.errors import CannotProceedError, DatabaseUnavailableError, NotFoundError, TrainshedError
from trainshed.gateway.routes import Routes, Traffic
from trainshed.node.crashpoints import crashpoint
from trainshed.store.models import ModelStore

LOG = logging.getLogger("trainshed.control.deployments.controller")

IDLE_INTERVAL_S = 5.0  #: between passes when nothing is due; a wakeup starts one immediately
MAX_CREATING = 4  #: concurrent provisionings, and concurrent preparations of existing versions
MAX_DRAINING = 32  #: concurrent drains of hosts or versions
MAX_CREATING_PER_PROJECT = 2  #: concurrent provisionings per project, so that slow models of one do not block others

Key = tuple[str, str, str]  #: project, model, version


class ReleasesFiles(Protocol):
    """The store of versions' files."""

    def release(self, project: str, digest: str, *, used: Callable[[str, str], bool]) -> None: ...


class DeploymentController:
    """Serves versions. One thread owns the loop; pools provision and drain. Implements the gateway's `ControlPlane`."""

    def __init__(
        self,
        stores: DeploymentStores,
        provisioner: VersionProvisioner,
        routes: Routes,
        traffic: Traffic,
        *,
        sleep_after_s: float,
        drain_s: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`drain_s` is the time that a host has to finish its in-flight requests.

        `check` raises `CannotProceedError` if the controller must not act.
        """
        self._models = stores.models
        self._operations = stores.operations
        self._provisioner = provisioner
        self._hosts = provisioner.hosts
        self._model_files: ReleasesFiles = provisioner.deps.model_files
        self._traffic = traffic
        self._sleep_after_s = sleep_after_s
        self._drain_s = drain_s
        self._check = check
        self._lock = threading.RLock()  #: guards `_fleets`
        self._fleets: dict[Key, Fleet] = {}
        self._progress: dict[Key, str] = {}
        self._busy: set[Key] = set()  #: versions that a pool thread provisions, prepares or deletes
        self._provisioning: set[Key] = set()  #: those of `_busy` that are being provisioned
        self._calls: deque[Callable[[], None]] = deque()  #: calls from threads that must not block
        self._publisher = RoutePublisher(stores.models, routes, self._fleet_of)
        self._loop = BackgroundLoop("deployments", self._checked_step)
        self._completion = VersionCompletion(stores, self._publisher, self._loop.stopping)
        self._provision_pool = ThreadPoolExecutor(MAX_CREATING, thread_name_prefix="create-version")
        self._prepare_pool = ThreadPoolExecutor(MAX_CREATING, thread_name_prefix="hosts")
        self._drain_pool = ThreadPoolExecutor(MAX_DRAINING, thread_name_prefix="end-hosts")  #: drains may take long

    def start(self) -> None:
        """Publish the routes of all models and start the loop."""
        for model in self._models.every():
            self._publisher.publish(model.project, model.id)
        self._loop.start()

    def stop(self) -> None:
        """Start nothing new."""
        self._loop.stop()

    def join(self) -> None:
        """Blocks until the loop and the work in progress end. Call it after `stop`. The next server does the rest."""
        self._loop.join()
        self._provision_pool.shutdown(wait=True, cancel_futures=True)
        self._prepare_pool.shutdown(wait=True, cancel_futures=True)
        self._drain_pool.shutdown(wait=True, cancel_futures=True)

    def wake(self) -> None:
        """Start the next pass immediately. Thread-safe."""
        self._loop.wake()

    def publish(self, project: str, model: str) -> None:
        """Publish the routes of a model from its rows, before this returns. Not for the event loop."""
        route = self._publisher.publish(project, model)
        if route is not None and not route.versions and not self._loop.stopping.is_set():
            self._prepare_pool.submit(self._provisioner.prewarm)

    def activate(self, project: str, model: str, version: str) -> None:
        """See `ControlPlane`."""
        self._call(lambda: self._activate((project, model, version)))

    def host_unresponsive(self, key: str) -> None:
        """See `ControlPlane`."""
        self._call(lambda: self._hosts.kill(key, reason="It let a request run into its deadline and answered nothing."))

    def host_unreachable(self, key: str, reason: str) -> None:
        """See `ControlPlane`."""
        self._call(lambda: self._hosts.kill(key, reason=f"This server can't connect to it: {reason}."))

    def hosts(self, project: str, model: str, version: str) -> list[dict[str, Any]]:
        """Return the current hosts of a version as JSON objects."""
        with self._lock:
            fleet = self._fleets.get((project, model, version))
            keys = dict(fleet.keys) if fleet is not None else {}
        bodies = []
        for number, key in sorted(keys.items()):
            if (status := self._hosts.status(key)) is not None:
                pid, memory = self._hosts.memory_use(key)
                age_s = round(time.monotonic() - status.started_s, 3)
                bodies.append(
                    {
                        "instance": number,
                        "pid": pid,
                        "state": status.phase.value,
                        "memoryBytes": memory,
                        "ageSeconds": age_s,
                        "stats": self._hosts.stats(key) if status.phase is HostPhase.READY else {},
                        "address": str(status.endpoint or ""),
                    }
                )
        return bodies

    def scaling(self, project: str, model: str, version: str) -> Scaling:
        """See `DeploymentControl`."""
        with self._lock:
            fleet = self._fleets.get((project, model, version))
            return fleet.scaling if fleet is not None else Scaling()

    def progress(self, project: str, model: str, version: str) -> str:
        """Return what provisioning does now, or why a version does not serve. Returns "" if it serves."""
        key = (project, model, version)
        with self._lock:
            fleet = self._fleets.get(key)
            serves = fleet is not None and bool(fleet.addresses())
            return self._progress.get(key, "") or (fleet.reason if fleet is not None and not serves else "")

    def log_tail(self, project: str, model: str, version: str) -> str:
        """Return the last output of the version's first host."""
        return log_tail(self._hosts.folder(project, model, version) / "0.log")

    def _fleet(self, *, awake: bool) -> Fleet:
        return Fleet(self._hosts, self._provisioner.resources, self._sleep_after_s, awake=awake)

    def _set_progress(self, key: Key, text: str) -> None:
        self._progress[key] = text

    def _fleet_of(self, version: Version) -> tuple[threading.RLock, Fleet | None]:
        return self._lock, self._fleets.get(_key(version))

    def _call(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        self._loop.wake()

    def _activate(self, key: Key) -> None:
        with self._lock:
            if (fleet := self._fleets.get(key)) is not None:
                fleet.activate()

    def _checked_step(self) -> float:
        """Run one pass, if this server may act. Returns the seconds until the next one."""
        try:
            self._check()
        except CannotProceedError as exc:
            LOG.critical("control.refused reason=%s", exc)
            return IDLE_INTERVAL_S
        return self.step()

    def step(self) -> float:
        """Run one reconcile pass over all versions. Returns the seconds until the next one is due without a wakeup."""
        while self._calls:
            self._calls.popleft()()
        pause_s = IDLE_INTERVAL_S
        rows = self._models.versions_to_serve()
        failures = PassFailures(LOG, "version.step_failed")
        for version in rows.values:
            try:
                pause_s = min(pause_s, self._reconcile_version(version))
            except Exception as exc:  # noqa: BLE001 - logged; it must not block the others
                failures.add(version.name, exc)
        unreadable = {(row["project"], row["model"], row["id"]) for row in rows.unreadable}  # their hosts go on
        self._drop_orphaned_fleets({_key(version) for version in rows.values} | unreadable)
        if len(failures.names) == len(rows.values):
            failures.raise_outage()
        return pause_s

    def _drop_orphaned_fleets(self, stored: set[Key]) -> None:
        """Drain hosts without a row: a pass may have started hosts for a row that was deleted after it was read."""
        with self._lock:
            orphaned = [key for key in self._fleets if key not in stored and key not in self._busy]
            keys = [host for key in orphaned for host in self._fleets.pop(key).all_keys()]
        if keys:
            self._drain_pool.submit(self._drain, keys)

    def _reconcile_version(self, version: Version) -> float:
        key = _key(version)
        if key in self._busy:
            return IDLE_INTERVAL_S
        match version.state:
            case VersionState.CREATING:
                if sum(project == version.project for project, _, _ in self._provisioning) < MAX_CREATING_PER_PROJECT:
                    self._provisioning.add(key)
                    self._submit(self._provision_pool, key, self._create, version)
            case VersionState.DELETING:
                self._submit(self._drain_pool, key, self._delete, version)
            case VersionState.READY | VersionState.UPDATING:
                return self._reconcile_fleet(key, version)
        return IDLE_INTERVAL_S

    def _submit(self, pool: ThreadPoolExecutor, key: Key, task: Callable[[Version], None], version: Version) -> None:
        self._busy.add(key)

        def run() -> None:
            try:
                task(version)
            except ShutdownRequested:
                LOG.info("version.left version=%s", version.name)
            except Exception:  # the last frame of a pool thread: nothing else would report it
                LOG.exception("version.step_failed version=%s", version.name)
                self._loop.stopping.wait(1.0)
            finally:
                self._provisioning.discard(key)
                self._busy.discard(key)
                self._loop.wake()

        pool.submit(run)

    def _reconcile_fleet(self, key: Key, version: Version) -> float:
        with self._lock:
            fleet = self._fleets.get(key)
            if fleet is None:
                fleet = self._fleets[key] = self._fleet(awake=version.nodes > 0)
            if fleet.spec is None and fleet.may_start():
                self._submit(self._prepare_pool, key, self._prepare, version)
                return IDLE_INTERVAL_S
            surplus = fleet.reconcile(
                version,
                last_used_us=self._traffic.last_used_us(*key),
                in_flight=self._traffic.load(fleet.all_keys()),
            )
            pause_s = fleet.next_reconcile_s(version)
            changed, converged = fleet.take_change(version), fleet.converged(version)
        if changed:
            self._publisher.publish(version.project, version.model)
        if surplus:
            self._drain_pool.submit(self._drain, surplus)
        if converged and version.state is VersionState.UPDATING:
            self._completion.updated(version)
            self.wake()  # it may have been updated again meanwhile
        return pause_s

    def _prepare(self, version: Version) -> None:
        """Resolve the host spec of a version that an earlier server provisioned."""
        with self._lock:
            fleet = self._fleets[_key(version)]
        try:
            fleet.spec = self._provisioner.spec_of_existing(version)
        except TrainshedError as exc:
            LOG.warning("version.not_startable version=%s reason=%s", version.name, exc)
            with self._lock:
                fleet.failed(str(exc))

    def _drain(self, keys: Sequence[str]) -> None:
        """Drain and stop hosts that are withdrawn from the routes. Blocks until they have exited."""
        self._traffic.drained(keys, timeout_s=self._drain_s)
        for key in keys:
            self._hosts.drain(key)
        deadline = time.monotonic() + self._drain_s
        for key in keys:
            while (status := self._hosts.status(key)) is not None and status.phase is not HostPhase.ENDED:
                if time.monotonic() > deadline or self._loop.stopping.is_set():
                    self._hosts.kill(key)
                time.sleep(0.01)
            self._hosts.forget(key)

    def _delete(self, version: Version) -> None:
        key = _key(version)
        if self._current(version).state is not VersionState.DELETING:
            return
        with self._lock:
            fleet = self._fleets.pop(key, None)
        self._publisher.publish(version.project, version.model)  # a version that is DELETING has no route
        if fleet is not None:
            self._drain(fleet.all_keys())
        crashpoint("version.delete.drained")
        self._hosts.remove(*key)  # before the row: without one, nothing would remove the folder
        crashpoint("version.delete.folder_removed")
        # Before the row too. The files of a version that shares them stay, also while that one drains.
        self._model_files.release(
            version.project, version.files, used=partial(self._models.files_used, besides=version)
        )
        crashpoint("version.delete.files_removed")
        operation = self._operations.get(version.project, version.operation)
        self._models.remove_version(version, operation.succeeded(EMPTY, now_us=now_us()))
        crashpoint("version.delete.row_removed")
        self._publisher.publish(version.project, version.model)
        LOG.info("version.deleted version=%s", version.name)

    def _current(self, version: Version) -> Version:
        """Return the current row. The pass may have read it before another thread finished."""
        try:
            return self._models.version(version.project, version.model, version.id)
        except NotFoundError:
            return replace(version, state=VersionState.FAILED)

    def _create(self, version: Version) -> None:
        key = _key(version)
        if self._current(version).state is not VersionState.CREATING:
            return
        try:
            context = self._completion.context(version, report=lambda message: self._set_progress(key, message))
            with self._provisioner.provision(version, context) as provisioned:
                self._publish_ready(version, provisioned)
        except (ShutdownRequested, DatabaseUnavailableError):  # the next pass, or the next server, goes on
            raise
        except CancelRequested:
            self._completion.fail(version, CANCELLED, "Create Version was cancelled.")
        except ModelLoadError as exc:
            message = f'Create Version failed. Bad model detected with error:  "{exc}"'
            self._completion.fail(version, INVALID_ARGUMENT, message)
        except TrainshedError as exc:
            self._completion.fail(version, FAILED_PRECONDITION, f"Create Version failed. {exc}")
        except Exception as exc:  # a bug in Trainshed must not leave a version in CREATING
            LOG.exception("version.create_failed version=%s", version.name)
            message = f"Trainshed itself failed to create this version: {exc}. The server's log has the details."
            self._completion.fail(version, INTERNAL, message)
        finally:
            self._progress.pop(key, None)

    def _publish_ready(self, version: Version, provisioned: ProvisionedVersion) -> None:
        """Publish a ready host, then record READY. Withdraws it if that cannot be recorded."""
        key = _key(version)
        fleet = self._fleet(awake=True)
        fleet.adopt(provisioned.spec, provisioned.host, hosts=version.host_range.maximum)
        with self._lock:
            self._fleets[key] = fleet
        try:
            self._completion.mark_ready(version, provisioned)
        except BaseException:
            with self._lock:
                self._fleets.pop(key, None)
            self._publisher.publish(version.project, version.model)
            raise
        LOG.info("version.ready version=%s loader=%s", version.name, provisioned.spec.loader)


def find_parity(models: ModelStore) -> Callable[[Version, str], VersionParity | None]:
    """Return a function that finds the known parity of a version with the same files, runtime and engine."""

    def find(version: Version, files: str) -> VersionParity | None:
        identity = (version.project, files, version.runtime, version.engine)
        for other in models.versions_to_serve().values:
            served = other.details.served
            if served and served.parity and (other.project, other.files, other.runtime, other.engine) == identity:
                return served.parity
        return None

    return find


def _key(version: Version) -> Key:
    return (version.project, version.model, version.id)


def runtime_in_use(models: ModelStore, runtime: str) -> bool:
    """Return whether a version that is served, or about to be, uses a runtime. An unreadable one may use any."""
    rows = models.versions_to_serve()
    return bool(rows.unreadable) or any(version.runtime == runtime for version in rows.values)
