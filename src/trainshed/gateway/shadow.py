"""Shadow traffic: answered requests go to another version too. Its answers are compared, counted and thrown away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic

from trainshed.domain.models.answer_difference import same_answers
from trainshed.domain.models.hosting import ServingState
from trainshed.errors import ResourceExhaustedError, TrainshedError
from trainshed.gateway.connection_pool import HostConnectionPool
from trainshed.gateway.host_connection import Body, HostConnection
from trainshed.gateway.metrics import Totals, VersionMetrics, VersionName
from trainshed.gateway.protocols.logged_forms import logged_text
from trainshed.gateway.protocols.wire_forms import LOGGED_PROTOCOLS
from trainshed.gateway.routes import ControlPlane, PredictTarget, Routes, VersionRoute

LOG = logging.getLogger("trainshed.predict")

MAX_IN_FLIGHT = 64  #: shadow requests at a time; those beyond are left out, so that a slow version holds up nobody
MAX_PENDING = 256  #: answers that wait to be compared; those beyond are not compared
MAX_COMPARED_BYTES = 1 << 20  #: of an answer; larger ones are not compared, unless they are equal

_PREPARING = (ServingState.SLEEPING, ServingState.WAKING, ServingState.STARTING)  #: no fault of the version


@dataclass(slots=True)
class ShadowTotals:
    """All shadow requests to a version since its shadow traffic began."""

    requests: Totals = field(default_factory=Totals)
    compared: int = 0
    changed: int = 0
    left_out: int = 0

    def copy(self) -> ShadowTotals:
        return ShadowTotals(self.requests.copy(), self.compared, self.changed, self.left_out)

    def since(self, earlier: ShadowTotals) -> ShadowTotals:
        """Return what was added since an earlier copy. If that has more, the count has begun anew since."""
        if earlier.requests.count > self.requests.count:
            return self.copy()
        return ShadowTotals(
            requests=self.requests.since(earlier.requests),
            compared=self.compared - earlier.compared,
            changed=self.changed - earlier.changed,
            left_out=self.left_out - earlier.left_out,
        )


class ShadowTraffic:
    """Sends and counts shadow requests. Event loop only, but for `totals`. One thread compares the answers."""

    def __init__(
        self, routes: Routes, hosts: HostConnectionPool, draw: Callable[[], float], *, is_here: bool = True
    ) -> None:
        """`draw` returns random numbers in [0, 1), for the share of the requests.

        Of several processes, one sends and counts them; it `is_here` or elsewhere.
        """
        self.control_plane: ControlPlane | None = None  #: while the gateway serves
        self._routes = routes
        self._hosts = hosts
        self._draw = draw
        self._is_here = is_here
        self._counts: dict[VersionName, ShadowTotals] = {}
        self._in_flight = 0
        self._pending = threading.Semaphore(MAX_PENDING)
        self._lock = threading.Lock()
        self._comparer = ThreadPoolExecutor(1, thread_name_prefix="compare-answers")

    def is_elsewhere(self, route: VersionRoute, target: PredictTarget) -> bool:
        """Return whether a request must be answered by the process that sends shadow requests, and that is another."""
        return not self._is_here and route.shadow is not None and not target.version

    def wanted(self, target: PredictTarget) -> bool:
        """Return whether requests to this target go to another version too."""
        model = self._routes.models.get((target.project, target.model))
        default = model.versions.get(model.default) if model is not None and not target.version else None
        return default is not None and default.shadow is not None

    def mirror(self, route: VersionRoute, kind: int, request: Body, answer: bytes) -> None:
        """Send an answered request to the version that shadows this one, with the probability of its share."""
        if (shadow := route.shadow) is None or kind not in LOGGED_PROTOCOLS or not self._is_here:
            return
        if self._draw() >= shadow.share:
            return
        model = self._routes.models.get((route.project, route.model))
        if model is None or (version := model.versions.get(shadow.version)) is None:
            return
        if version.state is ServingState.SLEEPING and self.control_plane is not None:
            self.control_plane.activate(version.project, version.model, version.version)
        self._send(version, self._hosts.least_loaded(version.hosts), kind, request, answer)

    def _send(
        self, route: VersionRoute, connection: HostConnection | None, kind: int, request: Body, answer: bytes
    ) -> None:
        """Send a request that another version has answered. Fails never: what goes wrong is counted."""
        name = (route.project, route.model, route.version)
        totals = self._counts.setdefault(name, ShadowTotals())
        if self._in_flight >= MAX_IN_FLIGHT or route.state in _PREPARING:
            totals.left_out += 1
            return
        if connection is None:
            totals.requests.add(0.0, ok=False)
            return
        sink = _ShadowRequest(self, totals, kind, answer)
        self._in_flight += 1
        try:
            connection.send(kind, request, sink, began=sink.began)
        except ResourceExhaustedError as exc:
            sink.failed(exc)

    def totals(self, project: str, model: str, version: str) -> ShadowTotals:
        """Return a copy of the counts of a version."""
        totals = self._counts.get((project, model, version))
        return totals.copy() if totals is not None else ShadowTotals()

    def retain(self, names: Collection[VersionName]) -> None:
        """Drop the counts of versions that get no shadow traffic any more."""
        self._counts = {name: totals for name, totals in self._counts.items() if name in names}

    def close(self) -> None:
        self._comparer.shutdown(wait=True, cancel_futures=True)

    def finished(self, totals: ShadowTotals, seconds: float, *, ok: bool) -> None:
        """Count a shadow request whose outcome is known."""
        self._in_flight -= 1
        totals.requests.add(seconds, ok=ok)

    def compare(self, totals: ShadowTotals, kind: int, before: bytes, after: bytes) -> None:
        """Count whether two answers to one request differ. Those that are not equal are read on another thread."""
        if before == after:
            self._add(totals, changed=False)
        elif max(len(before), len(after)) <= MAX_COMPARED_BYTES and self._pending.acquire(blocking=False):
            self._comparer.submit(self._compare_texts, totals, kind, before, after)

    def _compare_texts(self, totals: ShadowTotals, kind: int, before: bytes, after: bytes) -> None:
        try:
            self._add(totals, changed=not same_answers(logged_text(kind, before), logged_text(kind, after)))
        except Exception:  # the last frame of a pool thread: nothing else would report it
            LOG.exception("predict.shadow_not_compared")
        finally:
            self._pending.release()

    def _add(self, totals: ShadowTotals, *, changed: bool) -> None:
        with self._lock:  # the event loop and the thread that compares
            totals.compared += 1
            totals.changed += changed


@dataclass(frozen=True, slots=True)
class TrafficCounts:
    """Counts of requests to versions, as a rollout reads them. Thread-safe."""

    metrics: VersionMetrics
    shadows: ShadowTraffic

    def requests(self, project: str, model: str, version: str) -> Totals:
        """Return a copy of the counts of a version's own requests."""
        return self.metrics.totals_of((project, model, version))

    def shadow_requests(self, project: str, model: str, version: str) -> ShadowTotals:
        """Return a copy of the counts of its shadow requests."""
        return self.shadows.totals(project, model, version)


class _ShadowRequest:
    """One shadow request: the sink of its answer."""

    __slots__ = ("_answer", "_kind", "_totals", "_traffic", "began")

    def __init__(self, traffic: ShadowTraffic, totals: ShadowTotals, kind: int, answer: bytes) -> None:
        self.began = monotonic()
        self._traffic = traffic
        self._totals = totals
        self._kind = kind
        self._answer = answer

    def answered(self, status: int, body: bytes) -> None:
        self._traffic.finished(self._totals, monotonic() - self.began, ok=status < 400)
        if status == 200:
            self._traffic.compare(self._totals, self._kind, self._answer, body)

    def failed(self, exc: TrainshedError) -> None:
        self._traffic.finished(self._totals, monotonic() - self.began, ok=False)
