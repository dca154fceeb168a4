"""Trainings: submit them, watch them, deploy what they made."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import trainshed.sdk.display as display
from trainshed.client import job_reader, submission
from trainshed.client.context import ClientContext, own_job_path
from trainshed.client.job_format import facts
from trainshed.client.staging import staging_bucket as ready_bucket
from trainshed.client.transport import segment
from trainshed.domain.jobs.job import TERMINAL_STATES, JobState
from trainshed.errors import DeadlineExceededError, FailedPreconditionError, InvalidArgumentError, TrainshedError
from trainshed.sdk.models import Model, Models
from trainshed.sdk.records import Export, LogLine, Metrics, Progress

_LINES_S = 10.0  #: between two lines where there is no notebook
_WAIT_S = 0.5


class Jobs:
    """The jobs of a project: `connect().jobs`."""

    def __init__(self, here: ClientContext) -> None:
        self._here = here

    def submit(  # many arguments, because a training has many parts and all of them are optional keywords
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
        """Build the trainer's package, upload it, and create the job. Returns at once; `watch` shows what it does.

        `package_path` is the folder of the package, `module_name` the module to run, `args` what it gets: a list, or a
        mapping from option to value. `config` is a Job as the API has it, or a YAML or JSON file with one; the other
        arguments win over it. Without a `staging_bucket` the package goes below `job_dir`, and without that into
        gs://PROJECT-staging, which is made if need be. Without a `name` the job gets one that says when it began.
        """
        job_id = name or _new_name(module_name)
        given = submission.read_config(Path(config)) if isinstance(config, str | Path) else dict(config or {})
        fields = {
            "pythonModule": module_name,
            "runtimeVersion": runtime_version,
            "scaleTier": scale_tier.upper().replace("-", "_") if scale_tier else None,
            "jobDir": job_dir,
            "region": region,
            "args": _arguments(args) or None,
        }
        training = dict(given.get("trainingInput") or {}) | {key: value for key, value in fields.items() if value}
        training.setdefault("region", submission.REGION)
        body = given | {"jobId": job_id, "trainingInput": training}
        if labels:
            body["labels"] = {**(given.get("labels") or {}), **labels}
        with ExitStack() as stack:
            path = None if package_path is None else Path(package_path)
            files, uris = submission.packages(stack, package_path=path, given=packages)
            names = self._upload_names(files, job_id, staging_bucket, training.get("jobDir"))
            if uris or names:
                training["packageUris"] = [*uris, *names.values()]
            _check(training)
            submission.upload(self._here, names)
        submission.created(self._here, body)
        return Job(self._here, job_id)

    def get(self, name: str) -> Job:
        """A job that is there already. `NotFoundError` if there is none of this name."""
        job = Job(self._here, name)
        job.describe()
        return job

    def list(self, *, filter: str | None = None, limit: int | None = None) -> list[Job]:  # noqa: A002  the API's word
        """Jobs, the newest first: those that match a filter such as `state=RUNNING`, and no more than `limit`."""
        query = {"pageSize": min(limit or 100, 100), "filter": filter}
        pages = self._here.client.pages(self._here.ml("jobs"), "jobs", query=query)
        found = pages if limit is None else (job for _, job in zip(range(limit), pages, strict=False))
        return [Job(self._here, job["jobId"]) for job in found]

    def _upload_names(
        self, files: Sequence[Path], job_id: str, bucket: str | None, job_dir: str | None
    ) -> dict[Path, str]:
        if not files:
            return {}
        from trainshed.packaging import upload_names

        if bucket is None and job_dir is None:
            bucket = ready_bucket(self._here, None, say=lambda text: None)
        return upload_names(files, job_id=job_id, staging_bucket=bucket, job_dir=job_dir)


class Job:
    """One job. It holds a name only: each question goes to the server."""

    def __init__(self, here: ClientContext, name: str) -> None:
        self._here = here
        self.name = name

    @property
    def state(self) -> str:
        """QUEUED, PREPARING, RUNNING, CANCELLING, SUCCEEDED, FAILED or CANCELLED."""
        return str(self._body()["state"])

    @property
    def progress(self) -> Progress | None:
        """How far it has come; None if nothing told of it yet."""
        raw = self._here.client.call("GET", f"{own_job_path(self._here, self.name)}/progress")["progress"]
        return None if raw is None else Progress.read(raw)

    @property
    def console_url(self) -> str:
        """Its page in the console."""
        return f"{self._here.client.url}/#/p/{segment(self._here.project)}/jobs/{segment(self.name)}"

    def describe(self) -> dict[str, Any]:
        """The Job as the API has it: its trainingInput, its times, its errorMessage."""
        return self._body()

    def logs(
        self, *, follow: bool = False, replica: str | None = None, tail: int | None = None, grep: str | None = None
    ) -> Iterator[LogLine]:
        """Its log, line by line; with `follow` until it ends. `replica`, `grep` and `tail` choose among them."""
        query = {"replica": replica, "tail": tail, "grep": grep}
        for entry in job_reader.entries(self._here, self.name, query=query, follow=follow):
            yield LogLine.read(entry)

    def metrics(self, *, points: int = 300) -> Metrics:
        """What it measured so far, by name, `points` of each at most. `metrics().frame()` is a pandas frame."""
        return Metrics.read(job_reader.stats(self._here, self.name, points))

    def watch(self, *, check: bool = True) -> None:
        """Show it until it ends: a live view in a notebook, lines elsewhere. Interrupting leaves the job alone.

        `FailedPreconditionError`, with the reason, if it did not succeed; not if `check` is False.
        """
        live = display.Live()
        interval_s = job_reader.LOOK_S if display.in_notebook() else _LINES_S
        found: dict[str, Any] = {}
        for found in job_reader.progress_updates(self._here, self.name, interval_s):
            live.show(display.job_panel(found, link=self.console_url), _line(found))
        if check:
            self._checked(found["state"], found["error"])

    def wait(self, *, timeout_s: float | None = None, check: bool = True) -> Job:
        """Until it ends, in silence.

        `DeadlineExceededError` after `timeout_s`; the job goes on then. `check` as in `watch`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (body := self._body())["state"] not in TERMINAL_STATES:
            if deadline is not None and time.monotonic() > deadline:
                raise DeadlineExceededError(
                    f"Job {self.name} is still {body['state']} after {timeout_s:g} s. It goes on."
                )
            time.sleep(_WAIT_S)
        return self._checked(body["state"], body.get("errorMessage", "")) if check else self

    def cancel(self) -> Job:
        """Ask it to end. `FailedPreconditionError` if it has ended already."""
        self._here.client.call("POST", f"{self._path}:cancel", body={})
        return self

    def exports(self) -> list[Export]:
        """What it exported and can be deployed, the newest last."""
        found = self._here.client.call("GET", f"{own_job_path(self._here, self.name)}/exports")["exports"]
        known = [Export(**{key: row.get(key) or "" for key in Export.__slots__}) for row in found]
        return sorted(known, key=lambda export: (export.time, export.uri))

    def deploy(self, model: str, *, version: str | None = None) -> Model:
        """Deploy the newest of its exports as a version of a model, as `models.deploy` does."""
        return Models(self._here).deploy(model, job=self, version=version)

    @property
    def _path(self) -> str:
        return self._here.ml(f"jobs/{segment(self.name)}")

    def _body(self) -> dict[str, Any]:
        found: dict[str, Any] = self._here.client.call("GET", self._path)
        return found

    def _checked(self, state: str, error: str) -> Job:
        if state != JobState.SUCCEEDED:
            reason = f": {error}" if error else "."
            raise FailedPreconditionError(f"Job {self.name} is {state}{reason}")
        return self

    def __repr__(self) -> str:
        return f"<Job {self.name} of project {self._here.project}>"

    def _repr_html_(self) -> str | None:
        try:
            found = self._here.client.call("GET", f"{own_job_path(self._here, self.name)}/progress")
        except TrainshedError:
            return None  # the notebook shows the name then; a display must not fail where a value was asked for
        return display.job_panel(found, link=self.console_url)


