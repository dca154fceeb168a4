"""What a training input may ask for, and how it is told what it may not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.domain.jobs.accelerators import read_accelerators
from trainshed.domain.jobs.containers import TrainingContainer
from trainshed.domain.jobs.training import MAX_INPUT_BYTES, ScaleTier, Training
from trainshed.domain.jobs.workload import read_job
from trainshed.errors import InvalidArgumentError, TrainshedError

INPUT: dict[str, Any] = {
    "scaleTier": "BASIC",
    "packageUris": ["gs://bucket/trainer.tar.gz"],
    "pythonModule": "trainer.task",
    "region": "us-central1",
}


def job(**changes: Any) -> dict[str, Any]:
    """A good job with some fields of its input changed; None takes one away."""
    merged = {name: value for name, value in {**INPUT, **changes}.items() if value is not None}
    return {"jobId": "j1", "trainingInput": merged}


def refusal(body: dict[str, Any]) -> InvalidArgumentError:
    with pytest.raises(InvalidArgumentError) as caught:
        read_job(body)
    return caught.value


def test_everything_that_is_offered_at_once() -> None:
    request = read_job(
        job(
            scaleTier="CUSTOM",
            masterType="n1-standard-4",
            args=["--max_steps", "10"],
            jobDir="gs://bucket/j1",
            runtimeVersion="2.1",
            pythonVersion="3.7",
            scheduling={"maxRunningTime": "3600.5s", "priority": "7"},
            useChiefInTfConfig=True,
            enableWebAccess=False,
            workerCount="0",
            parameterServerCount=0,
        )
        | {"labels": {"owner": "me"}}
    )
    assert (request.job_id, request.labels) == ("j1", {"owner": "me"})
    training = request.workload
    assert isinstance(training, Training)
    assert training.scale_tier is ScaleTier.CUSTOM
    assert training.args == ("--max_steps", "10")
    assert (training.max_running_s, training.priority, training.use_chief) == (3600.5, 7, True)
    assert (training.runtime_version, training.python_version, training.job_dir) == ("2.1", "3.7", "gs://bucket/j1")
    assert training.input["workerCount"] == training.input["parameterServerCount"] == "0"
    assert Training.parse(training.input) == training


def test_what_is_not_said_has_googles_defaults() -> None:
    training = read_job(job(scaleTier=None, region=None)).workload
    assert isinstance(training, Training)
    assert training.scale_tier is ScaleTier.BASIC
    assert (training.max_running_s, training.priority, training.use_chief) == (604_800, 0, False)


def test_the_case_of_enums_means_nothing() -> None:
    lower = read_job(job(scaleTier="custom", masterType="n1-standard-4", masterConfig=gpus("1", "nvidia_tesla_t4")))
    assert lower.workload.input["scaleTier"] == "CUSTOM"
    assert lower.workload.input["masterConfig"]["acceleratorConfig"]["type"] == "NVIDIA_TESLA_T4"


def test_a_count_of_no_accelerators_requests_none() -> None:
    for none in (gpus("0", "ACCELERATOR_TYPE_UNSPECIFIED"), gpus(0, "accelerator_type_unspecified")):
        training = read_job(job(masterConfig=none, workerConfig={"acceleratorConfig": {}})).workload
        assert isinstance(training, Training)
        assert read_accelerators(training.input) == {}


def gpus(count: object, kind: str) -> dict[str, object]:
    return {"acceleratorConfig": {"count": count, "type": kind}}


def test_snake_case_means_the_same_and_null_means_nothing() -> None:
    body = {
        "job_id": "j1",
        "training_input": {
            "scale_tier": "BASIC",
            "package_uris": ["gs://bucket/trainer.tar.gz"],
            "python_module": "trainer.task",
            "region": "us-central1",
            "hyperparameters": None,
        },
    }
    assert read_job(body) == read_job(job())


def test_what_only_the_server_writes_is_passed_over() -> None:
    sent = {"state": "SUCCEEDED", "createTime": 5, "errorMessage": [], "trainingOutput": {"x": 1}, "jobPosition": "1"}
    assert read_job(job() | sent) == read_job(job())


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (
            job(foo=1),
            "job.training_input",
            "Invalid JSON payload received. Unknown name \"foo\" at 'job.training_input': Cannot find field.",
        ),
        (
            job() | {"foo": 1},
            "job",
            "Invalid JSON payload received. Unknown name \"foo\" at 'job': Cannot find field.",
        ),
        (
            job(scheduling={"x": True}),
            "job.training_input.scheduling",
            "Invalid JSON payload received. Unknown name \"x\" at 'job.training_input.scheduling': Cannot find field.",
        ),
    ],
)
def test_an_unknown_name_is_named_in_googles_words(body: dict[str, Any], field: str, message: str) -> None:
    error = refusal(body)
    assert (error.field, str(error)) == (field, message)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"args": "--x"}, "args"),
        ({"args": [1]}, "args[0]"),
        ({"region": 5}, "region"),
        ({"enableWebAccess": "false"}, "enable_web_access"),
        ({"workerCount": "two"}, "worker_count"),
        ({"workerCount": 1.5}, "worker_count"),
        ({"workerCount": 2**63}, "worker_count"),
        ({"workerCount": True}, "worker_count"),
        ({"scaleTier": "HUGE"}, "scale_tier"),
        ({"scheduling": []}, "scheduling"),
        ({"scheduling": {"maxRunningTime": 3600}}, "scheduling.max_running_time"),
        ({"scheduling": {"maxRunningTime": "1h"}}, "scheduling.max_running_time"),
        ({"scheduling": {"maxRunningTime": "-1s"}}, "scheduling.max_running_time"),
        ({"masterConfig": {"imageUri": 1}}, "master_config.image_uri"),
    ],
)
def test_a_wrong_type_is_named(changes: dict[str, Any], field: str) -> None:
    error = refusal(job(**changes))
    assert error.field == f"job.training_input.{field}"
    assert str(error).startswith(f"Invalid value at '{error.field}' (")


def test_a_field_given_in_both_spellings_is_refused() -> None:
    assert "given twice" in str(refusal(job() | {"job_id": "j2"}))


IMAGE = {"pythonModule": None, "packageUris": None, "runtimeVersion": None, "pythonVersion": None}


def contained(**changes: Any) -> Mapping[str, TrainingContainer]:
    work = read_job(job(**IMAGE, **changes)).workload
    assert isinstance(work, Training)
    return work.containers


def test_every_role_runs_the_masters_image_unless_it_has_its_own() -> None:
    found = contained(masterConfig={"imageUri": "a:1"}, workerConfig={"imageUri": "b@sha256:0123"}, args=["--x"])
    assert {role: each.image for role, each in found.items()} == {
        "master": "a:1",
        "worker": "b@sha256:0123",
        "ps": "a:1",
        "evaluator": "a:1",
    }
    assert {each.args for each in found.values()} == {("--x",)}
    assert {each.command for each in found.values()} == {()}


def test_a_command_and_its_arguments_are_of_one_role() -> None:
    command = {"containerCommand": ["sh", "-c"], "containerArgs": ["true"]}
    found = contained(masterConfig={"imageUri": "a"} | command, parameterServerConfig={"containerCommand": ["serve"]})
    assert (found["master"].command, found["master"].args) == (("sh", "-c"), ("true",))
    assert (found["ps"].command, found["ps"].args) == (("serve",), ())
    assert (found["worker"].command, found["worker"].args) == ((), ())


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        (
            {"masterConfig": {"imageUri": "a", "containerArgs": ["x"]}, "args": ["y"]},
            "container_args",
            "one or the other",
        ),
        ({"masterConfig": {"imageUri": "a", "containerCommand": ["x\0"]}}, "container_command", "NUL"),
        ({"masterConfig": {"imageUri": "a b"}}, "image_uri", "not the name of an image"),
        ({"masterConfig": {"imageUri": "a"}, "runtimeVersion": "2.21"}, "runtime_version", "its own environment"),
        ({"masterConfig": {"imageUri": "a"}, "pythonVersion": "3.7"}, "python_version", "its own Python"),
        ({"masterConfig": {"imageUri": "a"}, "region": "Mars!"}, "region", "us-central1"),
    ],
)
def test_what_does_not_go_with_an_image_is_refused(changes: dict[str, Any], field: str, words: str) -> None:
    error = refusal(job(**{**IMAGE, **changes}))
    assert error.field.rpartition(".")[2] == field
    assert words in str(error)


@pytest.mark.parametrize(
    ("machine", "asked", "field", "words"),
    [
        ("n1-standard-4", {"count": "1", "type": "TPU_V3"}, ".type", "no TPUs"),
        ("n1-standard-4", {"count": "1", "type": "VOODOO"}, ".type", "NVIDIA_TESLA_T4"),
        ("n1-standard-4", {"count": "1"}, ".type", "NVIDIA_TESLA_T4"),
        ("n1-standard-4", {"count": "0", "type": "NVIDIA_TESLA_T4"}, ".count", "1 to 64"),
        ("n1-standard-4", {"count": "65", "type": "NVIDIA_TESLA_T4"}, ".count", "1 to 64"),
        ("n1-standard-4", {"type": "NVIDIA_TESLA_T4"}, ".count", "1 to 64"),
        ("standard_gpu", {"count": "1", "type": "NVIDIA_TESLA_T4"}, "", "has GPUs of its own"),
        ("", {"count": "1", "type": "NVIDIA_TESLA_T4"}, "", "scale_tier CUSTOM"),
    ],
)
def test_accelerators_that_make_no_sense_are_refused(
    machine: str, asked: dict[str, str], field: str, words: str
) -> None:
    gang = {"scaleTier": "CUSTOM", "masterType": machine} if machine else {}
    error = refusal(job(**gang, masterConfig={"acceleratorConfig": asked}))
    assert error.field == f"master_config.accelerator_config{field}"
    assert words in str(error)


@pytest.mark.parametrize(
    ("gang", "field"),
    [
        ({"scaleTier": "BASIC_GPU"}, "scale_tier"),
        ({"scaleTier": "CUSTOM", "masterType": "standard_gpu"}, "master_type"),
        ({"scaleTier": "CUSTOM", "masterType": "a2-highgpu-1g"}, "master_type"),
    ],
)
def test_images_have_no_gpus(gang: dict[str, str], field: str) -> None:
    error = refusal(job(**{**IMAGE, "masterConfig": {"imageUri": "a"}, **gang}))
    assert (error.field, "Images run without GPUs" in str(error)) == (field, True)


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"scaleTier": "BASIC_TPU"}, "scale_tier", "no TPUs"),
        ({"scaleTier": "CUSTOM"}, "master_type", "needs a machine type"),
        ({"scaleTier": "CUSTOM", "masterType": "cloud_tpu"}, "master_type", "no TPUs"),
        ({"scaleTier": "CUSTOM", "masterType": "a2-highgpu-3g"}, "master_type", "n1-standard-4"),
        ({"scaleTier": "CUSTOM", "masterType": "mainframe"}, "master_type", "n1-standard-4"),
        ({"masterType": "standard"}, "master_type", "CUSTOM"),
        ({"scaleTier": "CUSTOM", "masterType": "standard", "workerCount": "2"}, "worker_type", "machine type"),
        ({"scaleTier": "CUSTOM", "masterType": "standard", "workerType": "standard"}, "worker_count", "no number"),
        (
            {"scaleTier": "CUSTOM", "masterType": "standard", "workerCount": "1", "workerType": "n1-standard-4"},
            "master_type",
            "one family",
        ),
        (
            {"scaleTier": "CUSTOM", "masterType": "standard", "workerCount": "64", "workerType": "standard"},
            "worker_count",
            "65 replicas",
        ),
        ({"scaleTier": "STANDARD_1", "workerCount": "2"}, "worker_count", "CUSTOM"),
        ({"scaleTier": "CUSTOM", "masterType": "standard", "workerCount": "-2"}, "worker_count", "negative"),
        ({"workerType": "standard"}, "worker_type", "CUSTOM"),
        ({"parameterServerCount": 1}, "parameter_server_count", "CUSTOM"),
        ({"evaluatorCount": 1}, "evaluator_count", "CUSTOM"),
        ({"hyperparameters": {"goal": "MAXIMIZE"}}, "hyperparameters.params", "needs a parameter"),
        ({"serviceAccount": "me@x"}, "service_account", "service accounts"),
        ({"encryptionConfig": {"kmsKeyName": "k"}}, "encryption_config", "Leave this field out"),
        ({"network": "projects/1/global/networks/n"}, "network", "network"),
        ({"enableWebAccess": True}, "enable_web_access", "Interactive shells"),
        ({"masterConfig": {"imageUri": "x"}}, "python_module", "the program that runs along"),
        ({"masterConfig": {"imageUri": "x"}, "pythonModule": None}, "package_uris", "its own packages"),
        ({"masterConfig": {"imageUri": "-v/:/host"}}, "master_config.image_uri", "not the name of an image"),
        ({"workerConfig": {"imageUri": "x"}}, "worker_config.image_uri", "the master has none"),
        ({"masterConfig": {"tpuTfVersion": "2.1"}}, "master_config.tpu_tf_version", "no TPUs"),
        ({"workerConfig": {"containerArgs": ["x"]}}, "worker_config.container_args", "goes with an image"),
        ({"scheduling": {"maxWaitTime": "1800s"}}, "scheduling.max_wait_time", "on this server version"),
        ({"scheduling": {"maxRunningTime": "0s"}}, "scheduling.max_running_time", "more than 0s"),
        ({"scheduling": {"priority": 1001}}, "scheduling.priority", "0 to 1000"),
        ({"scheduling": {"priority": -1}}, "scheduling.priority", "0 to 1000"),
        ({"pythonModule": None}, "python_module", "missing"),
        ({"pythonModule": "trainer/task.py"}, "python_module", "dotted name"),
        ({"pythonModule": "-c"}, "python_module", "dotted name"),
        ({"packageUris": None}, "package_uris", "no package"),
        ({"packageUris": ["gs://b/x"] * 101}, "package_uris", "101"),
        ({"region": "Mars!"}, "region", "us-central1"),
        ({"args": ["a\0b"]}, "args", "NUL"),
        ({"args": ["x" * MAX_INPUT_BYTES]}, "training_input", "bytes"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(changes: dict[str, Any], field: str, words: str) -> None:
    error = refusal(job(**changes))
    assert error.field == field
    assert words in str(error)


def test_a_job_needs_an_id_and_something_to_run() -> None:
    assert refusal({"trainingInput": INPUT}).field == "job.job_id"
    assert refusal({"jobId": "1", "trainingInput": INPUT}).field == "job.job_id"
    assert refusal({"jobId": "j1"}).field == "job.training_input"
    assert refusal(job() | {"labels": {"Owner": "x"}}).field == "job.labels"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*INPUT, "args", "scheduling", "workerCount", "masterConfig", "jobDir"]), JSON))
def test_no_json_at_all_makes_it_fail_in_another_way(changes: dict[str, Any]) -> None:
    try:
        read_job(job(**changes))
    except TrainshedError as exc:
        assert str(exc)
