"""Exports found in real buckets, and sample requests from details of versions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainshed.buckets import model_folders as model_folders
from trainshed.buckets.file_backend import FileBackend
from trainshed.config import Home
from trainshed.domain.jobs.batch_prediction import BatchPrediction
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.training import Training
from trainshed.domain.models.sample_request import MAX_SAMPLE_BYTES, sample_request
from trainshed.domain.models.version_details import ServedModel
from trainshed.errors import NotFoundError
from trainshed.services.jobs.exports import Exports
from trainshed.store.jobs import JobStore
from trainshed.testing.workloads.job_logs import open_jobs

OWNERS = {"mine": "shed", "theirs": "other"}


def owner(bucket: str) -> str:
    if bucket not in OWNERS:
        raise NotFoundError(f"The bucket {bucket} does not exist.")
    return OWNERS[bucket]


class Shed:
    """Jobs and buckets in a folder."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.jobs: JobStore = open_jobs(self.home)
        self.exports = Exports(self.jobs, FileBackend(self.home.buckets, self.home.uploads), owner=owner)

    def add(self, job_id: str, *, args: Sequence[str] = (), job_dir: str = "", runtime: str = "2.21") -> Job:
        training = {"pythonModule": "trainer.task", "args": list(args)} | ({"jobDir": job_dir} if job_dir else {})
        job = Job(project="shed", id=job_id, workload=Training.parse(training), runtime=runtime, created_us=1)
        return self.jobs.add(job, [])

    def write(self, name: str, *, time_s: int = 1_700_000_000) -> None:
        path = self.home.buckets / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (time_s, time_s))

    def found(self, job_id: str) -> list[str]:
        return [each["uri"] for each in self.exports.of("shed", job_id)["exports"]]


@pytest.fixture
def shed(tmp_path: Path) -> Shed:
    return Shed(tmp_path)


def test_a_saved_model_below_the_job_dir_is_an_export(shed: Shed) -> None:
    shed.add("j", job_dir="gs://mine/j")
    shed.write("mine/j/export/Servo/1605475055/saved_model.pb")
    shed.write("mine/j/export/Servo/1605475055/variables/variables.index")
    shed.write("mine/j/model.ckpt-100.index")
    shed.write("mine/elsewhere/saved_model.pb")
    assert shed.exports.of("shed", "j") == {
        "exports": [
            {
                "uri": "gs://mine/j/export/Servo/1605475055/",
                "time": "2023-11-14T22:13:20.000000Z",
                "framework": "TENSORFLOW",
                "runtime": "2.21",
            }
        ]
    }


def test_the_newest_comes_first_and_every_kind_is_known(shed: Shed) -> None:
    shed.add("j", job_dir="gs://mine/j/", runtime="python")
    for number, name in enumerate(["a/model.joblib", "b/model.bst", "c/model.keras", "d/model.pkl"]):
        shed.write(f"mine/j/{name}", time_s=1_700_000_000 + number)
    found = shed.exports.of("shed", "j")["exports"]
    assert [(each["uri"][-2], each["framework"], each["runtime"]) for each in found] == [
        ("d", "", ""),
        ("c", "TENSORFLOW", ""),
        ("b", "XGBOOST", ""),
        ("a", "", ""),
    ]


def test_the_job_dir_itself_may_be_the_export(shed: Shed) -> None:
    shed.add("j", job_dir="gs://mine")
    shed.write("mine/model.joblib")
    assert shed.found("j") == ["gs://mine/"]


def test_where_arguments_say_that_it_writes_is_looked_at_too(shed: Shed) -> None:
    shed.add("j", args=["--output_dir", "gs://mine/out", "--model-dir=gs://mine/out/m", "--data", "gs://mine/in"])
    shed.write("mine/out/m/saved_model.pb")
    shed.write("mine/in/saved_model.pb")
    assert shed.found("j") == ["gs://mine/out/m/"]


def test_what_is_no_export_is_none(shed: Shed) -> None:
    shed.add("j", job_dir="gs://mine/j")
    shed.write("mine/j/temp-1605475055/saved_model.pb")
    shed.write("mine/j/.hidden/saved_model.pb")
    shed.write("mine/j/checkpoints/ckpt.weights.h5")
    shed.write("mine/j/two/model.joblib")
    shed.write("mine/j/two/saved_model.pb")
    assert shed.found("j") == []


