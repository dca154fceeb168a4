"""The workload of a job, training or batch prediction: read from a request or from a stored job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainshed.domain import json_fields as f
from trainshed.domain import names
from trainshed.domain.capacity.machine_types import STANDARD, MachineTypes
from trainshed.domain.jobs.batch_prediction import PREDICTION_INPUT, BatchPrediction, check_prediction
from trainshed.domain.jobs.training import TRAINING_INPUT, Training, check_training
from trainshed.domain.tuning.hyperparameters import check_keep_trials
from trainshed.errors import InvalidArgumentError

Workload = Training | BatchPrediction

#: written by the server only; values from clients are ignored, as Google does
_OUTPUT_FIELDS = (
    "createTime",
    "endTime",
    "errorMessage",
    "jobPosition",
    "predictionOutput",
    "startTime",
    "state",
    "trainingOutput",
)

JOB = f.message(
    {
        "etag": f.string,
        "jobId": f.string,
        "labels": f.anything,
        "predictionInput": f.anything,
        "trainingInput": f.anything,
    }
    | dict.fromkeys(_OUTPUT_FIELDS, f.anything)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A checked Job from a client. The buckets, the model and the runtime that it names may not exist."""

    job_id: str
    labels: Mapping[str, str]
    workload: Workload


def read_job(body: Mapping[str, Any], machines: MachineTypes = STANDARD) -> JobRequest:
    """Read the Job of a create request.

    Raises `InvalidArgumentError`, which names the field, if the job cannot run here.
    """
    fields = JOB(body, "job")
    if "jobId" not in fields:
        raise InvalidArgumentError("The job has no id. Give it one, such as mnist_1.", field="job.job_id")
    job_id = names.job_id(fields["jobId"])
    labels = names.labels(fields.get("labels", {}), field="job.labels")
    workload = _read_workload(fields, machines)
    check_labels(labels, workload)
    return JobRequest(job_id=job_id, labels=labels, workload=workload)


def check_labels(labels: Mapping[str, str], workload: Workload) -> None:
    """Raise `InvalidArgumentError` if a label that the server reads is wrong for a workload."""
    check_keep_trials(labels, workload.tuning if isinstance(workload, Training) else None, workload.job_dir)


def _read_workload(fields: Mapping[str, Any], machines: MachineTypes) -> Workload:
    if "trainingInput" in fields and "predictionInput" in fields:
        raise InvalidArgumentError(
            "A job trains or predicts. Send training_input or prediction_input.", field="job.training_input"
        )
    if "predictionInput" in fields:
        return check_prediction(PREDICTION_INPUT(fields["predictionInput"], "job.prediction_input"))
    if "trainingInput" in fields:
        return check_training(TRAINING_INPUT(fields["trainingInput"], "job.training_input"), machines)
    raise InvalidArgumentError(
        "The job says nothing about what to run. Send a training_input or a prediction_input.",
        field="job.training_input",
    )


def read_job_patch(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read the Job of a patch request. Unknown names are rejected; fields outside the mask are not checked."""
    fields: Mapping[str, Any] = JOB(body, "job")
    return fields


def parse_workload(body: Mapping[str, Any]) -> Workload:
    """Parse a checked workload in its stored form, which `workload_body` returns."""
    if BatchPrediction.key in body:
        return BatchPrediction.parse(body[BatchPrediction.key])
    return Training.parse(body[Training.key])


def workload_body(workload: Workload) -> dict[str, Any]:
    """The workload as the API's Job has it, unchanged since the request: its one field."""
    return {workload.key: workload.input}
