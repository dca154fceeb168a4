"""Training jobs: submit them, watch them, deploy their exports."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import trainshed.sdk.display as display
import trainshed.sdk.tuning as tuning
from trainshed.client import job_reader, submission
from trainshed.client.context import ClientContext, native_job_path
from trainshed.client.job_format import facts
from trainshed.client.staging import staging_bucket as ready_bucket
from trainshed.client.transport import segment
from trainshed.client.trial_format import search_facts
from trainshed.client.tuning import chosen_trial, continued_job, next_name, search_of, trained_job, trial_exports
from trainshed.domain.jobs.states import TERMINAL_STATES, JobState
from trainshed.errors import DeadlineExceededError, FailedPreconditionError, InvalidArgumentError, TrainshedError
from trainshed.sdk.models import Model, Models
from trainshed.sdk.records import Export, LogLine, Metrics, Progress
from trainshed.sdk.space import ParameterRange

_LINE_INTERVAL_S = 10.0  #: between two lines outside a notebook
_POLL_INTERVAL_S = 0.5


class Jobs:
    """The jobs of a project: `connect().jobs`."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context

    def submit(  # all parts of a training are optional keywords
        self,
        name: str | None = None,
        *,
        package_path: str | Path | None = None,
        module_name: str | None = None,
        args: Sequence[object] | Mapping[str, object] = (),
        runtime_version: str | None = None,
        scale_tier: str | None = None,
        config: Mapping[str, Any] | str | Path | None = None,
        job_dir: str | None = None,
        staging_bucket: str | None = None,
        packages: Sequence[str | Path] = (),
        labels: Mapping[str, str] | None = None,
        region: str | None = None,
    ) -> Job:
        """Build the trainer's package, upload it, and create the job. Returns immediately; `watch` shows its progress.

        `package_path` is the folder of the package, `module_name` the module to run, and `args` its arguments: a list,
        or a mapping from option to value. `config` is a Job as in the API, or a YAML or JSON file with one; the other
        arguments override it. Without a `staging_bucket` the package goes below `job_dir`, and without that into
        gs://PROJECT-staging, which is created if it is missing. Without a `name` the job gets one with its time.
        """
        job_id = name or _new_name(module_name)
        job_config = submission.read_config(Path(config)) if isinstance(config, str | Path) else dict(config or {})
        fields = {
            "pythonModule": module_name,
            "runtimeVersion": runtime_version,
            "scaleTier": scale_tier.upper().replace("-", "_") if scale_tier else None,
            "jobDir": job_dir,
            "region": region,
            "args": _arguments(args) or None,
        }
        training = dict(job_config.get("trainingInput") or {}) | {key: value for key, value in fields.items() if value}
        training.setdefault("region", submission.REGION)
        body = job_config | {"jobId": job_id, "trainingInput": training}
        if labels:
            body["labels"] = {**(job_config.get("labels") or {}), **labels}
        with ExitStack() as stack:
            path = None if package_path is None else Path(package_path)
            files, uris = submission.packages(stack, package_path=path, arguments=packages)
            names = self._upload_names(files, job_id, staging_bucket, training.get("jobDir"))
            if uris or names:
                training["packageUris"] = [*uris, *names.values()]
            _check(training)
            submission.upload(self._context, names)
        submission.create_job(self._context, body)
        return Job(self._context, job_id)

    def tune(  # the bounds of a search are optional keywords, and those of `submit` follow
        self,
        name: str | None = None,
        *,
        space: Mapping[str, ParameterRange],
        maximize: str | None = None,
        minimize: str | None = None,
        trials: int = 20,
        parallel: int = 1,
        early_stopping: bool = True,
        max_failed: int | None = None,
        algorithm: str = "bayesian",
        **submit: Any,
    ) -> Job:
        """Search for good values of a trainer's arguments: run it `trials` times, `parallel` at a time.

        A parameter in `space` is (low, high), of whole numbers if both are ints, (low, high, "log") for a scale, or a
        list of texts or numbers. `maximize` or `minimize` names the metric that the trainer reports. `algorithm` is
        bayesian, random or grid. All other arguments are those of `submit`.
        """
        limits = tuning.bounds(
            trials=trials, parallel=parallel, early_stopping=early_stopping, max_failed=max_failed, algorithm=algorithm
        )
        spec = tuning.hyperparameters(space, maximize=maximize, minimize=minimize, **limits)
        config = submit.pop("config", None)
        job_config = submission.read_config(Path(config)) if isinstance(config, str | Path) else dict(config or {})
        training = dict(job_config.get("trainingInput") or {}) | {"hyperparameters": spec}
        return self.submit(name, config=job_config | {"trainingInput": training}, **submit)

    def get(self, name: str) -> Job:
        """Return an existing job. Raises `NotFoundError` if there is none of this name."""
        job = Job(self._context, name)
        job.describe()
        return job

    def list(self, *, filter: str | None = None, limit: int | None = None) -> list[Job]:  # noqa: A002  the API's word
        """List jobs, newest first: those that match a filter such as `state=RUNNING`, at most `limit`."""
        query = {"pageSize": min(limit or 100, 100), "filter": filter}
        pages = self._context.client.pages(self._context.ml("jobs"), "jobs", query=query)
        jobs = pages if limit is None else (job for _, job in zip(range(limit), pages, strict=False))
        return [Job(self._context, job["jobId"]) for job in jobs]

    def _upload_names(
        self, files: Sequence[Path], job_id: str, bucket: str | None, job_dir: str | None
    ) -> dict[Path, str]:
        if not files:
            return {}
        from trainshed.packaging import upload_names

        if bucket is None and job_dir is None:
            bucket = ready_bucket(self._context, None, notify=lambda text: None)
        return upload_names(files, job_id=job_id, staging_bucket=bucket, job_dir=job_dir)


