"""Training requests: parse and check a trainingInput. Options that are not offered are rejected by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

import orjson

from trainshed.domain import json_fields as f
from trainshed.domain.capacity.machine_types import STANDARD, MachineTypes
from trainshed.domain.jobs.accelerators import check_accelerators, gpu_fields, read_accelerators
from trainshed.domain.jobs.containers import TrainingContainer, check_containers, read_containers
from trainshed.domain.tuning.hyperparameters import HYPERPARAMETERS, Tuning, check_hyperparameters
from trainshed.errors import InvalidArgumentError

MAX_PACKAGES = 100
MAX_REPLICAS = 64  #: per job; each is a process
MAX_INPUT_BYTES = 96 * 1024  #: the kernel limits a variable to 128 KiB, and TF_CONFIG repeats the whole input
DEFAULT_RUNNING_TIME = "604800s"
TRAINING = "training job"
TRAINING_IN_CONTAINERS = "training job with a container image"


class ScaleTier(StrEnum):
    """The API's scale tiers."""

    BASIC = "BASIC"
    STANDARD_1 = "STANDARD_1"
    PREMIUM_1 = "PREMIUM_1"
    BASIC_GPU = "BASIC_GPU"
    BASIC_TPU = "BASIC_TPU"
    CUSTOM = "CUSTOM"


_REPLICA_CONFIG = f.message(
    {
        "acceleratorConfig": f.message({"count": f.int64, "type": f.upper_case}),
        "containerArgs": f.repeated(f.string),
        "containerCommand": f.repeated(f.string),
        "diskConfig": f.message({"bootDiskSizeGb": f.int32, "bootDiskType": f.string}),
        "imageUri": f.string,
        "tpuTfVersion": f.string,
    }
)

TRAINING_INPUT = f.message(
    {
        "args": f.repeated(f.string),
        "enableWebAccess": f.boolean,
        "encryptionConfig": f.anything,
        "evaluatorConfig": _REPLICA_CONFIG,
        "evaluatorCount": f.int64,
        "evaluatorType": f.string,
        "hyperparameters": HYPERPARAMETERS,
        "jobDir": f.string,
        "masterConfig": _REPLICA_CONFIG,
        "masterType": f.string,
        "network": f.string,
        "packageUris": f.repeated(f.string),
        "parameterServerConfig": _REPLICA_CONFIG,
        "parameterServerCount": f.int64,
        "parameterServerType": f.string,
        "pythonModule": f.string,
        "pythonVersion": f.string,
        "region": f.string,
        "runtimeVersion": f.string,
        "scaleTier": f.enum("TrainingInput.ScaleTier", *ScaleTier),
        "scheduling": f.message({"maxRunningTime": f.duration, "maxWaitTime": f.duration, "priority": f.int32}),
        "serviceAccount": f.string,
        "useChiefInTfConfig": f.boolean,
        "workerConfig": _REPLICA_CONFIG,
        "workerCount": f.int64,
        "workerType": f.string,
    }
)


