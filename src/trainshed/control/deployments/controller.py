"""The loop that makes hosts match the rows of versions: created, kept running, put to sleep, deleted.

Routes are published here too, always before what they promise is acknowledged: a version is in them before its row says
READY, and out of them before its host is asked to end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol

from trainshed.control.deployments.completion import (
    CancelRequested,
    DeploymentStores,
    ShutdownRequested,
    VersionCompletion,
)
from trainshed.control.deployments.fleet import Fleet
from trainshed.control.deployments.provisioner import ModelLoadError, ProvisionedVersion, VersionProvisioner
from trainshed.control.deployments.route_publisher import RoutePublisher
from trainshed.domain.models import hosting as rules
from trainshed.domain.models.version import Version, VersionState
from trainshed.domain.operations import CANCELLED, EMPTY, FAILED_PRECONDITION, INTERNAL, INVALID_ARGUMENT
from trainshed.domain.times import now_us
from trainshed.engines.hosts.watcher import HostPhase
from trainshed.engines.reaped_process import log_tail
from trainshed.errors import CannotProceedError, NotFoundError, TrainshedError
from trainshed.gateway.routes import Routes, Traffic
from trainshed.store.models import ModelStore

LOG = logging.getLogger("trainshed.control.deployments.controller")

IDLE_S = 5.0  #: between looks when nothing is due; what is new wakes the loop at once
CREATIONS = 4  #: at once
ENDINGS = 32  #: hosts, or versions, at once that wait for their last answers
CREATIONS_EACH = 2  #: of one project, so that its slow models leave room for others

Key = tuple[str, str, str]  #: project, model, version


class ReleasesFiles(Protocol):
    """Where the files of versions are."""

    def release(self, project: str, digest: str) -> None: ...


class DeploymentController:
    """One thread owns the loop, small pools create and end hosts. Also what the gateway's `Keeper` asks for."""

    def __init__(
        self,
        ledger: DeploymentStores,
        creations: VersionProvisioner,
        routes: Routes,
        traffic: Traffic,
        *,
        sleep_after_s: float,
        drain_s: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`drain_s`: how long a host may take to end what it has.

        `check` raises `CannotProceedError` if we may not go on.
        """
        self._models = ledger.models
        self._operations = ledger.operations
        self._creations = creations
        self._hosts = creations.hosts
        self._pins: ReleasesFiles = creations.supplies.pins
        self._traffic = traffic
        self._sleep_after_s = sleep_after_s
        self._drain_s = drain_s
        self._check = check
        self._lock = threading.RLock()  #: of the fleets
        self._fleets: dict[Key, Fleet] = {}
        self._progress: dict[Key, str] = {}
        self._busy: set[Key] = set()  #: those that a thread of a pool creates, prepares or deletes
        self._in_creation: set[Key] = set()  #: those of them that it creates
        self._calls: deque[Callable[[], None]] = deque()  #: from threads that must not wait
        self._publisher = RoutePublisher(ledger.models, routes, self._fleet_of)
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._outcomes = VersionCompletion(ledger, self._publisher, self._stopping)
        self._thread = threading.Thread(target=self._loop, name="deployments", daemon=True)
        self._creating = ThreadPoolExecutor(CREATIONS, thread_name_prefix="create-version")
        self._chores = ThreadPoolExecutor(CREATIONS, thread_name_prefix="hosts")
        self._ending = ThreadPoolExecutor(ENDINGS, thread_name_prefix="end-hosts")  #: which may take long

    def start(self) -> None:
        """Publish what there is, and begin."""
        for model in self._models.every():
            self._publisher.publish(model.project, model.id)
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing new."""
        self._stopping.set()
        self._news.set()

    def join(self) -> None:
        """Wait, after `stop`, for the loop and what is under way; the rest is left to the next server."""
        self._thread.join()
        self._creating.shutdown(wait=True, cancel_futures=True)
        self._chores.shutdown(wait=True, cancel_futures=True)
        self._ending.shutdown(wait=True, cancel_futures=True)

    def wake(self) -> None:
        """There is something new to look at. From any thread."""
        self._news.set()

    def publish(self, project: str, model: str) -> None:
        """Make the routes of a model those of its rows; they are when this returns. Not for the gateway's thread."""
        route = self._publisher.publish(project, model)
        if route is not None and not route.versions and not self._stopping.is_set():
            self._chores.submit(self._creations.prewarm)

    def activate(self, project: str, model: str, version: str) -> None:
        """As `Keeper` says."""
        self._call(lambda: self._rouse((project, model, version)))

    def host_unresponsive(self, key: str) -> None:
        """As `Keeper` says."""
        self._call(lambda: self._hosts.kill(key, reason="It let a request run into its deadline and answered nothing."))

    def host_unreachable(self, key: str, reason: str) -> None:
        """As `Keeper` says."""
        self._call(lambda: self._hosts.kill(key, reason=f"This server can't connect to it: {reason}."))

    def hosts(self, project: str, model: str, version: str) -> list[dict[str, Any]]:
        """The hosts of a version as they are now, for people."""
        with self._lock:
            fleet = self._fleets.get((project, model, version))
            keys = dict(fleet.keys) if fleet is not None else {}
        shown = []
        for number, key in sorted(keys.items()):
            if (seen := self._hosts.status(key)) is not None:
                pid, memory = self._hosts.memory_use(key)
                age_s = round(time.monotonic() - seen.started_s, 3)
                shown.append(
                    {
                        "instance": number,
                        "pid": pid,
                        "state": seen.phase.value,
                        "memoryBytes": memory,
                        "ageSeconds": age_s,
                        "figures": self._hosts.stats(key) if seen.phase is HostPhase.READY else {},
                        "address": str(seen.endpoint or ""),
                    }
                )
        return shown

    def progress(self, project: str, model: str, version: str) -> str:
        """What is done for a version that is being created, or why one does not answer that should; else empty."""
        key = (project, model, version)
        with self._lock:
            fleet = self._fleets.get(key)
            answers = fleet is not None and bool(fleet.addresses())
            return self._progress.get(key, "") or (fleet.reason if fleet is not None and not answers else "")

    def log_tail(self, project: str, model: str, version: str) -> str:
        """What its first host printed last."""
        return log_tail(self._hosts.folder(project, model, version) / "0.log")

    def _fleet(self, *, awake: bool) -> Fleet:
        return Fleet(self._hosts, self._creations.room, self._sleep_after_s, awake=awake)

    def _tell(self, key: Key, text: str) -> None:
        self._progress[key] = text

    def _fleet_of(self, version: Version) -> tuple[threading.RLock, Fleet | None]:
        return self._lock, self._fleets.get(_key(version))

    def _call(self, what: Callable[[], None]) -> None:
        self._calls.append(what)
        self._news.set()

    def _rouse(self, key: Key) -> None:
        with self._lock:
            if (fleet := self._fleets.get(key)) is not None:
                fleet.activate()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._news.clear()
            pause_s = IDLE_S
            try:
                self._check()
                pause_s = self.step()
            except CannotProceedError as exc:
                LOG.critical("control.refused reason=%s", exc)
            except TrainshedError as exc:
                LOG.warning("control.step_failed reason=%s", exc)
            except Exception:  # the loop outlives any single failure, and each one is in the log
                LOG.exception("control.step_failed")
            self._news.wait(pause_s)

    def step(self) -> float:
        """One look at everything. Returns after how many seconds there is something to do though nothing happens."""
        while self._calls:
            self._calls.popleft()()
        pause_s = IDLE_S
        rows = self._models.versions_to_serve()
        for _, version in rows:
            try:
                pause_s = min(pause_s, self._act(version))
            except Exception:  # one version that can't be dealt with must not hold up the others
                LOG.exception("version.step_failed version=%s", version.name)
        self._let_go({_key(version) for _, version in rows})
        return pause_s

    def _let_go(self, known: set[Key]) -> None:
        """A row that was read just before it was deleted may have been given hosts since."""
        with self._lock:
            gone = [key for key in self._fleets if key not in known and key not in self._busy]
            keys = [host for key in gone for host in self._fleets.pop(key).all_keys()]
        if keys:
            self._ending.submit(self._retire, keys)

    def _act(self, version: Version) -> float:
        key = _key(version)
        if key in self._busy:
            return IDLE_S
        match version.state:
            case VersionState.CREATING:
                if sum(project == version.project for project, _, _ in self._in_creation) < CREATIONS_EACH:
                    self._in_creation.add(key)
                    self._begin(self._creating, key, self._create, version)
            case VersionState.DELETING:
                self._begin(self._ending, key, self._delete, version)
            case VersionState.READY | VersionState.UPDATING:
                return self._keep(key, version)
        return IDLE_S

    def _begin(self, pool: ThreadPoolExecutor, key: Key, work: Callable[[Version], None], version: Version) -> None:
        self._busy.add(key)

        def run() -> None:
            try:
                work(version)
            except ShutdownRequested:
                LOG.info("version.left version=%s", version.name)
            except Exception:  # the end of a thread of the pool: nobody else would hear of it
                LOG.exception("version.step_failed version=%s", version.name)
                self._stopping.wait(1.0)
            finally:
                self._in_creation.discard(key)
                self._busy.discard(key)
                self._news.set()

        pool.submit(run)

    def _keep(self, key: Key, version: Version) -> float:
        with self._lock:
            fleet = self._fleets.get(key)
            if fleet is None:
                fleet = self._fleets[key] = self._fleet(awake=version.nodes > 0)
            if fleet.spec is None and fleet.may_start():
                self._begin(self._chores, key, self._prepare, version)
                return IDLE_S
            surplus = fleet.reconcile(version, last_used_us=self._traffic.last_used_us(*key))
            pause_s = fleet.next_reconcile_s(version)
            changed, settled = fleet.take_change(version), fleet.converged(version)
        if changed:
            self._publisher.publish(version.project, version.model)
        if surplus:
            self._ending.submit(self._retire, surplus)
        if settled and version.state is VersionState.UPDATING:
            self._outcomes.updated(version)
            self.wake()  # it may have been changed again meanwhile
        return pause_s

    def _prepare(self, version: Version) -> None:
        """Find out what the hosts of a version that an earlier server created are started with."""
        with self._lock:
            fleet = self._fleets[_key(version)]
        try:
            fleet.spec = self._creations.spec_of_existing(version)
        except TrainshedError as exc:
            LOG.warning("version.not_startable version=%s reason=%s", version.name, exc)
            with self._lock:
                fleet.failed(str(exc))

    def _retire(self, keys: Sequence[str]) -> None:
        """End hosts that are out of the routes: first what they have is answered."""
        self._traffic.drained(keys, timeout_s=self._drain_s)
        for key in keys:
            self._hosts.drain(key)
        deadline = time.monotonic() + self._drain_s
        for key in keys:
            while (seen := self._hosts.status(key)) is not None and seen.phase is not HostPhase.ENDED:
                if time.monotonic() > deadline or self._stopping.is_set():
                    self._hosts.kill(key)
                time.sleep(0.01)
            self._hosts.forget(key)

    def _delete(self, version: Version) -> None:
        key = _key(version)
        if self._current(version).state is not VersionState.DELETING:
            return
        with self._lock:
            fleet = self._fleets.pop(key, None)
        self._publisher.publish(version.project, version.model)  # a version that is DELETING is not in the routes
        if fleet is not None:
            self._retire(fleet.all_keys())
        self._hosts.remove(*key)  # before the row: without one, nobody looks there
        operation = self._operations.get(version.project, version.operation)
        self._models.remove_version(version, operation.succeeded(EMPTY, now_us=now_us()))
        self._publisher.publish(version.project, version.model)
        self._pins.release(version.project, version.files)
        LOG.info("version.deleted version=%s", version.name)

    def _current(self, version: Version) -> Version:
        """Its row: that of a step may have been read before another thread was done with it."""
        try:
            return self._models.version(version.project, version.model, version.id)
        except NotFoundError:
            return replace(version, state=VersionState.FAILED)

    def _create(self, version: Version) -> None:
        key = _key(version)
        if self._current(version).state is not VersionState.CREATING:
            return
        try:
            attempt = self._outcomes.context(version, tell=lambda text: self._tell(key, text))
            with self._creations.provision(version, attempt) as built:
                self._arrive(version, built)
        except ShutdownRequested:
            raise
        except CancelRequested:
            self._outcomes.fail(version, CANCELLED, "Create Version was cancelled.")
        except ModelLoadError as exc:
            text = f'Create Version failed. Bad model detected with error:  "{exc}"'
            self._outcomes.fail(version, INVALID_ARGUMENT, text)
        except TrainshedError as exc:
            self._outcomes.fail(version, FAILED_PRECONDITION, f"Create Version failed. {exc}")
        except Exception as exc:  # a version must not hang in CREATING because of an error of ours
            LOG.exception("version.create_failed version=%s", version.name)
            text = f"Trainshed itself failed to create this version: {exc}. The server's log has the details."
            self._outcomes.fail(version, INTERNAL, text)
        finally:
            self._progress.pop(key, None)

    def _arrive(self, version: Version, built: ProvisionedVersion) -> None:
        """A host answers: into the routes, then READY. If that can't be written down, out of them again."""
        key = _key(version)
        fleet = self._fleet(awake=True)
        fleet.adopt(built.spec, built.host, hosts=rules.desired_hosts(version.nodes, awake=True))
        with self._lock:
            self._fleets[key] = fleet
        try:
            self._outcomes.mark_ready(version, built)
        except BaseException:
            with self._lock:
                self._fleets.pop(key, None)
            self._publisher.publish(version.project, version.model)
            raise
        LOG.info("version.ready version=%s loader=%s", version.name, built.spec.loader)


def find_parity_twin(models: ModelStore) -> Callable[[Version, str], Version | None]:
    """Finds a version whose answers were held against TensorFlow's already, with the same files, runtime and engine."""

    def find(version: Version, files: str) -> Version | None:
        wanted = (version.project, files, version.runtime, version.engine)
        for _, other in models.versions_to_serve():
            if (other.project, other.files, other.runtime, other.engine) == wanted and other.details.get("parity"):
                return other
        return None

    return find


def _key(version: Version) -> Key:
    return (version.project, version.model, version.id)


def runtime_in_use(models: ModelStore, runtime: str) -> bool:
    """Whether a version is served, or about to be, from a runtime."""
    return any(version.runtime == runtime for _, version in models.versions_to_serve())
