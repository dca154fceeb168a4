"""Jobs: create, get, list, patch and cancel. This service writes rows; the job controller acts on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainshed.attempts.batch_progress import BatchProgress
from trainshed.attempts.journal import HangRecord
from trainshed.domain import names
from trainshed.domain.access.secrets import check_unchanged
from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.domain.filters.parser import parse
from trainshed.domain.filters.server import SERVER
from trainshed.domain.image_registries import ImageRegistries
from trainshed.domain.jobs import gang
from trainshed.domain.jobs.batch_prediction import BatchPrediction, cloud_output_unsupported, guarded_output_unsupported
from trainshed.domain.jobs.containers import image_field
from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.failure_text import error_message
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.jobs.reconcile import cancelled
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.jobs.workload import JobRequest, Workload, check_labels, read_job, read_job_patch, workload_body
from trainshed.domain.json_fields import mask_paths
from trainshed.domain.models.model import model_not_found
from trainshed.domain.models.version import serving_runtime
from trainshed.domain.models.version_container import batch_prediction_unsupported
from trainshed.domain.names import ENGINE_LABEL, LOCAL_ENGINE
from trainshed.domain.patches import check_etag, check_mask, etag, merge_labels
from trainshed.domain.times import now_us, rfc3339
from trainshed.domain.work_budget import WorkBudget, unlimited
from trainshed.errors import FailedPreconditionError, NotFoundError
from trainshed.node.crashpoints import crashpoint
from trainshed.services.access.quotas import Quotas
from trainshed.services.access.secrets import Secrets
from trainshed.services.jobs.reports import JobReports, hang_remedy
from trainshed.services.jobs.tuning import TuningJobs
from trainshed.services.paging import PageRequest, ResourcePage, scan
from trainshed.services.ports import QueueStatus, RuntimeResolver, Scheduler
from trainshed.services.storage.uris import UriChecker, parse_uri
from trainshed.store.database import retry_on_conflict
from trainshed.store.jobs import JobStore
from trainshed.store.models import ModelStore

CONTAINER = "container"  #: the runtime name of container jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChecks:
    """What a request for a job is checked with."""

    runtimes: RuntimeResolver
    uri_checker: UriChecker
    models: ModelStore
    machines: MachineTypes
    registries: ImageRegistries
    quotas: Quotas
    secrets: Secrets


class Jobs:
    """The jobs of all projects. Thread-safe."""

    def __init__(
        self,
        store: JobStore,
        scheduler: Scheduler,
        checks: JobChecks,
        reports: JobReports,
        tuning: TuningJobs,
        *,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._store = store
        self._tuning = tuning
        self._scheduler = scheduler
        self._checks = checks
        self._reports = reports
        self._clock = clock

    def has_slow_checks(self, body: Mapping[str, Any]) -> bool:
        """Return whether `create` lists buckets or asks a cloud. The body may be invalid."""
        if "predictionInput" in body:
            return True
        training = body.get("trainingInput")
        uris = training.get("packageUris") if isinstance(training, Mapping) else None
        return isinstance(uris, list) and any(map(self._checks.uri_checker.is_in_cloud, uris))

    def create(
        self, project: str, body: Mapping[str, Any], budget: WorkBudget | None = None, *, user: str = ""
    ) -> dict[str, Any]:
        """Queue a new job. It is stored when this returns. Raises `AlreadyExistsError` for an id that was ever used.
        Raises `QuotaExceededError` beyond a limit of the project or of the user.

        Inputs are checked within the budget. Raises what `WorkBudget.check` raises, and nothing is stored then.
        """
        budget = budget or unlimited()
        request = read_job(body, self._checks.machines)
        if isinstance(request.workload, Training):
            request = replace(request, workload=self._tuning.resumed(project, request.workload))
        engine = self._scheduler.choose_engine(request.labels, request.workload)
        self._checks.secrets.check(project, request.labels, _without_secrets(engine))
        runtime, notes = self._resolve_workload(project, request.workload, engine, budget)
        budget.check(0)
        gang_size = len(gang.gang(request.workload))
        job = Job(
            project=project,
            id=request.job_id,
            workload=request.workload,
            labels=request.labels,
            priority=request.workload.priority,
            runtime=runtime,
            engine=engine,
            created_us=self._clock(),
            user=user,
            replicas=0 if _is_tuning(request.workload) else gang_size,
        )
        check_quotas = self._checks.quotas.check_job(job, gang_size)
        job = self._store.add(job, _first_events(request, notes, job.created_us), check_quotas)
        self._wake(job)
        return self._body(job)

    def get(self, project: str, job_id: str) -> dict[str, Any]:
        return self._body(self._get(project, job_id))

    def _get(self, project: str, job_id: str) -> Job:
        """Return a job. Raises `NotFoundError` for one of a trial: the API has trials in their tuning job."""
        job = self._store.get(project, job_id)
        if job.trial:
            raise NotFoundError(f"There is no job {job_id} in project {project}.")
        return job

    def _wake(self, job: Job) -> None:
        if job.tuning is None:
            self._scheduler.wake()
        else:
            self._tuning.wake()

    def details(self, project: str, job_id: str) -> dict[str, Any]:
        """Return the job with what the API has no field for: runtime, notes, progress, failure, history and more."""
        job = self._store.get(project, job_id)
        events = self._store.events(project, job_id)
        ahead = self._scheduler.positions([job]).get((project, job_id), 1) - 1
        batch_progress = self._reports.attempts.batch_progress(job)
        notes = [event.message for event in events if event.kind is JobEventKind.NOTE]
        return {
            "job": job_body(job, ahead + 1, batch_progress, self._tuning.output(job)),
            "runtime": job.runtime,
            "engine": job.engine,
            "attempt": job.attempt,
            "notes": [*notes, *([_batch_progress_note(batch_progress)] if batch_progress else [])],
            "restarts": list(self._reports.restarts(job)),
            "hangs": [_hang_body(hang) for hang in self._reports.hangs(job)],
            "progress": self._reports.progress.of(job),
            "waiting": waiting_reason(job, ahead, self._scheduler),
            "failure": self._reports.failures.of(job),
            "events": [
                {
                    "time": rfc3339(event.time_us),
                    "kind": event.kind.value,
                    "severity": event.severity,
                    "message": event.message,
                }
                for event in sorted((*events, *self._reports.hang_events(job)), key=lambda event: event.time_us)
            ],
        }

    def page(self, project: str, request: PageRequest) -> ResourcePage:
        """Return jobs that match the filter, newest first. See `scan`."""
        query = parse(request.query, SERVER)
        jobs, cursor = scan(
            lambda before, limit: self._store.page(project, before=before, limit=limit),
            lambda job: query.matches(job_body(job)),
            request,
        )
        return ResourcePage(items=self._bodies(jobs), next=cursor)

    def patch(self, project: str, job_id: str, *, mask: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change the labels that the mask names.

        Raises `AbortedError` if the body has an etag that is not current.
        """
        patch = read_job_patch(body)
        paths = mask_paths(mask, field="update_mask")
        check_mask(paths, (), patch, what="job")
        labels = names.labels(patch.get("labels", {}), field="job.labels")

        def change(job: Job) -> tuple[Job, tuple[JobEvent, ...]]:
            if "etag" in patch:
                check_etag(patch["etag"], job.generation, what=f"job {job.id}")
            changed = names.labels(merge_labels(job.labels, labels, paths), field="job.labels")
            check_unchanged(job.labels, changed, what=f"job {job.id}")
            check_labels(changed, job.workload)
            if changed.get(ENGINE_LABEL) != job.labels.get(ENGINE_LABEL):
                raise FailedPreconditionError(
                    f"Job {job.id} is on engine {job.engine}, and stays there. Leave the label {ENGINE_LABEL} as it "
                    f"is, or submit the job again under a new name."
                )
            return replace(job, labels=changed), ()

        return self._body(self._change(project, job_id, change))

    def cancel(self, project: str, job_id: str, *, user: str) -> None:
        """Cancel a job: a queued one immediately, a running one by its controller. Idempotent while it is CANCELLING.

        Raises `FailedPreconditionError` if the job has ended.
        """
        now = self._clock()

        def change(job: Job) -> tuple[Job, tuple[JobEvent, ...]] | None:
            return cancelled(job, Failure(cause=FailureCause.CANCELLED, facts={"by": user}), now_us=now)

        crashpoint("job.cancel.before_commit")
        job = self._change(project, job_id, change)
        crashpoint("job.cancel.after_commit")
        self._wake(job)

    def _change(
        self, project: str, job_id: str, change: Callable[[Job], tuple[Job, tuple[JobEvent, ...]] | None]
    ) -> Job:
        """Read, change and write a job. Retries on a write conflict."""

        def attempt() -> Job:
            job = self._get(project, job_id)
            changed = change(job)
            return job if changed is None else self._store.record(*changed)

        return retry_on_conflict(attempt)

    def _resolve_workload(
        self, project: str, workload: Workload, engine: str, budget: WorkBudget
    ) -> tuple[str, Sequence[str]]:
        """Return the runtime of a workload, and notes for the user. Raises an error if an input is missing."""
        if isinstance(workload, BatchPrediction):
            return self._resolve_prediction(project, workload, budget)
        shortfall = tuple(filter(None, (self._scheduler.shortfall(engine, workload),)))
        if workload.containers:
            for role, container in workload.containers.items():
                self._checks.registries.check(container.image, field=image_field(role))
            self._check_training(project, workload, budget)
            return CONTAINER, shortfall
        choice = self._checks.runtimes.resolve(workload.runtime_version, workload.python_version)
        self._check_training(project, workload, budget)
        return choice.name, (*choice.notes, *shortfall)

    def _check_training(self, project: str, training: Training, budget: WorkBudget) -> None:
        """Raise `FailedPreconditionError` if an input is missing. Buckets of other projects count as missing."""
        uri_checker = self._checks.uri_checker
        missing = [
            uri
            for uri in training.package_uris
            if not uri_checker.object_readable(project, uri, field="package_uris", budget=budget)
        ]
        if missing:
            raise FailedPreconditionError(
                f"The provided GCS paths cannot be read: {', '.join(missing[:5])}. Each must be an object in a bucket "
                f"of project {project}. List what there is with `trainshed buckets ls gs://BUCKET`.",
                field="package_uris",
            )
        if training.job_dir:
            self._check_bucket(project, training.job_dir, field="job_dir")

    def _resolve_prediction(
        self, project: str, prediction: BatchPrediction, budget: WorkBudget
    ) -> tuple[str, Sequence[str]]:
        uri_checker = self._checks.uri_checker
        self._check_bucket(project, prediction.output_path, field="output_path")
        bucket = parse_uri(prediction.output_path, field="output_path")[0]
        if cloud := uri_checker.cloud_of(bucket):
            raise cloud_output_unsupported(prediction.output_path, cloud)
        if uri_checker.buckets.are_guarded(bucket):
            raise guarded_output_unsupported(prediction.output_path)
        missing = [
            uri
            for uri in prediction.input_paths
            if not uri_checker.matched(project, uri, field="input_paths", budget=budget)
        ]
        if missing:
            raise FailedPreconditionError(
                f"No object matches {', '.join(missing[:5])}. Each path must match at least one in a bucket of project "
                f"{project}. List what there is with `trainshed buckets ls gs://BUCKET`.",
                field="input_paths",
            )
        if not prediction.uri:
            if prediction.project != project:
                raise model_not_found(prediction.project, prediction.model)
            runtime = self._checks.models.served(project, prediction.model, prediction.version).runtime
            if not runtime:
                raise batch_prediction_unsupported(
                    prediction.model, field="version_name" if prediction.version else "model_name"
                )
            return runtime, prediction.notes
        if not uri_checker.folder_readable(project, prediction.uri, field="uri", budget=budget):
            raise FailedPreconditionError(
                f"There are no files in {prediction.uri} that project {project} has.", field="uri"
            )
        runtime_request = serving_runtime(prediction.runtime_version, prediction.python_version)
        choice = self._checks.runtimes.resolve(runtime_request.runtime_version, runtime_request.python_version)
        return choice.name, (*choice.notes, *filter(None, (runtime_request.note,)), *prediction.notes)

    def _check_bucket(self, project: str, uri: str, *, field: str) -> None:
        bucket, _ = parse_uri(uri, field=field)
        if not self._checks.uri_checker.owns(project, bucket):
            raise FailedPreconditionError(
                f"The bucket gs://{bucket} does not exist in project {project}. "
                f"Make it with `trainshed buckets mb gs://{bucket}`.",
                field=field,
            )

    def _body(self, job: Job) -> dict[str, Any]:
        return self._bodies([job])[0]

    def _bodies(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        positions, attempts = self._scheduler.positions(jobs), self._reports.attempts
        return [
            job_body(job, positions.get((job.project, job.id)), attempts.batch_progress(job), self._tuning.output(job))
            for job in jobs
        ]


def job_body(
    job: Job,
    position: int | None = None,
    predicted: BatchProgress | None = None,
    tuned: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a job as a resource of the API.

    `position` is shown while it is queued. `predicted` is the progress of a batch prediction, `tuned` the output of a
    tuning job.
    """
    body: dict[str, Any] = {"jobId": job.id, **workload_body(job.workload), "createTime": rfc3339(job.created_us)}
    if job.started_us is not None:
        body["startTime"] = rfc3339(job.started_us)
    if job.ended_us is not None:
        body["endTime"] = rfc3339(job.ended_us)
    body |= {"state": job.state.value, **_output(job, predicted, tuned or {}), "etag": etag(job.generation)}
    if job.failure:
        body["errorMessage"] = error_message(job.failure, job.id)
    if job.labels:
        body["labels"] = job.labels
    if job.state is JobState.QUEUED and position is not None:
        body["jobPosition"] = str(position)
    return body


def _hang_body(hang: HangRecord) -> dict[str, Any]:
    return {
        "replica": hang.name,
        "kind": hang.kind.value,
        "time": rfc3339(hang.time_us),
        "endTime": rfc3339(hang.ended_us) if hang.ended_us is not None else None,
        "quietSeconds": hang.seconds,
        "pid": hang.pid or None,
        "waitsFor": list(hang.working),
        "suspect": hang.suspect,
        "restarted": hang.restart,
        "message": hang.sentence,
        "stack": hang.stack,
        "remedy": hang_remedy(hang),
    }


def _without_secrets(engine: str) -> str:
    """Return why a job gets no secrets. Returns "" if it does."""
    return "" if engine == LOCAL_ENGINE else f"Jobs on the engine {engine} get no secrets: these stay on this machine."


def _is_tuning(workload: Workload) -> bool:
    return isinstance(workload, Training) and workload.tuning is not None


def _output(job: Job, batch_progress: BatchProgress | None, tuned: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(job.workload, BatchPrediction):
        return {"trainingOutput": dict(tuned)}
    ran_us = (job.ended_us or job.started_us or 0) - (job.started_us or 0)
    return {
        "predictionOutput": {
            "outputPath": job.workload.output_path,
            "predictionCount": str(batch_progress.predictions if batch_progress else 0),
            "errorCount": str(batch_progress.errors if batch_progress else 0),
            "nodeHours": round(ran_us / 3.6e9, 4),
        }
    }


def waiting_reason(job: Job, ahead: int, queue_status: QueueStatus) -> str:
    """Return why the job is pending, for users. Returns "" if it runs or has ended."""
    if job.state in _ON_ENGINE and (outage := queue_status.outage(job)):
        return outage
    match job.state:
        case JobState.QUEUED if job.tuning is not None:
            return "Its first trials wait in the queue."
        case JobState.QUEUED if limited := queue_status.quota_reason(job):
            return limited
        case JobState.QUEUED if ahead:
            before = "1 job goes" if ahead == 1 else f"{ahead} jobs go"
            return f"It waits in the queue at position {ahead + 1}; {before} before it."
        case JobState.QUEUED:
            size = len(gang.gang(job.workload))
            return (
                f"It is next. Its gang of {size} {'replica starts' if size == 1 else 'replicas starts'} whole: "
                f"{queue_status.pending_reason(job)}."
            )
        case JobState.PREPARING:
            return "Its runtime, its packages and its processes are being made ready."
        case JobState.CANCELLING:
            return "Its processes were told to end; not all of them have."
    return ""


_ON_ENGINE = (JobState.PREPARING, JobState.RUNNING, JobState.CANCELLING)


def _batch_progress_note(progress: BatchProgress) -> str:
    """Return the progress of a batch prediction as a sentence."""
    bad = "one had an error" if progress.errors == 1 else f"{progress.errors:,} had errors"
    return f"{progress.fraction:.0%} of the input is read: {progress.predictions:,} rows were predicted, {bad}."


def _first_events(request: JobRequest, notes: Sequence[str], time_us: int) -> list[JobEvent]:
    messages = [
        (JobEventKind.VALIDATED, "Validating job requirements..."),
        (JobEventKind.VALIDATED, "Job creation request has been successfully validated."),
        *((JobEventKind.NOTE, note) for note in notes),
        (JobEventKind.QUEUED, f"Job {request.job_id} is queued."),
    ]
    return [
        JobEvent(
            kind=kind, message=message, time_us=time_us, severity="WARNING" if kind is JobEventKind.NOTE else "INFO"
        )
        for kind, message in messages
    ]
