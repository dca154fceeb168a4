"""Progress and resource usage of jobs, as JSON values."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from trainshed.attempts.event_files import EventFolder, launch_time_us
from trainshed.attempts.journal import ReplicaState, ReplicaStatus, read_record
from trainshed.attempts.log_file import AttemptLog
from trainshed.config import Home
from trainshed.domain.jobs.failure_text import error_message
from trainshed.domain.jobs.gang import gang
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.progress import ProgressReport, StepRate, TrainingProgress, target_from_args
from trainshed.domain.jobs.states import JobState
from trainshed.domain.time_series import TimeSeries
from trainshed.domain.times import now_us, rfc3339
from trainshed.errors import InvalidArgumentError
from trainshed.services.jobs import output_folders
from trainshed.services.jobs.tracker import AttemptTracker
from trainshed.services.storage.mirrors import Mirrors
from trainshed.store.jobs import JobStore

MAX_POINTS = 1000
DEFAULT_POINTS = 300
_MAX_TRACKERS = 16  #: trackers in memory; an evicted attempt is read from its start again


class ProgressService:
    """The progress of all jobs. Thread-safe. `owner` returns the project of a bucket, or raises `NotFoundError`."""

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
        """Return step, loss, accuracy, rate and time left, if known. Returns None if the job reported nothing."""
        tracker = self._updated_tracker(job)
        with tracker.lock:
            return self._training_progress(job, tracker)

    def progress(self, project: str, job_id: str) -> dict[str, Any]:
        """Return the current progress of a job and of each of its replicas."""
        job = self._jobs.get(project, job_id)
        tracker = self._updated_tracker(job)
        statuses = read_record(self._folder(job)).replicas
        with tracker.lock:
            return {
                **self._head(job),
                "progress": self._training_progress(job, tracker),
                "replicas": [
                    _replica_body(tracker, name, statuses.get(name, ReplicaStatus())) for name in tracker.sources
                ],
            }

    def stats(self, project: str, job_id: str, *, points: int = 0) -> dict[str, Any]:
        """Return CPU and memory of each replica and the training metrics, as series of at most `points` points.

        `complete` is false if there was more to read than one update may. The next update continues there.
        """
        if not 0 <= points <= MAX_POINTS:
            raise InvalidArgumentError(f"A series has from 1 to {MAX_POINTS} points.", field="points")
        job = self._jobs.get(project, job_id)
        tracker = self._updated_tracker(job)
        max_points = points or DEFAULT_POINTS
        with tracker.lock:
            return {
                **self._head(job),
                "complete": tracker.complete,
                "replicas": [
                    {
                        "name": name,
                        "cpu": _series_body(usage.cpu, max_points),
                        "memoryBytes": _series_body(usage.memory, max_points, show=_whole),
                    }
                    for name, usage in tracker.usage.items()
                ],
                "metrics": [
                    {
                        "name": name,
                        "evaluation": evaluation,
                        "unit": "epoch" if (name, evaluation) in source.by_epoch else "step",
                        **_series_body(series, max_points),
                        "step": [point.step for point in series.points(max_points)],
                    }
                    for (name, evaluation), (source, series) in sorted(
                        tracker.metrics().items(), key=lambda item: item[0]
                    )
                ],
            }

    def _head(self, job: Job) -> dict[str, Any]:
        end_us = job.ended_us or self._clock()
        return {
            "job": job.id,
            "state": job.state.value,
            "elapsedSeconds": round(max(0, end_us - job.started_us) / 1e6, 1) if job.started_us else None,
            "error": error_message(job.failure, job.id) if job.failure else "",
        }

    def _training_progress(self, job: Job, tracker: AttemptTracker) -> dict[str, Any] | None:
        result = tracker.progress(target_from_args(job.workload.args))
        if result is None:
            return None
        progress, rate = result
        return _progress_body(progress, rate, running=job.state is JobState.RUNNING, now_us=self._clock())

    def _updated_tracker(self, job: Job) -> AttemptTracker:
        """Return the tracker of a job's attempt, after an update."""
        tracker = self._tracker(job)
        with tracker.lock:
            tracker.update(lambda folders: list(self._event_folders(job, folders)), ended_us=job.ended_us)
        return tracker

    def _tracker(self, job: Job) -> AttemptTracker:
        key = (job.project, job.id, job.attempt)
        with self._lock:
            if key not in self._trackers:
                log = AttemptLog(
                    root=self._home.jobs, folder=(job.project, job.id, str(job.attempt)), floor_us=job.created_us
                )
                folder, replicas = self._folder(job), gang(job.workload)
                since_us = launch_time_us(folder, otherwise_us=job.created_us)
                self._trackers[key] = AttemptTracker(log, folder, replicas, since_us=since_us)
            self._trackers.move_to_end(key)
            while len(self._trackers) > _MAX_TRACKERS:
                self._trackers.popitem(last=False)
            return self._trackers[key]

    def _folder(self, job: Job) -> Path:
        return self._home.jobs / job.project / job.id / str(job.attempt)

    def event_folders(self, job: Job) -> list[EventFolder]:
        """Return the folders in which a job may write event files."""
        return list(self._event_folders(job, ()))

    def _event_folders(self, job: Job, logged_folders: Iterable[str]) -> Iterator[EventFolder]:
        """Yield folders of event files: the job's, those in log lines, the working folder, those in arguments."""
        work = EventFolder(self._home.jobs, (job.project, job.id, str(job.attempt), "work"))
        for uri in (job.workload.job_dir, *logged_folders):
            yield from self._event_folder(job, uri)
        yield work
        for uri in output_folders.output_uris(job.workload.args):
            yield from self._event_folder(job, uri)

    def _event_folder(self, job: Job, uri: str) -> Iterator[EventFolder]:
        """Resolve a gs:// URI, or a path in the buckets, if its bucket is the project's."""
        for root in (f"{self._home.buckets}/", "/gcs/"):  # the latter is their path in containers
            if uri.startswith(root):
                uri = f"gs://{uri.removeprefix(root)}"
        if (parts := output_folders.folder(job, uri, self._owner)) is not None:
            if not self._mirrors.serves(parts):
                yield EventFolder(self._home.buckets, parts)
                return
            self._mirrors.refresh(parts, ended_us=job.ended_us)
            yield EventFolder(self._mirrors.root, parts)


