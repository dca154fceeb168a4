"""Machine types: Google's, and those that an operator adds in config.toml."""

from __future__ import annotations

from typing import Any

import pytest

from trainshed.domain.capacity.machine_types import STANDARD, MachineType, MachineTypes
from trainshed.domain.jobs.workload import read_job
from trainshed.errors import CannotProceedError, InvalidArgumentError


@pytest.mark.parametrize(
    ("name", "cpu", "memory_gb"),
    [
        ("n1-standard-4", 4, 15),
        ("n1-highmem-8", 8, 52),
        ("n1-highcpu-16", 16, 14.4),
        ("n1-standard-96", 96, 360),
        ("standard", 4, 15),
        ("large_model", 8, 52),
        ("complex_model_l", 32, 28.8),
    ],
)
def test_a_machine_type_stands_for_cores_and_memory(name: str, cpu: float, memory_gb: float) -> None:
    found = STANDARD.of(name)
    assert (found.cpu, found.gpu) == (cpu, 0)
    assert found.memory_gb == pytest.approx(memory_gb)


def test_an_operator_s_machines_are_known_and_may_take_the_place_of_others() -> None:
    machines = MachineTypes.read(
        {
            "standard_gpu": {"cpu": 8, "memory_gb": 30.0, "gpu": 1, "resources": {"accelerator_type:T4": 1}},
            "n1-standard-4": {"cpu": 2, "memory_gb": 4},
        }
    )
    machines.check("standard_gpu", field="f")
    assert machines.of("standard_gpu") == MachineType(
        cpu=8, memory_gb=30.0, gpu=1, resources={"accelerator_type:T4": 1}
    )
    assert (machines.of("n1-standard-4").cpu, STANDARD.of("n1-standard-4").cpu) == (2, 4)
    assert list(machines).count("n1-standard-4") == 1
    with pytest.raises(InvalidArgumentError, match=r"or one of standard, .*, standard_gpu, n1-standard-4\."):
        machines.check("n1-standard-5", field="f")


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"Big One": {"cpu": 1, "memory_gb": 1}}, r"\[machines.Big One\] in config.toml: The name of a machine type"),
        ({"big": 3}, "must have cpu and memory_gb"),
        ({"big": {"cpu": 3}}, "must have cpu and memory_gb"),
        ({"big": {"cpu": 3, "memory_gb": 1, "gpus": 1}}, "and nothing else"),
        ({"big": {"cpu": "3", "memory_gb": 1}}, "cpu is '3'; it must be a number"),
        ({"big": {"cpu": True, "memory_gb": 1}}, "cpu is True"),
        ({"big": {"cpu": 3, "memory_gb": -1}}, "memory_gb is -1"),
        ({"big": {"cpu": 3, "memory_gb": float("nan")}}, "memory_gb is nan"),
        ({"big": {"cpu": 3, "memory_gb": 1, "resources": {"tpu": "1"}}}, "resources.tpu is '1'"),
        ({"big": {"cpu": 3, "memory_gb": 1, "resources": 1}}, "resources is a table"),
    ],
)
def test_a_machine_that_makes_no_sense_is_refused_by_name(tables: dict[str, Any], words: str) -> None:
    with pytest.raises(CannotProceedError, match=words):
        MachineTypes.read(tables)


def test_a_job_may_ask_for_an_operator_s_machine_beside_any_of_google_s() -> None:
    machines = MachineTypes({"big_gpu": MachineType(cpu=8, memory_gb=30, gpu=1)})
    gang = {"scaleTier": "CUSTOM", "masterType": "n1-standard-4", "workerType": "big_gpu", "workerCount": "2"}
    given = {"pythonModule": "trainer.task", "packageUris": ["gs://b/p.tar.gz"]} | gang
    body = {"jobId": "j1", "trainingInput": given}
    assert read_job(body, machines).workload.key == "trainingInput"
    with pytest.raises(InvalidArgumentError, match="'big_gpu' is not a machine type"):
        read_job(body)


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("standard_gpu", MachineType(cpu=8, memory_gb=30, gpu=1)),
        ("complex_model_l_v100", MachineType(cpu=32, memory_gb=120, gpu=8)),
        ("large_model_v100", MachineType(cpu=8, memory_gb=52, gpu=1)),
        ("a2-highgpu-4g", MachineType(cpu=48, memory_gb=340, gpu=4)),
    ],
)
def test_machines_have_the_gpus_that_google_s_had(name: str, machine: MachineType) -> None:
    assert MachineTypes().of(name) == machine
