"""What the API can do with jobs. Creating and cancelling write rows; the control loop makes them true."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from trainshed.attempts.batch_progress import BatchProgress
from trainshed.domain import names
from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.domain.etags import check_etag, etag
from trainshed.domain.filters import parser
from trainshed.domain.jobs import gang
from trainshed.domain.jobs.batch_prediction import BatchPrediction, cloud_output_unsupported
from trainshed.domain.jobs.job import ENGINE_LABEL, Job, JobEvent, JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.jobs.workload import JobRequest, Workload, read_job, read_job_patch, workload_of
from trainshed.domain.json_fields import mask_paths
from trainshed.domain.models.model import model_not_found
from trainshed.domain.models.version import serving_runtime
from trainshed.domain.models.version_container import batch_prediction_unsupported
from trainshed.domain.times import now_us, rfc3339
from trainshed.errors import FailedPreconditionError
from trainshed.services.paging import PageRequest, ResourcePage, scan
from trainshed.services.patches import check_mask, merged
from trainshed.services.storage.uris import UriChecker, parse_uri
from trainshed.store.conflicts import retry_on_conflict
from trainshed.store.jobs import JobStore

CONTAINER = "container"  #: the runtime of a job that brings its own


class Choice(Protocol):
    """The runtime chosen for a job, and what its owner should know about the choice."""

    @property
    def name(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]: ...


class QueueStatus(Protocol):
    """What is known about where a job runs, or will."""

    def pending_reason(self, job: Job) -> str:
        """About the room that a job at the head of the queue waits for, to end a sentence."""

    def outage(self, job: Job) -> str:
        """A sentence, if the place where a job runs does not answer; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDependencies:
    """What a new job is checked against."""

    resolve_runtime: Callable[
        [str, str], Choice
    ]  #: `InvalidArgumentError`, with the list, for a version that can't be had
    places: UriChecker
    #: of a version, or a model's default one, which must be READY; empty for a container
    model_runtime: Callable[[str, str, str], str]
    choose_engine: Callable[
        [Mapping[str, str], Workload], str
    ]  #: by labels; `InvalidArgumentError`, with the list, for one there isn't
    prospects: QueueStatus
    restarts: Callable[[Job], Sequence[str]]  #: what was started again in a job, a sentence each
    progress: Callable[[Job], Mapping[str, Any] | None]  #: how far it has come; None if nothing told of it
    predicted: Callable[[Job], BatchProgress | None]  #: the same of a batch prediction
    failure: Callable[[Job], Mapping[str, Any] | None]  #: why it failed; None if it did not
    shortfall: Callable[[str, Training], str]  #: what an engine does not have of what is promised, as a sentence
    machines: MachineTypes


