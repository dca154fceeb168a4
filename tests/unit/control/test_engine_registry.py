"""Which engine a job gets: by its label, by default, and by what it is to do."""

from __future__ import annotations

from typing import Any

import pytest

from trainshed.control.jobs.engines import EngineRegistry, RegisteredEngine
from trainshed.domain.capacity.machine_types import MachineType, MachineTypes
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.workload import Workload, parse_workload
from trainshed.domain.models.version import HOSTED_CONTAINER, HOSTED_VERSION
from trainshed.engines.base import AttemptSpec
from trainshed.errors import InvalidArgumentError
from trainshed.testing.contracts.engines import FakeEngine

TRAINING = parse_workload({"trainingInput": {"pythonModule": "trainer.task"}})
IN_CONTAINERS = parse_workload({"trainingInput": {"masterConfig": {"imageUri": "trainer:1"}}})
PREDICTION = parse_workload(
    {"predictionInput": {"uri": "gs://b/m", "inputPaths": ["gs://b/i"], "outputPath": "gs://b/o", "dataFormat": "JSON"}}
)


def prepare(job: Job) -> AttemptSpec:
    raise NotImplementedError(job.id)


def site(*takes: str, lacking: str = "", gpus: bool = False) -> RegisteredEngine:
    return RegisteredEngine(
        engine=FakeEngine(), prepare=prepare, supports=frozenset(takes), unavailable_reason=lacking, gpus=gpus
    )


SITES = EngineRegistry(
    {
        "local": site(
            *("training job", "training job with a container image", "batch prediction"),
            *("version", "version in a container"),
        ),
        "far": site("training job", "version"),
        "shut": site("training job", lacking="There is no way to shut. Open it."),
    },
    default="far",
)


@pytest.mark.parametrize(
    ("labels", "work", "engine"),
    [
        ({}, TRAINING, "far"),
        ({}, PREDICTION, "local"),
        ({}, IN_CONTAINERS, "local"),
        ({"team": "vision"}, TRAINING, "far"),
        ({"trainshed-engine": "local"}, TRAINING, "local"),
        ({"trainshed-engine": "local"}, PREDICTION, "local"),
    ],
)
def test_a_job_gets_an_engine(labels: dict[str, str], work: Workload, engine: str) -> None:
    assert SITES.choose(labels, work) == engine


@pytest.mark.parametrize(
    ("named", "work", "words"),
    [
        ("moon", TRAINING, "There is no engine 'moon'. The engines are: local, far, shut."),
        ("far", PREDICTION, "A batch prediction does not run on engine far. Those that can do it: local."),
        ("shut", TRAINING, "There is no way to shut. Open it."),
    ],
)
def test_an_engine_that_cannot_take_it_is_refused(named: str, work: Workload, words: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        SITES.choose({"trainshed-engine": named}, work)
    assert (str(caught.value), caught.value.field) == (words, "job.labels.trainshed-engine")


def test_a_stored_job_has_the_site_of_its_engine() -> None:
    job = Job(project="p-one", id="j", workload=TRAINING, engine="far", created_us=1)
    assert SITES.of(job) is SITES.table["far"]


@pytest.mark.parametrize(
    ("labels", "what", "engine"),
    [
        ({}, HOSTED_VERSION, "far"),
        ({}, HOSTED_CONTAINER, "local"),
        ({"trainshed-engine": "local"}, HOSTED_VERSION, "local"),
        ({"trainshed-engine": "far"}, HOSTED_VERSION, "far"),
    ],
)
def test_a_version_gets_an_engine(labels: dict[str, str], what: str, engine: str) -> None:
    assert SITES.choose_for_hosts(labels, what) == engine


@pytest.mark.parametrize(
    ("named", "what", "words"),
    [
        ("moon", HOSTED_VERSION, "There is no engine 'moon'. The engines are: local, far, shut."),
        ("far", HOSTED_CONTAINER, "A version in a container does not run on engine far. Those that can do it: local."),
        ("shut", HOSTED_VERSION, "There is no way to shut. Open it."),
    ],
)
def test_an_engine_that_cannot_host_it_is_refused(named: str, what: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        SITES.choose_for_hosts({"trainshed-engine": named}, what)
    assert (str(caught.value), caught.value.field) == (words, "version.labels.trainshed-engine")


T4 = {"masterConfig": {"acceleratorConfig": {"count": "2", "type": "NVIDIA_TESLA_T4"}}}
ASKING = [
    ({"scaleTier": "BASIC_GPU"}, "scale_tier", "BASIC_GPU"),
    ({"scaleTier": "CUSTOM", "masterType": "standard_p100"}, "master_type", "standard_p100"),
    ({"scaleTier": "CUSTOM", "masterType": "mine"}, "master_type", "mine"),
    (
        {"scaleTier": "CUSTOM", "masterType": "n1-standard-4"} | T4,
        "master_config.accelerator_config",
        "NVIDIA_TESLA_T4",
    ),
]


@pytest.mark.parametrize(("gang", "field", "word"), ASKING)
def test_a_job_that_needs_gpus_gets_an_engine_that_may_have_some(gang: dict[str, Any], field: str, word: str) -> None:
    work = parse_workload({"trainingInput": {"pythonModule": "trainer.task"} | gang})
    mine = MachineTypes({"mine": MachineType(cpu=1, memory_gb=1, gpu=1)})
    table = {"local": site("training job"), "far": site("training job", gpus=True)}
    for default in table:
        assert EngineRegistry(table, default=default, machines=mine).choose({}, work) == "far"
    with pytest.raises(InvalidArgumentError, match=f"{word} needs GPUs, and engine local has none") as caught:
        EngineRegistry(table, default="far", machines=mine).choose({"trainshed-engine": "local"}, work)
    assert caught.value.field == field
    assert str(caught.value).endswith("or let it run on engine far.")
    alone = {"local": site("training job"), "far": site("training job", gpus=True, lacking="It is shut.")}
    with pytest.raises(
        InvalidArgumentError, match=f"{word} needs GPUs, and engine local has none.*--ray-address HOST:PORT"
    ):
        EngineRegistry(alone, default="local", machines=mine).choose({}, work)
    with pytest.raises(InvalidArgumentError, match="It is shut"):
        EngineRegistry(alone, default="local", machines=mine).choose({"trainshed-engine": "far"}, work)
