"""The stages of `trainshed demo` that need its server: data, runtime, training, deployment, prediction.

Each stage is idempotent: it checks what the server has, does what is missing, and follows what is under way.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trainshed.client import operations, submission
from trainshed.client.context import ClientContext, native_job_path
from trainshed.client.job_format import cores, evaluated, facts, size
from trainshed.client.job_reader import PROGRESS_INTERVAL_S, progress_updates
from trainshed.client.operations import create_once
from trainshed.client.transport import segment
from trainshed.domain.jobs.states import TERMINAL_STATES, JobState
from trainshed.errors import AlreadyExistsError, FailedPreconditionError, NotFoundError, TrainshedError

BUCKET = "trainshed-demo"
MODEL = "MNIST"
RUNTIME = "2.21"
DIGITS = (7, 2, 1, 0, 4, 1, 4, 9, 5, 9)  #: what the first ten test images show
RECORDS = ("train.tfrecords", "test.tfrecords")
CONFIG = "config_small.yaml"  #: a master, two workers and a parameter server
POLL_INTERVAL_S = 0.5
_JOB = re.compile(r"mnist_([1-9][0-9]*)")
_VERSION = re.compile(r"v([1-9][0-9]*)")
_LIVE_STATES = ("READY", "CREATING", "UPDATING")


class Report(Protocol):
    """Receives the progress of a stage: a sentence, a fraction from 0 to 1 if it is known, further lines."""

    def __call__(self, text: str, fraction: float | None = None, more: tuple[str, ...] = ()) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedJob:
    """A job that succeeded."""

    job: str
    accuracy: float
    reused: bool  #: whether it had ended before


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """The demo on one server. `sample` is the folder of the sample mnist_async, `command` calls the command line."""

    context: ClientContext
    sample: Path
    command: str
    steps: int

    def copy_data(self, write_records: Callable[[], Path], report: Report) -> bool:
        """Put MNIST into the bucket. Returns False if all of it is there.

        `write_records` writes the files and returns their folder.
        """
        self._ensure_bucket()
        stored = {item["name"] for item in self.context.storage.list(BUCKET, prefix="data/").objects}
        missing = [name for name in RECORDS if f"data/{name}" not in stored]
        if not missing:
            return False
        report("Writing the images as TFRecord files")
        folder = write_records()
        total = sum((folder / name).stat().st_size for name in missing)
        sent = 0

        def advance(count: int) -> None:
            nonlocal sent
            sent += count
            report(f"Copying to gs://{BUCKET}/data: {sent / 1e6:.0f} of {total / 1e6:.0f} MB", sent / total)

        for name in missing:
            with open(folder / name, "rb") as file:
                length = (folder / name).stat().st_size
                kind = "application/octet-stream"
                self.context.storage.upload(
                    file, (BUCKET, f"data/{name}"), content_type=kind, size=length, progress=advance
                )
        return True

    def _ensure_bucket(self) -> None:
        try:
            self.context.storage.bucket(BUCKET)
        except NotFoundError:
            self.context.storage.create_bucket(self.context.project, {"name": BUCKET})

    def install_runtime(self, report: Report) -> bool:
        """Build the runtime and follow the build. Returns False if it was built before."""
        path = "/trainshed/v1/runtimes"
        state = self.context.client.call("POST", f"{path}/{segment(RUNTIME)}:install", body={})
        if state["state"] == "READY":
            return False
        while state["state"] == "BUILDING":
            report(state["text"], state["fraction"])
            time.sleep(POLL_INTERVAL_S)
            rows = self.context.client.call("GET", path)["runtimes"]
            state = next(row for row in rows if row["name"] == RUNTIME)
        if state["state"] != "READY":
            raise TrainshedError(state["error"] or f"Runtime {RUNTIME} is {state['state']} after its build.")
        return True

    def train(self, report: Report) -> TrainedJob:
        """Follow the job until it succeeds. Submits one if none is under way or done. Raises if it fails."""
        job, state = self._existing_job() or (self._submit(report), "")
        last: dict[str, Any] = {}
        for last in progress_updates(self.context, job, PROGRESS_INTERVAL_S):
            report(*_report_args(job, last))
        if last["state"] != JobState.SUCCEEDED:
            raise FailedPreconditionError(self._failure(job, last))
        accuracy = ((last["progress"] or {}).get("evaluation") or {}).get("accuracy")
        if not isinstance(accuracy, float):
            raise FailedPreconditionError(
                f"Job {job} succeeded, but its log has no accuracy. Look at it with: {self.command} jobs logs {job}"
            )
        return TrainedJob(job=job, accuracy=accuracy, reused=state == JobState.SUCCEEDED)

    def _existing_job(self) -> tuple[str, str] | None:
        """Return the newest job with these steps that runs or succeeded, and its state; None if there is none."""
        for job in self._jobs():
            args = job["trainingInput"].get("args", [])
            alive = job["state"] not in TERMINAL_STATES or job["state"] == JobState.SUCCEEDED
            if alive and job["state"] != JobState.CANCELLING and _steps_of(args) == str(self.steps):
                return str(job["jobId"]), str(job["state"])
        return None

    def _jobs(self) -> Iterator[dict[str, Any]]:
        pages = self.context.client.pages(self.context.ml("jobs"), "jobs", query={"pageSize": 100})
        return (job for job in pages if _JOB.fullmatch(job["jobId"]) and "trainingInput" in job)

    def _submit(self, report: Report) -> str:
        from trainshed.packaging import upload_names

        report("Packing the trainer")
        job = f"mnist_{_next(_JOB, [job['jobId'] for job in self._jobs()])}"
        folder = f"gs://{BUCKET}/{job}"
        body = submission.read_config(self.sample / "config" / CONFIG) | {"jobId": job}
        with ExitStack() as stack:
            files, _ = submission.packages(stack, package_path=self.sample / "trainer", arguments=())
            names = upload_names(files, job_id=job, staging_bucket=f"gs://{BUCKET}", job_dir=None)
            submission.upload(self.context, names)
        body["trainingInput"] |= {
            "packageUris": list(names.values()),
            "pythonModule": "trainer.task",
            "runtimeVersion": RUNTIME,
            "region": submission.REGION,
            "jobDir": folder,
            "args": [
                *("--data_dir", f"gs://{BUCKET}/data", "--output_dir", folder),
                *("--train_steps", str(self.steps), "--eval_interval_secs", "5"),
            ],
        }
        submission.create_job(self.context, body)
        return job

    def _failure(self, job: str, last: dict[str, Any]) -> str:
        error = f": {last['error'].strip()}" if last["error"] else "."
        return f"Job {job} is {last['state']}{error}\nThe whole log: {self.command} jobs logs {job}"

    def deploy(self, job: str, report: Report) -> tuple[str, bool]:
        """Serve the job's newest export. Returns the version's name, and whether it was created now."""
        exports = self.context.client.call("GET", f"{native_job_path(self.context, job)}/exports")["exports"]
        if not exports:
            raise NotFoundError(f"Job {job} has no exported model any more.")
        self._ensure_model()
        versions = {_last(row["name"]): row for row in self._versions()}
        same = [
            name for name, row in versions.items() if row["deploymentUri"].rstrip("/") == exports[0]["uri"].rstrip("/")
        ]
        version = next((name for name in same if versions[name]["state"] in _LIVE_STATES), "")
        new = not version
        if new:
            version = f"v{_next(_VERSION, versions)}"
            self._create(version, exports[0]["uri"])
        self._await_ready(version, report)
        for row in self._versions():
            if _last(row["name"]) == version and not row.get("isDefault"):
                self.context.client.call("POST", f"{self._path(version)}:setDefault", body={})
        self._delete_others(version)
        return version, new

    def _ensure_model(self) -> None:
        try:
            body = {"name": MODEL, "regions": [submission.REGION]}
            self.context.client.call("POST", self.context.ml("models"), body=body)
        except AlreadyExistsError:
            return

    def _versions(self) -> Iterator[dict[str, Any]]:
        return self.context.client.pages(
            self.context.ml(f"models/{MODEL}/versions"), "versions", query={"pageSize": 100}
        )

    def _create(self, version: str, origin: str) -> None:
        body = {"name": version, "deploymentUri": origin, "runtimeVersion": RUNTIME}
        look_with = f"{self.command} versions describe {version} --model {MODEL}"
        create_once(self.context, self.context.ml(f"models/{MODEL}/versions"), body, check_command=look_with)

    def _await_ready(self, version: str, report: Report) -> None:
        while True:
            details = self.context.client.call("GET", f"/trainshed{self._path(version)}")
            row = details["version"]
            if row["state"] not in ("CREATING", "UPDATING"):
                break
            report(details.get("progress") or f"Creating version {version} of model {MODEL}")
            time.sleep(POLL_INTERVAL_S)
        if row["state"] != "READY":
            raise FailedPreconditionError(
                f"Version {version} of model {MODEL} is {row['state']}: {row.get('errorMessage', '').strip()}\n"
                f"The end of its log: {self.command} versions describe {version} --model {MODEL} --log"
            )

    def _delete_others(self, version: str) -> None:
        """Delete the other versions, whose hosts would stay in memory."""
        others = [row for row in self._versions() if _last(row["name"]) != version and row["state"] != "DELETING"]
        for row in others:
            operation = self.context.client.call("DELETE", self._path(_last(row["name"])))
            for update in operations.follow(self.context, operation):
                if "error" in update:
                    raise TrainshedError(str(update["error"].get("message", "The version can't be deleted.")))

    def _path(self, version: str) -> str:
        return self.context.ml(f"models/{MODEL}/versions/{segment(version)}")

    def predict(self, request: Path) -> list[int]:
        """Request predictions for the instances in a file, one a line. Returns the predicted digits."""
        instances = [json.loads(line) for line in request.read_text().splitlines()]
        response = self.context.client.call(
            "POST", self.context.ml(f"models/{MODEL}:predict"), body={"instances": instances}
        )
        if "predictions" not in response:
            raise TrainshedError(f"Model {MODEL} returned no predictions: {response.get('error', response)}")
        return [int(each["classes"]) for each in response["predictions"]]

    def console_link(self) -> str:
        """A URL that signs a browser in, once, within a minute."""
        body = {"project": self.context.project}
        return str(self.context.client.call("POST", "/trainshed/v1/session:link", body=body)["url"])


def _report_args(job: str, status: dict[str, Any]) -> tuple[str, float | None, tuple[str, ...]]:
    """Return a job's progress as the arguments of a report."""
    progress = status["progress"]
    if progress is None:
        starting = status["state"] == JobState.RUNNING
        text = (
            f"The replicas of job {job} start." if starting else f"Job {job} is {status['state']}. {status['waiting']}"
        )
        return text.strip(), None, _replicas(status)
    more = (*filter(None, (evaluated(progress),)), *_replicas(status))
    return ", ".join(facts(progress | {"fraction": None})), progress["fraction"], more


def _replicas(status: dict[str, Any]) -> tuple[str, ...]:
    """master-replica-0, worker-replica-0: CPU 180 %, 1.2 GiB"""
    running = [replica for replica in status["replicas"] if replica["state"] == "running"]
    if not running or status["state"] in TERMINAL_STATES:
        return ()
    measured = [replica for replica in running if replica["cpu"] is not None]
    use = f": CPU {cores(sum(each['cpu'] for each in measured))}" if measured else ""
    use += f", {size(sum(each['memoryBytes'] for each in measured))}" if measured else ""
    names = ", ".join(replica["name"].replace("-replica-", " ") for replica in running)
    return (f"{names}{use}",)


def _steps_of(args: list[str]) -> str:
    return args[args.index("--train_steps") + 1] if "--train_steps" in args else ""


def _next(pattern: re.Pattern[str], names: Any) -> int:
    return 1 + max((int(match[1]) for name in names if (match := pattern.fullmatch(name))), default=0)


def _last(name: str) -> str:
    return name.rpartition("/")[2]