class Job:
    """One job. It stores only a name: each call goes to the server."""

    def __init__(self, context: ClientContext, name: str) -> None:
        self._context = context
        self.name = name

    @property
    def state(self) -> str:
        """QUEUED, PREPARING, RUNNING, CANCELLING, SUCCEEDED, FAILED or CANCELLED."""
        return str(self._body()["state"])

    @property
    def progress(self) -> Progress | None:
        """How far the job is. None if it has reported nothing yet."""
        raw = self._context.client.call("GET", f"{native_job_path(self._context, self.name)}/progress")["progress"]
        return None if raw is None else Progress.read(raw)

    @property
    def console_url(self) -> str:
        """The job's page in the console."""
        return f"{self._context.client.url}/#/p/{segment(self._context.project)}/jobs/{segment(self.name)}"

    def describe(self) -> dict[str, Any]:
        """Return the Job as in the API: its trainingInput, its times, its errorMessage."""
        return self._body()

    def logs(
        self, *, follow: bool = False, replica: str | None = None, tail: int | None = None, grep: str | None = None
    ) -> Iterator[LogLine]:
        """Yield the log line by line; with `follow`, until the job ends. `replica`, `grep` and `tail` select lines."""
        query = {"replica": replica, "tail": tail, "grep": grep}
        for entry in job_reader.entries(self._context, self.name, query=query, follow=follow):
            yield LogLine.read(entry)

    def metrics(self, *, points: int = 300) -> Metrics:
        """Return the metrics so far, by name, at most `points` of each. `metrics().frame()` is a pandas frame."""
        return Metrics.read(job_reader.stats(self._context, self.name, points))

    @property
    def search(self) -> tuning.TuningSearch:
        """The search of a tuning job, to be steered while it runs."""
        return tuning.TuningSearch(self._context, self.name)

    @property
    def trials(self) -> tuning.JobTrials:
        """The trials of a tuning job, the best first. Raises `FailedPreconditionError` if it is none."""
        return tuning.JobTrials.read(search_of(self._context, self.name))

    @property
    def best(self) -> tuning.JobTrial | None:
        """The trial with the best final value. None if there is none yet."""
        search = search_of(self._context, self.name)
        return None if search["best"] is None else tuning.JobTrial.read(chosen_trial(search, None))

    def resume(
        self,
        name: str | None = None,
        *,
        trials: int,
        parallel: int | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Job:
        """Go on with the search of this tuning job, which has ended, in a new job with more trials.

        `config` is a Job as in the API whose fields come before those of this one.
        """
        body = continued_job(
            self._body(), name or next_name(self.name), max_trials=trials, parallel=parallel, config=config
        )
        submission.create_job(self._context, body)
        return Job(self._context, body["jobId"])

    def train_best(self, name: str | None = None, *, trial: int | None = None) -> Job:
        """Submit a normal job with the values of the best trial of this tuning job, or of another one."""
        chosen = chosen_trial(search_of(self._context, self.name), trial)
        body = trained_job(self._body(), name or next_name(self.name), values=chosen["hyperparameters"])
        submission.create_job(self._context, body)
        return Job(self._context, body["jobId"])

    def deploy_best(self, model: str, *, trial: int | None = None, version: str | None = None) -> Model:
        """Deploy the newest export of the best trial of this tuning job, or of another one, as a version of a model."""
        number = chosen_trial(search_of(self._context, self.name), trial)["trial"]
        export = trial_exports(self._context, self.name, number)[0]
        return Models(self._context).deploy(
            model, export["uri"], version=version, runtime_version=export["runtime"] or None
        )

    def watch(self, *, check: bool = True) -> None:
        """Show the job until it ends: a live view in a notebook, otherwise lines. An interrupt leaves the job running.

        Raises `FailedPreconditionError`, with the reason, if the job did not succeed and `check` is True.
        """
        live = display.Live()
        interval_s = job_reader.PROGRESS_INTERVAL_S if display.in_notebook() else _LINE_INTERVAL_S
        status: dict[str, Any] = {}
        if job_reader.tunes(self._context, self.name):
            for status in job_reader.trial_updates(self._context, self.name, interval_s):
                live.show(display.search_panel(status, link=self.console_url), _search_line(status))
        else:
            for status in job_reader.progress_updates(self._context, self.name, interval_s):
                live.show(display.job_panel(status, link=self.console_url), _line(status))
        if check:
            self._check_succeeded(status["state"], status["error"])

    def wait(self, *, timeout_s: float | None = None, check: bool = True) -> Job:
        """Blocks until the job ends, without output.

        Raises `DeadlineExceededError` after `timeout_s`; the job goes on. `check` is as in `watch`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (body := self._body())["state"] not in TERMINAL_STATES:
            if deadline is not None and time.monotonic() > deadline:
                raise DeadlineExceededError(
                    f"Job {self.name} is still {body['state']} after {timeout_s:g} s. It goes on."
                )
            time.sleep(_POLL_INTERVAL_S)
        return self._check_succeeded(body["state"], body.get("errorMessage", "")) if check else self

    def cancel(self) -> Job:
        """Request cancellation. Raises `FailedPreconditionError` if the job has ended."""
        self._context.client.call("POST", f"{self._path}:cancel", body={})
        return self

    def exports(self) -> list[Export]:
        """List the exports that can be deployed, the newest last."""
        rows = self._context.client.call("GET", f"{native_job_path(self._context, self.name)}/exports")["exports"]
        exports = [Export(**{key: row.get(key) or "" for key in Export.__slots__}) for row in rows]
        return sorted(exports, key=lambda export: (export.time, export.uri))

    def deploy(self, model: str, *, version: str | None = None) -> Model:
        """Deploy the job's newest export as a version of a model, as `models.deploy` does."""
        return Models(self._context).deploy(model, job=self, version=version)

    @property
    def _path(self) -> str:
        return self._context.ml(f"jobs/{segment(self.name)}")

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = self._context.client.call("GET", self._path)
        return body

    def _check_succeeded(self, state: str, error: str) -> Job:
        if state != JobState.SUCCEEDED:
            reason = f": {error}" if error else "."
            raise FailedPreconditionError(f"Job {self.name} is {state}{reason}")
        return self

    def __repr__(self) -> str:
        return f"<Job {self.name} of project {self._context.project}>"

    def _repr_html_(self) -> str | None:
        try:
            if job_reader.tunes(self._context, self.name):
                return display.search_panel(search_of(self._context, self.name), link=self.console_url)
            status = self._context.client.call("GET", f"{native_job_path(self._context, self.name)}/progress")
        except TrainshedError:
            return None  # the notebook then shows the name; a display must not raise
        return display.job_panel(status, link=self.console_url)


def _new_name(module_name: str | None) -> str:
    """Return a name such as trainer_20261116_034100_3fa9: sorts by time, and two at once differ."""
    first = (module_name or "job").partition(".")[0]
    stem = first if first.isidentifier() and first[0].isalpha() and first.isascii() else "job"
    return f"{stem}_{datetime.now():%Y%m%d_%H%M%S}_{secrets.token_hex(2)}"


def _arguments(args: Sequence[object] | Mapping[str, object]) -> list[str]:
    """Return the trainer's arguments. A mapping such as `{"train_steps": 500}` becomes --train_steps 500."""
    if isinstance(args, str):
        raise InvalidArgumentError("args must be a list of words, or a mapping from option to value, and not one text.")
    if not isinstance(args, Mapping):
        return [str(word) for word in args]
    pairs = ((key if key.startswith("-") else f"--{key}", str(value)) for key, value in args.items())
    return [word for pair in pairs for word in pair]


def _check(training: Mapping[str, Any]) -> None:
    if not training.get("packageUris"):
        raise InvalidArgumentError(
            "A job needs a package. Give package_path, the folder of the trainer's package, or packages."
        )
    if not training.get("pythonModule"):
        raise InvalidArgumentError("A job needs a module to run. Give module_name, such as trainer.task.")


def _search_line(search: Mapping[str, Any]) -> str:
    """Format a status line: search_1  RUNNING  5 of 20 trials ended, 2 run, best accuracy 0.931 (trial 3)"""
    return "  ".join(part for part in (search["job"], search["state"], search_facts(search), search["waiting"]) if part)


def _line(status: Mapping[str, Any]) -> str:
    """Format a status line: RUNNING  step 1,204 of 5,000 (24 %), loss 0.213"""
    summary = ", ".join(facts(status["progress"])) if status["progress"] is not None else status.get("waiting", "")
    return f"{status['job']}  {status['state']}  {summary}".rstrip()
