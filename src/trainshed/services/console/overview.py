"""A project at a glance: what runs, what waits, what answers, the machine, and what needs a person."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainshed.attempts.batch_progress import BatchProgress
from trainshed.domain.jobs.diagnosis import Diagnosis
from trainshed.domain.jobs.job import Job, JobState
from trainshed.domain.models.hosting import ServingState
from trainshed.domain.models.version import VersionState
from trainshed.domain.times import now_us
from trainshed.gateway.metrics import VersionMetrics
from trainshed.gateway.routes import Routes
from trainshed.services.console.alerts import AlertInputs, alerts_for
from trainshed.services.console.machine_metrics import MachineMetrics
from trainshed.services.jobs.jobs import QueueStatus, waiting_reason
from trainshed.services.jobs.search import row_body
from trainshed.store.job_search import JobSearchQuery, JobSearchStore
from trainshed.store.jobs import JobStore
from trainshed.store.models import ModelStore, VersionSummary

FRESH_S = 1.0  #: how long an answer is good for others who ask
MOST_JOBS = 10  #: that run, and that wait
MOST_MODELS = 50
DAY_US = 86_400_000_000
_MOST_KEPT = 100  #: projects
_MEASURES = ("step", "total_steps", "epoch", "total_epochs", "loss", "accuracy", "global_steps_per_s", "left_s")
_ACTIVE = (JobState.PREPARING, JobState.RUNNING, JobState.CANCELLING)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewStores:
    """Where it is read from."""

    jobs: JobStore
    table: JobSearchStore
    models: ModelStore


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewSources:
    """What is seen besides the rows."""

    machine: MachineMetrics
    routes: Routes
    metrics: VersionMetrics
    prospects: QueueStatus
    progress: Callable[[Job], Mapping[str, Any] | None]
    predicted: Callable[[Job], BatchProgress | None]  #: how far a batch prediction is
    restarts: Callable[[Job], Sequence[str]]
    diagnosed: Callable[[Job], Diagnosis]


@dataclass(slots=True)
class _Kept:
    """The last look at a project. Hold the lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    looked_s: float = 0.0
    found: dict[str, Any] = field(default_factory=dict)


class Overview:
    """Threads may share it. However many ask, it looks once in a while."""

    def __init__(
        self,
        rows: OverviewStores,
        sights: OverviewSources,
        *,
        clock: Callable[[], int] = now_us,
        fresh_s: float = FRESH_S,
    ) -> None:
        self._rows = rows
        self._sights = sights
        self._clock = clock
        self._fresh_s = fresh_s
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}

    def of(self, project: str) -> dict[str, Any]:
        with self._lock:
            if len(self._kept) > _MOST_KEPT:
                self._kept = {}
            kept = self._kept.setdefault(project, _Kept())
        with kept.lock:
            if not kept.found or time.monotonic() - kept.looked_s >= self._fresh_s:
                kept.found, kept.looked_s = self._look(project), time.monotonic()
            return kept.found

    def _look(self, project: str) -> dict[str, Any]:
        counts = self._rows.table.counts(project, JobSearchQuery())
        ended = self._rows.table.ended_since(project, self._clock() - DAY_US)
        active = [job for job in self._rows.jobs.active() if job.project == project][::-1]
        queued = self._queued(project) if counts.get(JobState.QUEUED) else []
        versions = self._rows.models.version_lines(project)
        return {
            "jobs": {
                "QUEUED": counts.get(JobState.QUEUED, 0),
                "RUNNING": sum(counts.get(state, 0) for state in _ACTIVE),
                "SUCCEEDED_24H": ended.get(JobState.SUCCEEDED, 0),
                "FAILED_24H": ended.get(JobState.FAILED, 0),
            },
            "running": [row_body(job) | {"progress": self._progress(job)} for job in active[:MOST_JOBS]],
            "queued": [row_body(job) | {"waiting": why} for job, why in queued],
            "models": list(self._models(project, versions)),
            "machine": self._sights.machine.body(),
            "attention": self._attention(project, active, queued, versions, ended.get(JobState.FAILED, 0)),
        }

    def _progress(self, job: Job) -> Mapping[str, Any] | None:
        """Of a batch prediction there is the share of its input that is read."""
        predicted = self._sights.predicted(job)
        if predicted is None:
            return self._sights.progress(job)
        return dict.fromkeys(_MEASURES) | {"fraction": round(predicted.fraction, 4)}

    def _queued(self, project: str) -> list[tuple[Job, str]]:
        """The next ones, and why each waits."""
        jobs = self._rows.table.queue(project, limit=MOST_JOBS)
        places, prospects = self._rows.jobs.positions(jobs), self._sights.prospects
        return [(job, waiting_reason(job, places.get((job.project, job.id), 1) - 1, prospects)) for job in jobs]

    def _models(self, project: str, versions: Sequence[VersionSummary]) -> Iterator[dict[str, Any]]:
        counts = Counter(each.model for each in versions)
        for name, default in self._rows.models.names(project, limit=MOST_MODELS):
            hour = self._sights.metrics.hour(project, name)
            asked = hour["count"] > 0
            yield {
                "name": name,
                "default_version": default,
                "versions": counts[name],
                "requests_1h": hour["count"],
                "errors_1h": hour["errors"],
                "p50_ms": hour["p50_ms"] if asked else None,
                "p99_ms": hour["p99_ms"] if asked else None,
            }

    def _attention(
        self,
        project: str,
        active: Sequence[Job],
        queued: Sequence[tuple[Job, str]],
        versions: Sequence[VersionSummary],
        failed: int,
    ) -> list[dict[str, Any]]:
        now = self._clock()
        scene = AlertInputs(
            project=project,
            now_us=now,
            failed=self._rows.table.failed_since(project, now - DAY_US, limit=MOST_JOBS) if failed else (),
            failed_count=failed,
            active=active[:MOST_JOBS],
            queued=queued,
            versions=versions,
            unhealthy=list(self._unhealthy(project, versions)),
            machine=self._sights.machine.last,
        )
        return alerts_for(scene, diagnosed=self._sights.diagnosed, restarts=self._sights.restarts)

    def _unhealthy(self, project: str, versions: Sequence[VersionSummary]) -> Iterator[tuple[str, str, str]]:
        """Versions that were created, and whose hosts keep dying."""
        routes = self._sights.routes.models
        for each in versions:
            model = routes.get((project, each.model))
            route = model.versions.get(each.id) if model is not None else None
            if each.state is not VersionState.FAILED and route is not None and route.state is ServingState.UNHEALTHY:
                yield each.model, each.id, route.reason