def test_buckets_of_others_and_links_are_not_looked_into(shed: Shed) -> None:
    shed.write("theirs/x/saved_model.pb")
    shed.add("foreign", job_dir="gs://theirs/x")
    shed.add("nowhere", job_dir="gs://absent/x")
    shed.add("linked", job_dir="gs://mine/l")
    (shed.home.buckets / "mine/l").mkdir(parents=True)
    (shed.home.buckets / "mine/l/out").symlink_to(shed.home.buckets / "theirs/x")
    (shed.home.buckets / "mine/l/in").mkdir()
    (shed.home.buckets / "mine/l/in/saved_model.pb").symlink_to(shed.home.buckets / "theirs/x/saved_model.pb")
    assert [shed.found(job) for job in ("foreign", "nowhere", "linked")] == [[], [], []]


def test_a_look_has_its_limits(shed: Shed, monkeypatch: pytest.MonkeyPatch) -> None:
    shed.add("j", job_dir="gs://mine/j")
    shed.write("mine/j/" + "deep/" * 8 + "saved_model.pb")
    shed.write("mine/j/" + "deeper/" * 9 + "saved_model.pb")
    assert shed.found("j") == ["gs://mine/j/" + "deep/" * 8]
    monkeypatch.setattr(model_folders, "MAX_NAMES", 5)
    assert shed.found("j") == []


def test_a_job_that_is_not_there(shed: Shed) -> None:
    with pytest.raises(NotFoundError):
        shed.exports.of("shed", "j")
    predicts = {"inputPaths": ["gs://mine/in"], "outputPath": "gs://mine/out", "dataFormat": "JSON"}
    shed.jobs.add(replace(shed.add("k"), id="p", workload=BatchPrediction.parse(predicts)), [])
    assert shed.found("p") == []


SIGNATURE: dict[str, Any] = {
    "inputs": {
        "image": {"dtype": "float32", "shape": [-1, 2, 2]},
        "label": {"dtype": "string", "shape": [-1]},
        "raw_bytes": {"dtype": "string", "shape": [-1]},
        "train": {"dtype": "bool", "shape": [-1, 1]},
        "words": {"dtype": "int64", "shape": [-1, -1]},
    },
    "outputs": {},
}


def served(**fields: Any) -> ServedModel:
    return ServedModel(loader="keras", **fields)


def test_the_stored_sample_is_what_one_begins_with() -> None:
    stored = served(sample={"instances": [[1], [2]]}, signatures={"serving_default": SIGNATURE})
    assert sample_request(stored) == {
        "instances": [[1], [2]],
        "signature": "serving_default",
        "inputs": SIGNATURE["inputs"],
        "source": "sample",
        "cut": False,
    }
    named = served(sample={"signature_name": "other", "instances": [1]}, signatures={"other": SIGNATURE, "a": {}})
    assert sample_request(named)["signature"] == "other"


def test_a_large_sample_is_cut_to_one_instance() -> None:
    instances = [["x" * MAX_SAMPLE_BYTES], ["y"]]
    found = sample_request(served(sample={"instances": instances}))
    assert (found["instances"], found["cut"]) == (instances[:1], True)
    found = sample_request(served(sample={"instances": instances[:1]}))
    assert (found["instances"], found["cut"]) == (instances[:1], False)


def test_without_a_sample_the_signature_gives_the_shape() -> None:
    found = sample_request(served(signatures={"serving_default": SIGNATURE}))
    assert found["source"] == "signature"
    assert found["instances"] == [
        {"image": [[0.0, 0.0], [0.0, 0.0]], "label": "", "raw_bytes": {"b64": ""}, "train": [False], "words": [0]}
    ]


def test_where_nothing_is_known_there_are_no_instances() -> None:
    nothing = {"instances": [], "signature": "", "inputs": {}, "source": "", "cut": False}
    assert sample_request(None) == sample_request(served()) == nothing
    huge = {"inputs": {"image": {"dtype": "float32", "shape": [-1, 224, 224, 3]}}, "outputs": {}}
    assert sample_request(served(signatures={"s": huge}))["instances"] == []
    any_rank = {"inputs": {"x": {"dtype": "float32", "shape": None}}, "outputs": {}}
    assert sample_request(served(signatures={"s": any_rank}))["instances"] == [{"x": 0.0}]