def _progress_body(progress: TrainingProgress, step_rate: StepRate, *, running: bool, now_us: int) -> dict[str, Any]:
    report = progress.report
    silent = running and step_rate.silent(now_us)
    rate = report.global_rate if report.global_rate is not None else progress.rate
    return _report_body(report) | {
        "totalSteps": progress.total_steps,
        "epoch": report.epoch,
        "totalEpochs": progress.total_epochs,
        "fraction": None if progress.fraction is None else round(progress.fraction, 4),
        "globalStepsPerSecond": _json(rate),
        "leftSeconds": _json(progress.left_s) if running and not silent else None,
        "ageSeconds": round(max(0, now_us - report.time_us) / 1e6, 1) if running else None,
        "evaluation": _report_body(progress.evaluation) if progress.evaluation else None,
    }


def _report_body(report: ProgressReport | None) -> dict[str, Any]:
    return {
        "time": rfc3339(report.time_us) if report else None,
        "step": report.step if report else None,
        "loss": _json(report.loss) if report else None,
        "accuracy": _json(report.accuracy) if report else None,
    }


def _replica_body(tracker: AttemptTracker, name: str, status: ReplicaStatus) -> dict[str, Any]:
    return (
        {
            "name": name,
            "state": status.state.value,
            "exitCode": status.exit_code,
            "signal": status.signal,
            "status": status.text,
            "restarts": status.restarts,
        }
        | _report_body(tracker.sources[name].report)
        | {"localStepsPerSecond": _json(tracker.local_rate(name))}
        | _usage_body(tracker, name, running=status.state is ReplicaState.RUNNING)
    )


def _usage_body(tracker: AttemptTracker, name: str, *, running: bool) -> dict[str, Any]:
    """Return the current usage of a replica. All values are None if it does not run."""
    last = tracker.usage[name].last if running else None
    return {
        "cpu": last.cpu if last else None,
        "memoryBytes": last.memory_bytes if last else None,
        "processes": last.processes if last else None,
    }


def _series_body(
    series: TimeSeries, max_points: int, *, show: Callable[[float | None], object] | None = None
) -> dict[str, Any]:
    points, show = series.points(max_points), show or _json
    return {
        "mean": show(series.mean),
        "max": show(series.max),
        "time": [rfc3339(point.time_us) for point in points],
        "value": [show(point.value) for point in points],
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _json(value: float | None) -> float | str | None:
    """Return a number, or the string that Google's JSON uses for a non-finite one."""
    if value is None:
        return None
    if math.isfinite(value):
        return float(f"{value:.7g}")
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