class Jobs:
    """Threads may share it."""

    def __init__(
        self,
        store: JobStore,
        world: JobDependencies,
        *,
        wake: Callable[[], None] = lambda: None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._store = store
        self._world = world
        self._wake = wake
        self._clock = clock

    def create(self, project: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Queue a new job. What is answered here is stored. `AlreadyExistsError` for an id that was ever used."""
        request = read_job(body, self._world.machines)
        engine = self._world.choose_engine(request.labels, request.work)
        runtime, notes = self._checked(project, request.work, engine)
        job = Job(
            project=project,
            id=request.job_id,
            body={request.work.key: request.work.input},
            labels=request.labels,
            priority=request.work.priority,
            runtime=runtime,
            engine=engine,
            created_us=self._clock(),
        )
        job = self._store.add(job, _first_events(request, notes, job.created_us))
        self._wake()
        return self._shown(job)

    def get(self, project: str, job_id: str) -> dict[str, Any]:
        return self._shown(self._store.get(project, job_id))

    def details(self, project: str, job_id: str) -> dict[str, Any]:
        """The job with what the API has no field for: runtime, notes, why it waits or failed, progress, history."""
        job = self._store.get(project, job_id)
        events = self._store.events(project, job_id)
        ahead = self._store.ahead_of(job) if job.state is JobState.QUEUED else 0
        predicted = self._world.predicted(job)
        notes = [event.message for event in events if event.severity == "WARNING"]
        return {
            "job": job_body(job, ahead + 1, predicted),
            "runtime": job.runtime,
            "engine": job.engine,
            "attempt": job.attempt,
            "notes": [*notes, *([_so_far(predicted)] if predicted else [])],
            "restarts": list(self._world.restarts(job)),
            "progress": self._world.progress(job),
            "waiting": waiting_reason(job, ahead, self._world.prospects),
            "failure": self._world.failure(job),
            "events": [
                {"time": rfc3339(event.time_us), "severity": event.severity, "text": event.message} for event in events
            ],
        }

    def page(self, project: str, wanted: PageRequest) -> ResourcePage:
        """Jobs that match the filter, newest first, as `scan` gives them."""
        query = parser.parse(wanted.query)
        found, cursor = scan(
            lambda before, limit: self._store.page(project, before=before, limit=limit),
            lambda job: query.matches(job_body(job)),
            wanted,
        )
        return ResourcePage(items=self._shown_all(found), next=cursor)

    def patch(self, project: str, job_id: str, *, mask: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change the labels that the mask names.

        With an etag in the body: `AbortedError` unless it is the current one.
        """
        given = read_job_patch(body)
        paths = mask_paths(mask, field="update_mask")
        check_mask(paths, (), given, what="job")
        labels = names.labels(given.get("labels", {}), field="job.labels")

        def change(job: Job) -> tuple[Job, tuple[JobEvent, ...]]:
            if "etag" in given:
                check_etag(given["etag"], job.generation, what=f"job {job.id}")
            changed = names.labels(merged(job.labels, labels, paths), field="job.labels")
            if changed.get(ENGINE_LABEL) != job.labels.get(ENGINE_LABEL):
                raise FailedPreconditionError(
                    f"Job {job.id} is on engine {job.engine}, and stays there. Leave the label {ENGINE_LABEL} as it "
                    f"is, or submit the job again under a new name."
                )
            return replace(job, labels=changed), ()

        return self._shown(self._change(project, job_id, change))

    def cancel(self, project: str, job_id: str, *, user: str) -> None:
        """A queued job is cancelled at once, a running one is told to end, one being cancelled is left to it.

        `FailedPreconditionError` for a job that has ended, however often it is asked.
        """
        now = self._clock()

        def change(job: Job) -> tuple[Job, tuple[JobEvent, ...]] | None:
            reason = f"The job was cancelled by {user}."
            if job.state is JobState.CANCELLING:
                return None
            if job.ended:
                raise FailedPreconditionError(f"Job {job.id} has ended ({job.state}) and can't be cancelled any more.")
            if job.state is JobState.QUEUED:
                cancelled = job.to(JobState.CANCELLED, now_us=now, error=reason)
                return cancelled, (
                    JobEvent(message=reason, time_us=now),
                    JobEvent(message="Job cancelled.", time_us=now),
                )
            return job.to(JobState.CANCELLING, now_us=now, error=reason), (JobEvent(message=reason, time_us=now),)

        self._change(project, job_id, change)
        self._wake()

    def _change(
        self, project: str, job_id: str, change: Callable[[Job], tuple[Job, tuple[JobEvent, ...]] | None]
    ) -> Job:
        """Read, change, write; from the start again if someone else wrote in between."""

        def once() -> Job:
            job = self._store.get(project, job_id)
            changed = change(job)
            return job if changed is None else self._store.record(*changed)

        return retry_on_conflict(once)

    def _checked(self, project: str, work: Workload, engine: str) -> tuple[str, Sequence[str]]:
        """The runtime for what is to be done, and what its owner should know. What isn't there is an error."""
        if isinstance(work, BatchPrediction):
            return self._checked_prediction(project, work)
        short = tuple(filter(None, (self._world.shortfall(engine, work),)))
        if work.containers:
            self._check_training(project, work)
            return CONTAINER, short
        choice = self._world.resolve_runtime(work.runtime_version, work.python_version)
        self._check_training(project, work)
        return choice.name, (*choice.notes, *short)

    def _check_training(self, project: str, training: Training) -> None:
        """`FailedPreconditionError` for what isn't there. A bucket of another project is as good as absent."""
        places = self._world.places
        missing = [
            uri for uri in training.package_uris if not places.object_readable(project, uri, field="package_uris")
        ]
        if missing:
            raise FailedPreconditionError(
                f"The provided GCS paths cannot be read: {', '.join(missing[:5])}. Each must be an object in a bucket "
                f"of project {project}. List what there is with: trainshed buckets ls gs://BUCKET",
                field="package_uris",
            )
        if training.job_dir:
            self._check_bucket(project, training.job_dir, field="job_dir")

    def _checked_prediction(self, project: str, prediction: BatchPrediction) -> tuple[str, Sequence[str]]:
        places = self._world.places
        self._check_bucket(project, prediction.output_path, field="output_path")
        if cloud := places.cloud_of(parse_uri(prediction.output_path, field="output_path")[0]):
            raise cloud_output_unsupported(prediction.output_path, cloud)
        missing = [uri for uri in prediction.input_paths if not places.matched(project, uri, field="input_paths")]
        if missing:
            raise FailedPreconditionError(
                f"No object matches {', '.join(missing[:5])}. Each path must match at least one in a bucket of project "
                f"{project}. List what there is with: trainshed buckets ls gs://BUCKET",
                field="input_paths",
            )
        if not prediction.uri:
            if prediction.project != project:
                raise model_not_found(prediction.project, prediction.model)
            runtime = self._world.model_runtime(project, prediction.model, prediction.version)
            if not runtime:
                raise batch_prediction_unsupported(
                    prediction.model, field="version_name" if prediction.version else "model_name"
                )
            return runtime, prediction.notes
        if not places.folder_readable(project, prediction.uri, field="uri"):
            raise FailedPreconditionError(
                f"There are no files in {prediction.uri} that project {project} has.", field="uri"
            )
        wanted = serving_runtime(prediction.runtime_version, prediction.python_version)
        choice = self._world.resolve_runtime(wanted.runtime_version, wanted.python_version)
        return choice.name, (*choice.notes, *filter(None, (wanted.note,)), *prediction.notes)

    def _check_bucket(self, project: str, uri: str, *, field: str) -> None:
        bucket, _ = parse_uri(uri, field=field)
        if not self._world.places.owns(project, bucket):
            raise FailedPreconditionError(
                f"The bucket gs://{bucket} does not exist in project {project}. "
                f"Make it with: trainshed buckets mb gs://{bucket}",
                field=field,
            )

    def _shown(self, job: Job) -> dict[str, Any]:
        position = self._store.ahead_of(job) + 1 if job.state is JobState.QUEUED else None
        return job_body(job, position, self._world.predicted(job))

    def _shown_all(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        places = self._store.positions(jobs)
        return [job_body(job, places.get((job.project, job.id)), self._world.predicted(job)) for job in jobs]


def job_body(job: Job, position: int | None = None, predicted: BatchProgress | None = None) -> dict[str, Any]:
    """A job in the API's own form. `position` is its place in the queue, shown while it waits there; `predicted` is how
    far a batch prediction has come.
    """
    body: dict[str, Any] = {"jobId": job.id, **job.body, "createTime": rfc3339(job.created_us)}
    if job.started_us is not None:
        body["startTime"] = rfc3339(job.started_us)
    if job.ended_us is not None:
        body["endTime"] = rfc3339(job.ended_us)
    body |= {"state": job.state.value, **_output(job, predicted), "etag": etag(job.generation)}
    if job.error:
        body["errorMessage"] = job.error
    if job.labels:
        body["labels"] = job.labels
    if job.state is JobState.QUEUED and position is not None:
        body["jobPosition"] = str(position)
    return body


def _output(job: Job, predicted: BatchProgress | None) -> dict[str, Any]:
    if BatchPrediction.key not in job.body:
        return {"trainingOutput": {}}
    ran_us = (job.ended_us or job.started_us or 0) - (job.started_us or 0)
    return {
        "predictionOutput": {
            "outputPath": job.body[BatchPrediction.key]["outputPath"],
            "predictionCount": str(predicted.predictions if predicted else 0),
            "errorCount": str(predicted.errors if predicted else 0),
            "nodeHours": round(ran_us / 3.6e9, 4),
        }
    }


def waiting_reason(job: Job, ahead: int, prospects: QueueStatus) -> str:
    """Why nothing happens, for people; empty for a job that runs, as far as one can see, or has ended."""
    if job.state in _RUNS_SOMEWHERE and (away := prospects.outage(job)):
        return away
    match job.state:
        case JobState.QUEUED if ahead:
            before = "1 job goes" if ahead == 1 else f"{ahead} jobs go"
            return f"It waits in the queue at position {ahead + 1}; {before} before it."
        case JobState.QUEUED:
            size = len(gang.gang(workload_of(job.body)))
            return (
                f"It is next. Its gang of {size} {'replica starts' if size == 1 else 'replicas starts'} whole: "
                f"{prospects.pending_reason(job)}."
            )
        case JobState.PREPARING:
            return "Its runtime, its packages and its processes are being made ready."
        case JobState.CANCELLING:
            return "Its processes were told to end; not all of them have."
    return ""


_RUNS_SOMEWHERE = (JobState.PREPARING, JobState.RUNNING, JobState.CANCELLING)


def _so_far(predicted: BatchProgress) -> str:
    """How far a batch prediction has come, for people."""
    bad = "one had an error" if predicted.errors == 1 else f"{predicted.errors:,} had errors"
    return f"{predicted.fraction:.0%} of the input is read: {predicted.predictions:,} rows were predicted, {bad}."


def _first_events(request: JobRequest, notes: Sequence[str], time_us: int) -> list[JobEvent]:
    lines = [
        ("INFO", "Validating job requirements..."),
        ("INFO", "Job creation request has been successfully validated."),
        *(("WARNING", note) for note in notes),
        ("INFO", f"Job {request.job_id} is queued."),
    ]
    return [JobEvent(message=text, time_us=time_us, severity=severity) for severity, text in lines]
