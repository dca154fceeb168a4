"""How far jobs have come, and what they use: as values for the API."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from trainshed.attempts.event_files import EventFolder
from trainshed.attempts.journal import replica_states
from trainshed.attempts.log_file import AttemptLog
from trainshed.config import Home
from trainshed.domain.jobs.gang import gang
from trainshed.domain.jobs.job import Job, JobState
from trainshed.domain.jobs.progress import ProgressReport, StepRate, TrainingProgress, target_from_args
from trainshed.domain.jobs.workload import workload_of
from trainshed.domain.time_series import TimeSeries
from trainshed.domain.times import now_us, rfc3339
from trainshed.errors import InvalidArgumentError
from trainshed.services.jobs import output_folders
from trainshed.services.jobs.tracker import AttemptTracker
from trainshed.services.storage.mirrors import Mirrors
from trainshed.store.jobs import JobStore

MAX_POINTS = 1000
DEFAULT_POINTS = 300
_TRACKED = 16  #: attempts that are followed; another one is read from its beginning again


class ProgressService:
    """Threads may share it. `owner` says which project a bucket belongs to, or raises `NotFoundError`."""

    def __init__(
        self,
        jobs: JobStore,
        home: Home,
        mirrors: Mirrors,
        *,
        owner: Callable[[str], str],
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._jobs = jobs
        self._home = home
        self._mirrors = mirrors
        self._owner = owner
        self._clock = clock
        self._trackers: OrderedDict[tuple[str, str, int], AttemptTracker] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, job: Job) -> dict[str, Any] | None:
        """Step, loss, accuracy, steps a second and the time left, as far as they are known; None if nothing is."""
        tracker = self._looked(job)
        with tracker.lock:
            return self._standing(job, tracker)

    def progress(self, project: str, job_id: str) -> dict[str, Any]:
        """Where a job and each of its replicas are now."""
        job = self._jobs.get(project, job_id)
        tracker = self._looked(job)
        states = replica_states(self._folder(job), tracker.tellers)
        with tracker.lock:
            return {
                **self._head(job),
                "progress": self._standing(job, tracker),
                "replicas": [
                    {"name": name, "state": states[name].state, "restarts": states[name].restarts}
                    | _report_body(tracker.tellers[name].report)
                    | {"local_steps_per_s": _json(tracker.local_rate(name))}
                    | _usage_body(tracker, name, running=states[name].state == "running")
                    for name in tracker.tellers
                ],
            }

    def stats(self, project: str, job_id: str, *, points: int = 0) -> dict[str, Any]:
        """CPU and memory of each replica and what the training measured, over time, `points` a series at most.

        `complete` is false if there was more to read than one look may; the next goes on from there.
        """
        if not 0 <= points <= MAX_POINTS:
            raise InvalidArgumentError(f"A series has from 1 to {MAX_POINTS} points.", field="points")
        job = self._jobs.get(project, job_id)
        tracker = self._looked(job)
        most = points or DEFAULT_POINTS
        with tracker.lock:
            return {
                **self._head(job),
                "complete": tracker.complete,
                "replicas": [
                    {
                        "name": name,
                        "cpu": _series_body(usage.cpu, most),
                        "memory_bytes": _series_body(usage.memory, most, show=_whole),
                    }
                    for name, usage in tracker.usage.items()
                ],
                "metrics": [
                    {
                        "name": name,
                        "evaluation": evaluation,
                        "unit": "epoch" if (name, evaluation) in teller.by_epoch else "step",
                        **_series_body(series, most),
                        "step": [point.step for point in series.points(most)],
                    }
                    for (name, evaluation), (teller, series) in sorted(
                        tracker.metrics().items(), key=lambda item: item[0]
                    )
                ],
            }

    def _head(self, job: Job) -> dict[str, Any]:
        until = job.ended_us or self._clock()
        return {
            "job": job.id,
            "state": job.state.value,
            "elapsed_s": round((until - job.started_us) / 1e6, 1) if job.started_us else None,
            "error": job.error,
        }

    def _standing(self, job: Job, tracker: AttemptTracker) -> dict[str, Any] | None:
        found = tracker.standing(target_from_args(output_folders.training_of(job).args))
        if found is None:
            return None
        standing, pace = found
        return _standing_body(standing, pace, running=job.state is JobState.RUNNING, now_us=self._clock())

    def _looked(self, job: Job) -> AttemptTracker:
        """The tracker of a job's attempt, after a look at what is new."""
        tracker = self._tracker(job)
        with tracker.lock:
            tracker.look(lambda told: list(self._places(job, told)), ended_us=job.ended_us)
        return tracker

    def _tracker(self, job: Job) -> AttemptTracker:
        key = (job.project, job.id, job.attempt)
        since_us = job.started_us or job.created_us
        with self._lock:
            if key not in self._trackers:
                log = AttemptLog(
                    root=self._home.jobs, folder=(job.project, job.id, str(job.attempt)), floor_us=job.created_us
                )
                replicas = gang(workload_of(job.body))
                self._trackers[key] = AttemptTracker(log, self._folder(job), replicas, since_us=since_us)
            self._trackers.move_to_end(key)
            while len(self._trackers) > _TRACKED:
                self._trackers.popitem(last=False)
            return self._trackers[key]

    def _folder(self, job: Job) -> Path:
        return self._home.jobs / job.project / job.id / str(job.attempt)

    def _places(self, job: Job, told: Iterable[str]) -> Iterator[EventFolder]:
        """Where event files may be: the job's folder, folders that lines name, where it runs, where it writes to."""
        training = output_folders.training_of(job)
        work = EventFolder(self._home.jobs, (job.project, job.id, str(job.attempt), "work"))
        for uri in (training.job_dir, *told):
            yield from self._place(job, uri)
        yield work
        for uri in output_folders.addresses(training.args):
            yield from self._place(job, uri)

    def _place(self, job: Job, uri: str) -> Iterator[EventFolder]:
        """A gs:// address, or a path in the buckets, if its bucket belongs to the job's project."""
        for root in (f"{self._home.buckets}/", "/gcs/"):  # the latter is where containers see them
            if uri.startswith(root):
                uri = f"gs://{uri.removeprefix(root)}"
        if (found := output_folders.folder(job, uri, self._owner)) is not None:
            if not self._mirrors.serves(found):
                yield EventFolder(self._home.buckets, found)
                return
            self._mirrors.refresh(found, ended_us=job.ended_us)
            yield EventFolder(self._mirrors.root, found)


