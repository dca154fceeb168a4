"""Metrics of the whole server in the OpenMetrics format: predictions, hosts, jobs, queues, HTTP, loop, machine."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainshed.domain.jobs.states import JobState
from trainshed.domain.times import now_us
from trainshed.gateway.gateway import PredictionGateway
from trainshed.gateway.metrics import LATENCY_EDGES_S, Totals, VersionName
from trainshed.gateway.open_metrics import Histogram, MetricFamily, MetricKind, Sample, histogram_samples, render
from trainshed.gateway.routes import Routes
from trainshed.services.console.machine_metrics import MachineMetrics
from trainshed.services.ports import DeploymentControl
from trainshed.store.job_search import JobSearchStore
from trainshed.store.jobs import JobStore

MAX_VERSIONS = 100  #: with series of their own, those with the most requests; all others share one
OTHER = ("other", "other", "other")  #: the labels of the versions beyond MAX_VERSIONS
CACHE_TTL_S = 1.0  #: lifetime of a cached answer: the number of scrapers does not matter
HTTP_EDGES_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_AREAS = {"v1": "ml", "storage": "storage", "upload": "storage", "download": "storage", "batch": "storage"}
_AREAS |= {"trainshed": "native", "xml": "storage", "v2": "logging"}
_AREAS |= dict.fromkeys(("console", "tensorboard", ""), "console")
_HOST_COUNTERS = {
    "requests": "Requests that the model has run.",
    "instances": "Instances that the model has run. Divided by batches, the size of a batch.",
    "batches": "Runs of the model, each with one batch.",
    "failed": "Requests that the model failed.",
    "refused": "Requests that were refused because too many were waiting.",
}


class HttpMetrics:
    """Counts HTTP requests by area of the API, without the fast path of predictions. Event loop only."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str], int] = {}  #: by area and class of status
        self.seconds: dict[str, Histogram] = {}  #: by area

    def add(self, path: bytes, status: int, seconds: float) -> None:
        first = path.split(b"/", 2)[1] if path.startswith(b"/") else path
        area = _AREAS.get(first.decode("latin-1"), "other")
        key = area, f"{status // 100}xx"
        self.requests[key] = self.requests.get(key, 0) + 1
        self.seconds.setdefault(area, Histogram(HTTP_EDGES_S)).add(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSources:
    """What is measured."""

    version: str  #: of the server
    gateway: PredictionGateway
    routes: Routes
    deployments: DeploymentControl
    jobs: JobStore
    job_search: JobSearchStore
    engines: Sequence[str]
    machine: MachineMetrics


class ServerMetrics:
    """Renders all metrics. Thread-safe."""

    def __init__(
        self, sources: MetricSources, *, clock: Callable[[], int] = now_us, cache_ttl_s: float = CACHE_TTL_S
    ) -> None:
        self.http = HttpMetrics()
        self._sources = sources
        self._clock = clock
        self._cache_ttl_s = cache_ttl_s
        self._lock = threading.Lock()
        self._cached: tuple[float, bytes] | None = None

    def body(self) -> bytes:
        """Return all metrics as text. Asks every host for its counters, and reads rows."""
        with self._lock:
            now = time.monotonic()
            if self._cached is None or now - self._cached[0] >= self._cache_ttl_s:
                self._cached = now, render(self._families())
            return self._cached[1]

    def _families(self) -> Iterator[MetricFamily]:
        yield _family("trainshed", MetricKind.INFO, "The server.", [("_info", {"version": self._sources.version}, 1)])
        yield from self._prediction_families()
        yield from self._host_families()
        yield from self._job_families()
        yield from self._http_families()
        yield from self._machine_families()

    def _prediction_families(self) -> Iterator[MetricFamily]:
        versions = bounded(self._sources.gateway.metrics.totals())
        requests = [
            ("_total", _labels(name) | {"outcome": outcome}, count)
            for name, totals in versions.items()
            for outcome, count in (("ok", totals.count - totals.errors), ("error", totals.errors))
        ]
        yield _family("trainshed_predictions", MetricKind.COUNTER, "Prediction requests by version.", requests)
        latencies = [
            sample
            for name, totals in versions.items()
            for sample in histogram_samples(LATENCY_EDGES_S, totals.latencies(), totals.seconds, _labels(name))
        ]
        yield MetricFamily(
            name="trainshed_prediction_latency_seconds",
            kind=MetricKind.HISTOGRAM,
            help="From the arrival of a request to its answer.",
            samples=latencies,
            unit="seconds",
        )
        held: list[tuple[str, Mapping[str, str], float]] = [("", {}, self._sources.gateway.held_requests)]
        yield _family("trainshed_held_requests", MetricKind.GAUGE, "Requests that wait for versions to wake up.", held)

    def _host_families(self) -> Iterator[MetricFamily]:
        """Each host of the versions with the most requests, and the number of hosts of all."""
        rows: list[tuple[dict[str, str], Mapping[str, Any]]] = []
        states: Counter[tuple[VersionName, str]] = Counter()
        shown = set(bounded(self._sources.gateway.metrics.totals()))
        for model in tuple(self._sources.routes.models.values()):
            for route in tuple(model.versions.values()):
                name = (route.project, route.model, route.version)
                own = name in shown or len(shown) < MAX_VERSIONS
                shown |= {name} if own else set()
                hosts = self._sources.deployments.hosts(*name) if own else ()
                for host in hosts:
                    states[name, host["state"]] += 1
                    rows.append((_labels(name) | {"instance": str(host["instance"])}, host))
                if not own:
                    states[OTHER, "READY"] += len(route.hosts)
        count = [("", _labels(name) | {"state": state}, found) for (name, state), found in sorted(states.items())]
        yield _family("trainshed_hosts", MetricKind.GAUGE, "Host processes by version and state.", count)
        memory = [("", labels, host["memoryBytes"]) for labels, host in rows]
        yield _family("trainshed_host_memory_bytes", MetricKind.GAUGE, "Unshared memory of a host.", memory, "bytes")
        waiting = [("", labels, host["stats"]["waiting"]) for labels, host in rows if "waiting" in host["stats"]]
        yield _family("trainshed_host_waiting_requests", MetricKind.GAUGE, "Requests in the queue of a host.", waiting)
        for counter, text in _HOST_COUNTERS.items():
            totals = [("_total", labels, host["stats"][counter]) for labels, host in rows if counter in host["stats"]]
            yield _family(f"trainshed_host_{counter}", MetricKind.COUNTER, text, totals)

    def _job_families(self) -> Iterator[MetricFamily]:
        found = self._sources.job_search.counts_of_all_projects()
        states = [("", {"state": state.value}, found.get(state, 0)) for state in JobState]
        yield _family("trainshed_jobs", MetricKind.GAUGE, "Jobs of all projects by state.", states)
        waits, lengths = [], []
        for engine in self._sources.engines:
            queued = self._sources.jobs.queued(engine).jobs
            oldest_us = min((job.order_us for job in queued), default=self._clock())
            lengths.append(("", {"engine": engine}, len(queued)))
            waits.append(("", {"engine": engine}, max(0.0, (self._clock() - oldest_us) / 1e6)))
        yield _family("trainshed_queue_jobs", MetricKind.GAUGE, "Queued jobs by engine.", lengths)
        text = "For how long the oldest queued job of an engine has been waiting."
        yield _family("trainshed_queue_wait_seconds", MetricKind.GAUGE, text, waits, "seconds")

    def _http_families(self) -> Iterator[MetricFamily]:
        requests = [
            ("_total", {"area": area, "code": code}, count)
            for (area, code), count in sorted(dict(self.http.requests).items())
        ]
        text = "HTTP requests by area: `storage` is the object store. Predictions of the fast path are not in it."
        yield _family("trainshed_http_requests", MetricKind.COUNTER, text, requests)
        yield MetricFamily(
            name="trainshed_http_request_seconds",
            kind=MetricKind.HISTOGRAM,
            help="From the arrival of an HTTP request to the end of its response.",
            samples=[
                each
                for area, times in sorted(dict(self.http.seconds).items())
                for each in times.samples({"area": area})
            ],
            unit="seconds",
        )
        yield MetricFamily(
            name="trainshed_event_loop_lag_seconds",
            kind=MetricKind.HISTOGRAM,
            help="How late timers of the server's event loop run.",
            samples=list(self._sources.gateway.loop_lag.samples({})),
            unit="seconds",
        )

    def _machine_families(self) -> Iterator[MetricFamily]:
        last = self._sources.machine.last
        text = "Used part of all cores, 0 to 1."
        yield _family("trainshed_machine_cpu_ratio", MetricKind.GAUGE, text, [("", {}, last.cpu)], "ratio")
        for name, text, value in (
            ("trainshed_machine_memory_used_bytes", "Used memory of the machine.", last.memory_used_bytes),
            ("trainshed_machine_memory_bytes", "Memory of the machine.", last.memory_bytes),
            (
                "trainshed_disk_free_bytes",
                "Free on the disk of the state folder.",
                last.disk_free_bytes,
            ),
            ("trainshed_disk_bytes", "Size of the disk of the state folder.", last.disk_bytes),
        ):
            yield _family(name, MetricKind.GAUGE, text, [("", {}, value)], "bytes")


def bounded(versions: Mapping[VersionName, Totals]) -> dict[VersionName, Totals]:
    """Return the MAX_VERSIONS versions with the most requests. The others are added up under the name OTHER."""
    ranked = sorted(versions.items(), key=lambda item: (-item[1].count, item[0]))
    result = dict(ranked[:MAX_VERSIONS])
    if rest := [totals for _, totals in ranked[MAX_VERSIONS:]]:
        result[OTHER] = Totals.sum(rest)
    return result


def _labels(name: VersionName) -> dict[str, str]:
    project, model, version = name
    return {"project": project, "model": model, "version": version}


def _family(
    name: str, kind: MetricKind, text: str, samples: Iterable[tuple[str, Mapping[str, str], float]], unit: str = ""
) -> MetricFamily:
    return MetricFamily(name=name, kind=kind, help=text, samples=[Sample(*each) for each in samples], unit=unit)