def _new_name(module_name: str | None) -> str:
    """trainer_20261116_034100_3fa9: sorts by time, and two at once differ."""
    first = (module_name or "job").partition(".")[0]
    stem = first if first.isidentifier() and first[0].isalpha() and first.isascii() else "job"
    return f"{stem}_{datetime.now():%Y%m%d_%H%M%S}_{secrets.token_hex(2)}"


def _arguments(given: Sequence[object] | Mapping[str, object]) -> list[str]:
    """Words for the trainer. Of a mapping: `{"train_steps": 500}` is --train_steps 500."""
    if isinstance(given, str):
        raise InvalidArgumentError("args must be a list of words, or a mapping from option to value, and not one text.")
    if not isinstance(given, Mapping):
        return [str(word) for word in given]
    pairs = ((key if key.startswith("-") else f"--{key}", str(value)) for key, value in given.items())
    return [word for pair in pairs for word in pair]


def _check(training: Mapping[str, Any]) -> None:
    if not training.get("packageUris"):
        raise InvalidArgumentError(
            "A job needs a package. Give package_path, the folder of the trainer's package, or packages."
        )
    if not training.get("pythonModule"):
        raise InvalidArgumentError("A job needs a module to run. Give module_name, such as trainer.task.")


def _line(found: Mapping[str, Any]) -> str:
    """RUNNING  step 1,204 of 5,000 (24 %), loss 0.213"""
    told = ", ".join(facts(found["progress"])) if found["progress"] is not None else found.get("waiting", "")
    return f"{found['job']}  {found['state']}  {told}".rstrip()
