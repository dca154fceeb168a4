"""The overview of a project: running and queued jobs, models, the machine, and alerts."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.models.hosting import ServingState
from trainshed.domain.models.version import VersionState
from trainshed.domain.times import now_us
from trainshed.gateway.metrics import VersionMetrics
from trainshed.gateway.routes import Routes
from trainshed.services.console.alerts import AlertInputs, alerts_for
from trainshed.services.console.machine_metrics import MachineMetrics
from trainshed.services.jobs.jobs import waiting_reason
from trainshed.services.jobs.reports import JobReports
from trainshed.services.jobs.search import row_body
from trainshed.services.ports import QueueStatus
from trainshed.store.job_search import JobSearchQuery, JobSearchStore
from trainshed.store.jobs import JobStore
from trainshed.store.models import ModelStore, VersionSummary

CACHE_TTL_S = 1.0  #: lifetime of a cached overview
MAX_JOBS = 10  #: running jobs, and queued jobs
MAX_MODELS = 50
DAY_US = 86_400_000_000
_MAX_CACHED = 100  #: cached projects
_MEASURES = ("step", "totalSteps", "epoch", "totalEpochs", "loss", "accuracy", "globalStepsPerSecond", "leftSeconds")
_ACTIVE = (JobState.PREPARING, JobState.RUNNING, JobState.CANCELLING)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewStores:
    """The stores that it reads."""

    jobs: JobStore
    job_search: JobSearchStore
    models: ModelStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """What no row holds: the machine, the routes and their traffic, the queues."""

    machine: MachineMetrics
    routes: Routes
    metrics: VersionMetrics
    queue_status: QueueStatus


@dataclass(slots=True)
class _CachedOverview:
    """The cached overview of a project. Callers hold `lock`."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    built_s: float = 0.0
    body: dict[str, Any] = field(default_factory=dict)


class Overview:
    """Overviews of all projects. Thread-safe. Cached: the number of readers does not matter."""

    def __init__(
        self,
        stores: OverviewStores,
        live: LiveState,
        reports: JobReports,
        *,
        clock: Callable[[], int] = now_us,
        cache_ttl_s: float = CACHE_TTL_S,
    ) -> None:
        self._stores = stores
        self._live = live
        self._reports = reports
        self._clock = clock
        self._cache_ttl_s = cache_ttl_s
        self._lock = threading.Lock()
        self._cache: dict[str, _CachedOverview] = {}

    def of(self, project: str) -> dict[str, Any]:
        with self._lock:
            if len(self._cache) > _MAX_CACHED:
                self._cache = {}
            cached = self._cache.setdefault(project, _CachedOverview())
        with cached.lock:
            if not cached.body or time.monotonic() - cached.built_s >= self._cache_ttl_s:
                cached.body, cached.built_s = self._build(project), time.monotonic()
            return cached.body

    def _build(self, project: str) -> dict[str, Any]:
        counts = self._stores.job_search.counts(project, JobSearchQuery())
        ended = self._stores.job_search.ended_since(project, self._clock() - DAY_US)
        active = self._shown(job for job in reversed(self._stores.jobs.active()) if job.project == project)
        queued = self._queued(project) if counts.get(JobState.QUEUED) else []
        versions = self._stores.models.version_lines(project)
        return {
            "jobs": {
                "queued": counts.get(JobState.QUEUED, 0),
                "running": sum(counts.get(state, 0) for state in _ACTIVE),
                "succeeded24h": ended.get(JobState.SUCCEEDED, 0),
                "failed24h": ended.get(JobState.FAILED, 0),
            },
            "running": [row_body(job) | {"progress": self._progress(job)} for job in active[:MAX_JOBS]],
            "queued": [row_body(job) | {"waiting": reason} for job, reason in queued],
            "models": list(self._models(project, versions)),
            "machine": self._live.machine.body(),
            "alerts": self._alerts(project, active, queued, versions, ended.get(JobState.FAILED, 0)),
        }

    def _progress(self, job: Job) -> Mapping[str, Any] | None:
        """Return the progress of a job; for a batch prediction, the fraction of its input that is read."""
        batch_progress = self._reports.attempts.batch_progress(job)
        if batch_progress is None:
            progress = self._reports.progress.of(job)
            return None if progress is None else {name: progress[name] for name in (*_MEASURES, "fraction")}
        return dict.fromkeys(_MEASURES) | {"fraction": round(batch_progress.fraction, 4)}

    def _queued(self, project: str) -> list[tuple[Job, str]]:
        """Return the next queued jobs with their pending reasons."""
        queue_status = self._live.queue_status
        positions = dict(queue_status.next_of(project, limit=MAX_JOBS))
        found = (self._stores.jobs.find(project, job_id) for job_id in positions)
        return [
            (job, waiting_reason(job, positions.get(job.id, 1) - 1, queue_status))
            for job in self._shown(job for job in found if job is not None)
            if job.state is JobState.QUEUED
        ]

    def _shown(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs that are shown for these: a tuning job, once, for its trials."""
        shown = ((self._stores.jobs.find(job.project, job.parent) if job.trial else job) for job in jobs)
        return list({job.id: job for job in shown if job is not None}.values())

    def _models(self, project: str, versions: Sequence[VersionSummary]) -> Iterator[dict[str, Any]]:
        counts = Counter(each.model for each in versions)
        for name, default in self._stores.models.names(project, limit=MAX_MODELS):
            hour = self._live.metrics.hour(project, name)
            has_requests = hour["count"] > 0
            yield {
                "name": name,
                "defaultVersion": default,
                "versions": counts[name],
                "requests1h": hour["count"],
                "errors1h": hour["errors"],
                "p50Ms": hour["p50Ms"] if has_requests else None,
                "p99Ms": hour["p99Ms"] if has_requests else None,
            }

    def _alerts(
        self,
        project: str,
        active: Sequence[Job],
        queued: Sequence[tuple[Job, str]],
        versions: Sequence[VersionSummary],
        failed: int,
    ) -> list[dict[str, Any]]:
        now = self._clock()
        inputs = AlertInputs(
            project=project,
            now_us=now,
            failed=self._stores.job_search.failed_since(project, now - DAY_US, limit=MAX_JOBS) if failed else (),
            failed_count=failed,
            active=active[:MAX_JOBS],
            queued=queued,
            versions=versions,
            unhealthy=list(self._unhealthy(project, versions)),
            machine=self._live.machine.last,
        )
        return alerts_for(inputs, self._reports)

    def _unhealthy(self, project: str, versions: Sequence[VersionSummary]) -> Iterator[tuple[str, str, str]]:
        """Yield versions that were provisioned and whose hosts keep crashing."""
        routes = self._live.routes.models
        for each in versions:
            model = routes.get((project, each.model))
            route = model.versions.get(each.id) if model is not None else None
            if each.state is not VersionState.FAILED and route is not None and route.state is ServingState.UNHEALTHY:
                yield each.model, each.id, route.reason
