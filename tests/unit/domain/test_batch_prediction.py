"""What may be asked of a batch prediction, and what the job says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from trainshed.domain.jobs.batch_prediction import BatchPrediction, DataFormat
from trainshed.domain.jobs.gang import gang
from trainshed.domain.jobs.workload import parse_workload, read_job, workload_body
from trainshed.errors import InvalidArgumentError

INPUT = {
    "dataFormat": "JSON",
    "inputPaths": ["gs://mine/rows/*"],
    "outputPath": "gs://mine/out",
    "region": "us-central1",
    "modelName": "projects/shed/models/digits",
}


def job(**changes: Any) -> dict[str, Any]:
    given = {name: value for name, value in {**INPUT, **changes}.items() if value is not None}
    return {"jobId": "p1", "predictionInput": given}


def read(**changes: Any) -> BatchPrediction:
    work = read_job(job(**changes)).workload
    assert isinstance(work, BatchPrediction)
    return work


def test_a_model_and_its_default_version() -> None:
    prediction = read(batchSize="10", signatureName="other")
    assert (prediction.project, prediction.model, prediction.version) == ("shed", "digits", "")
    assert prediction.data_format is DataFormat.JSON
    assert (prediction.batch_size, prediction.signature) == (10, "other")
    assert parse_workload(workload_body(prediction)) == prediction
    assert [replica.name for replica in gang(prediction)] == ["master-replica-0"]


def test_a_version() -> None:
    prediction = read(modelName=None, versionName="projects/shed/models/digits/versions/v2")
    assert (prediction.model, prediction.version, prediction.batch_size) == ("digits", "v2", 64)


def test_a_folder() -> None:
    prediction = read(modelName=None, uri="gs://mine/model/")
    assert (prediction.uri, prediction.model) == ("gs://mine/model/", "")


def test_what_has_no_effect_is_said() -> None:
    assert read(maxWorkerCount="1").notes == ()
    assert read(modelName=None, uri="gs://mine/model/", runtimeVersion="2.21").notes == ()
    workers, runtime = read(maxWorkerCount="4", runtimeVersion="2.21").notes
    assert "max_worker_count" in workers
    assert "runtime_version" in runtime


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"modelName": None}, "model_name"),
        ({"uri": "gs://mine/model"}, "model_name"),
        ({"modelName": "digits"}, "model_name"),
        ({"modelName": None, "versionName": "projects/shed/models/digits"}, "version_name"),
        ({"dataFormat": None}, "data_format"),
        ({"dataFormat": "DATA_FORMAT_UNSPECIFIED"}, "data_format"),
        ({"dataFormat": "CSV"}, "data_format"),
        ({"outputDataFormat": "CSV"}, "output_data_format"),
        ({"inputPaths": []}, "input_paths"),
        ({"inputPaths": ["gs://mine/x"] * 1001}, "input_paths"),
        ({"outputPath": ""}, "output_path"),
        ({"batchSize": "-1"}, "batch_size"),
        ({"batchSize": "10001"}, "batch_size"),
        ({"maxWorkerCount": "-1"}, "max_worker_count"),
        ({"dataFormat": "YAML"}, "job.prediction_input.data_format"),
        ({"unknown": 1}, "job.prediction_input"),
    ],
)
def test_what_makes_no_sense_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read(**changes)
    assert caught.value.field == field


def test_a_job_does_one_thing() -> None:
    with pytest.raises(InvalidArgumentError, match="trains or predicts"):
        read_job(job() | {"trainingInput": {}})