def _standing_body(standing: TrainingProgress, pace: StepRate, *, running: bool, now_us: int) -> dict[str, Any]:
    report = standing.report
    silent = running and pace.silent(now_us)
    rate = report.global_rate if report.global_rate is not None else standing.rate
    return _report_body(report) | {
        "total_steps": standing.total_steps,
        "epoch": report.epoch,
        "total_epochs": standing.total_epochs,
        "fraction": None if standing.fraction is None else round(standing.fraction, 4),
        "global_steps_per_s": _json(rate),
        "left_s": _json(standing.left_s) if running and not silent else None,
        "age_s": round(max(0, now_us - report.time_us) / 1e6, 1) if running else None,
        "evaluation": _report_body(standing.evaluation) if standing.evaluation else None,
    }


def _report_body(report: ProgressReport | None) -> dict[str, Any]:
    return {
        "time": rfc3339(report.time_us) if report else None,
        "step": report.step if report else None,
        "loss": _json(report.loss) if report else None,
        "accuracy": _json(report.accuracy) if report else None,
    }


def _usage_body(tracker: AttemptTracker, name: str, *, running: bool) -> dict[str, Any]:
    """What a replica uses now: nothing once it does not run."""
    last = tracker.usage[name].last if running else None
    return {
        "cpu": last.cpu if last else None,
        "memory_bytes": last.memory_bytes if last else None,
        "processes": last.processes if last else None,
    }


def _series_body(
    series: TimeSeries, most: int, *, show: Callable[[float | None], object] | None = None
) -> dict[str, Any]:
    points, show = series.points(most), show or _json
    return {
        "mean": show(series.mean),
        "max": show(series.max),
        "time": [rfc3339(point.time_us) for point in points],
        "value": [show(point.value) for point in points],
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _json(value: float | None) -> float | str | None:
    """A number, or the word that Google's JSON has for one that JSON has not."""
    if value is None:
        return None
    if math.isfinite(value):
        return float(f"{value:.7g}")
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
