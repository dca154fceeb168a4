"""What a job is to do, training or batch prediction, read from a request and from a stored job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainshed.domain import json_fields as f
from trainshed.domain import names
from trainshed.domain.capacity.machine_types import STANDARD, MachineTypes
from trainshed.domain.jobs.batch_prediction import PREDICTION_INPUT, BatchPrediction, check_prediction
from trainshed.domain.jobs.training import TRAINING_INPUT, Training, check_training
from trainshed.errors import InvalidArgumentError

Workload = Training | BatchPrediction

#: fields that only the server writes; what a client sends in them is passed over, as Google does
_OUTPUT = (
    "createTime",
    "endTime",
    "errorMessage",
    "jobPosition",
    "predictionOutput",
    "startTime",
    "state",
    "trainingOutput",
)

_JOB = f.message(
    {
        "etag": f.string,
        "jobId": f.string,
        "labels": f.anything,
        "predictionInput": f.anything,
        "trainingInput": f.anything,
    }
    | dict.fromkeys(_OUTPUT, f.anything)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A Job as a client sent it, checked. The buckets, the model and the runtime that it names may still not exist."""

    job_id: str
    labels: Mapping[str, str]
    work: Workload


def read_job(body: Mapping[str, Any], machines: MachineTypes = STANDARD) -> JobRequest:
    """The Job of a create request. `InvalidArgumentError`, naming the field, if it can't be run here."""
    given = _JOB(body, "job")
    if "jobId" not in given:
        raise InvalidArgumentError("The job has no id. Give it one, such as mnist_1.", field="job.job_id")
    job_id = names.job_id(given["jobId"])
    labels = names.labels(given.get("labels", {}), field="job.labels")
    return JobRequest(job_id=job_id, labels=labels, work=_read_work(given, machines))


def _read_work(given: Mapping[str, Any], machines: MachineTypes) -> Workload:
    if "trainingInput" in given and "predictionInput" in given:
        raise InvalidArgumentError(
            "A job trains or predicts. Send training_input or prediction_input.", field="job.training_input"
        )
    if "predictionInput" in given:
        return check_prediction(PREDICTION_INPUT(given["predictionInput"], "job.prediction_input"))
    if "trainingInput" in given:
        return check_training(TRAINING_INPUT(given["trainingInput"], "job.training_input"), machines)
    raise InvalidArgumentError(
        "The job says nothing about what to run. Send a training_input or a prediction_input.",
        field="job.training_input",
    )


def read_job_patch(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Job of a patch request: known names only. What its mask doesn't name is not looked into."""
    given: Mapping[str, Any] = _JOB(body, "job")
    return given


def workload_of(body: Mapping[str, Any]) -> Workload:
    """What a stored job is to do, from its `body`."""
    if BatchPrediction.key in body:
        return BatchPrediction.parse(body[BatchPrediction.key])
    return Training.parse(body[Training.key])