_TYPE_FIELDS = (
    ("master", "masterType"),
    ("worker", "workerType"),
    ("ps", "parameterServerType"),
    ("evaluator", "evaluatorType"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A checked trainingInput, in domain terms."""

    key: ClassVar[str] = "trainingInput"

    module: str
    args: tuple[str, ...]  #: of the master, and of all replicas whose container has none
    package_uris: tuple[str, ...]
    job_dir: str  #: a gs:// URI, or empty
    runtime_version: str  #: as requested; may be empty
    python_version: str
    region: str
    scale_tier: ScaleTier
    machine_types: Mapping[str, str]  #: by role, for CUSTOM: master, worker, ps, evaluator
    accelerators: Mapping[str, int]  #: by role: GPUs per replica beside those of the machine type
    worker_count: int  #: only for CUSTOM; the other tiers have fixed counts
    parameter_server_count: int
    evaluator_count: int
    max_running_s: float
    priority: int
    use_chief: bool
    containers: Mapping[str, TrainingContainer]  #: by role; empty for a job that runs a module
    tuning: Tuning | None  #: what its trials search for; None if the job has no hyperparameters
    input: Mapping[str, Any]  #: the complete input, as stored

    @property
    def what(self) -> str:
        """The kind of workload, for people and for engines."""
        return TRAINING_IN_CONTAINERS if self.containers else TRAINING

    @classmethod
    def parse(cls, training_input: Mapping[str, Any]) -> Self:
        """Parse an input that `check_training` accepted."""
        scheduling = training_input.get("scheduling", {})
        containers = read_containers(training_input)
        return cls(
            module=training_input.get("pythonModule", ""),
            args=containers["master"].args if containers else tuple(training_input.get("args", ())),
            package_uris=tuple(training_input.get("packageUris", ())),
            job_dir=training_input.get("jobDir", ""),
            runtime_version=training_input.get("runtimeVersion", ""),
            python_version=training_input.get("pythonVersion", ""),
            region=training_input.get("region", ""),
            scale_tier=ScaleTier(training_input.get("scaleTier", ScaleTier.BASIC)),
            machine_types={role: training_input[name] for role, name in _TYPE_FIELDS if training_input.get(name)},
            accelerators=read_accelerators(training_input),
            worker_count=int(training_input.get("workerCount", 0)),
            parameter_server_count=int(training_input.get("parameterServerCount", 0)),
            evaluator_count=int(training_input.get("evaluatorCount", 0)),
            max_running_s=f.duration_s(scheduling.get("maxRunningTime", DEFAULT_RUNNING_TIME)),
            priority=scheduling.get("priority", 0),
            use_chief=training_input.get("useChiefInTfConfig", False),
            containers=containers,
            tuning=Tuning.parse(training_input["hyperparameters"]) if training_input.get("hyperparameters") else None,
            input=training_input,
        )


def check_training(training_input: Mapping[str, Any], machines: MachineTypes = STANDARD) -> Training:
    """Check and parse a trainingInput whose types are valid.

    Raises `InvalidArgumentError` if it is invalid or not offered.
    """
    if len(orjson.dumps(training_input)) > MAX_INPUT_BYTES:
        raise InvalidArgumentError(
            f"The training input is larger than {MAX_INPUT_BYTES:,} bytes. Put long arguments into a file in a bucket.",
            field="training_input",
        )
    _check_offered(training_input)
    _check_tier(training_input, machines)
    check_accelerators(training_input, machines)
    check_containers(training_input)
    if training_input.get("hyperparameters"):
        hyperparameters = check_hyperparameters(training_input["hyperparameters"])
        training_input = {**training_input, "hyperparameters": hyperparameters}
    training = Training.parse(training_input)
    if not training.containers:
        _check_program(training)
    elif gpu_field := next(gpu_fields(training_input, machines), None):
        raise InvalidArgumentError(
            f"Images run without GPUs here, and {gpu_field[1]} needs one. Submit a package.", field=gpu_field[0]
        )
    _check_region_and_args(training)
    _check_scheduling(training_input.get("scheduling", {}))
    return training


_NOT_OFFERED = {
    "encryptionConfig": "Keys of one's own are not offered here; put the state folder on an encrypted disk instead.",
    "enableWebAccess": "Interactive shells are not offered on this server version.",
    "network": "There are no VPC networks here: a job uses the network of the server's machine.",
    "serviceAccount": "There are no service accounts here: a job runs as the user who runs the server.",
}
_NOT_OFFERED_TO_REPLICAS = {
    "diskConfig": "Jobs use the disk of the server's machine. Leave this field out.",
    "tpuTfVersion": "This server has no TPUs. Leave this field out.",
}
_REPLICA_ROLES = ("worker", "parameterServer", "evaluator")


def _check_offered(training_input: Mapping[str, Any]) -> None:
    for name, sentence in _NOT_OFFERED.items():
        if training_input.get(name):
            raise InvalidArgumentError(f"{sentence} Leave this field out.", field=f.snake(name))
    for role in ("master", *_REPLICA_ROLES):
        for name, value in training_input.get(f"{role}Config", {}).items():
            if value and name in _NOT_OFFERED_TO_REPLICAS:
                raise InvalidArgumentError(_NOT_OFFERED_TO_REPLICAS[name], field=f.snake(f"{role}Config.{name}"))


def _check_tier(training_input: Mapping[str, Any], machines: MachineTypes) -> None:
    tier = ScaleTier(training_input.get("scaleTier", ScaleTier.BASIC))
    if tier is ScaleTier.BASIC_TPU:
        raise InvalidArgumentError(
            f"This server has no TPUs, and {tier} needs one. Use scale_tier BASIC.", field="scale_tier"
        )
    for role in _REPLICA_ROLES:
        if int(training_input.get(f"{role}Count", 0)) < 0:
            raise InvalidArgumentError("A number of replicas can't be negative.", field=f.snake(f"{role}Count"))
    if tier is ScaleTier.CUSTOM:
        _check_custom(training_input, machines)
        return
    for name in ("masterType", *(f"{role}{part}" for role in _REPLICA_ROLES for part in ("Count", "Type"))):
        if training_input.get(name, "0") not in ("0", ""):
            raise InvalidArgumentError(
                f"This field goes with scale_tier CUSTOM, and this job's is {tier}. "
                f"Leave it out, or set scale_tier to CUSTOM.",
                field=f.snake(name),
            )


def _check_custom(training_input: Mapping[str, Any], machines: MachineTypes) -> None:
    """Check the counts and machine types of a CUSTOM gang. Each role has both or neither."""
    machines.check(training_input.get("masterType", ""), field="master_type")
    families = {machines.family(training_input["masterType"])}
    for role in _REPLICA_ROLES:
        count, machine_type = int(training_input.get(f"{role}Count", 0)), training_input.get(f"{role}Type", "")
        if count and not machine_type:
            raise InvalidArgumentError(
                f"There are {count} of these, but their machine type is missing.", field=f.snake(f"{role}Type")
            )
        if machine_type:
            machines.check(machine_type, field=f.snake(f"{role}Type"))
            families.add(machines.family(machine_type))
        if machine_type and not count:
            raise InvalidArgumentError(
                "There is a machine type, but no number of replicas.", field=f.snake(f"{role}Count")
            )
    if len(families - {""}) > 1:
        raise InvalidArgumentError(
            "All roles need machine types of one family: either n1-… or the old names such as standard.",
            field="master_type",
        )
    total = 1 + sum(int(training_input.get(f"{role}Count", 0)) for role in _REPLICA_ROLES)
    if total > MAX_REPLICAS:
        raise InvalidArgumentError(
            f"The gang has {total} replicas; one machine runs {MAX_REPLICAS} at most.", field="worker_count"
        )


_REGION = re.compile(r"[a-z][a-z0-9-]{0,62}")


def _check_program(training: Training) -> None:
    if not training.module:
        raise InvalidArgumentError(
            "The module to run is missing. Name it as for `python -m`: trainer.task.", field="python_module"
        )
    if not all(part.isidentifier() for part in training.module.split(".")):
        raise InvalidArgumentError(
            f"{training.module!r} is not the dotted name of a module, such as trainer.task.", field="python_module"
        )
    if not training.package_uris:
        raise InvalidArgumentError(
            "The job has no package. Name at least one gs:// URI of an archive that holds the module.",
            field="package_uris",
        )
    if len(training.package_uris) > MAX_PACKAGES:
        raise InvalidArgumentError(
            f"There are {len(training.package_uris)} packages; {MAX_PACKAGES} are allowed.", field="package_uris"
        )


def _check_region_and_args(training: Training) -> None:
    if training.region and not _REGION.fullmatch(training.region):
        raise InvalidArgumentError(
            f"{training.region!r} is not the name of a region, such as us-central1.", field="region"
        )
    for number, arg in enumerate(training.args):
        if "\0" in arg:
            raise InvalidArgumentError(
                f"Argument {number} holds a NUL character, which no program can be given.", field="args"
            )


def _check_scheduling(scheduling: Mapping[str, Any]) -> None:
    if f.duration_s(scheduling.get("maxRunningTime", DEFAULT_RUNNING_TIME)) <= 0:
        raise InvalidArgumentError(
            "The longest running time must be more than 0s.", field="scheduling.max_running_time"
        )
    if "maxWaitTime" in scheduling:
        raise InvalidArgumentError(
            "A limit on waiting is not offered on this server version: a job waits until there is room for it. "
            "Leave this field out.",
            field="scheduling.max_wait_time",
        )
    if not 0 <= scheduling.get("priority", 0) <= 1000:
        raise InvalidArgumentError(
            f"A priority is from 0 to 1000; {scheduling['priority']} is not.", field="scheduling.priority"
        )
