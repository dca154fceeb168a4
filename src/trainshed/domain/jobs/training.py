"""What a user may ask of a training job: reading it, checking it, and saying by name what is not offered here."""

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
from trainshed.errors import InvalidArgumentError

MAX_PACKAGES = 100
MAX_REPLICAS = 64  #: of one job; each is a process of its own
MAX_INPUT_BYTES = 96 * 1024  #: the kernel takes 128 KiB for one variable, and TF_CONFIG repeats the whole input
DEFAULT_RUNNING = "604800s"
TRAINING = "training job"
TRAINING_IN_CONTAINERS = "training job with a container image"


class ScaleTier(StrEnum):
    """The API's own words."""

    BASIC = "BASIC"
    STANDARD_1 = "STANDARD_1"
    PREMIUM_1 = "PREMIUM_1"
    BASIC_GPU = "BASIC_GPU"
    BASIC_TPU = "BASIC_TPU"
    CUSTOM = "CUSTOM"


_REPLICA_CONFIG = f.message(
    {
        "acceleratorConfig": f.message({"count": f.int64, "type": f.string}),
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
        "hyperparameters": f.anything,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A trainingInput that was checked, in the words that the rest of the program uses."""

    key: ClassVar[str] = "trainingInput"

    module: str
    args: tuple[str, ...]  #: the master's, and all others' unless these have containers with their own
    package_uris: tuple[str, ...]
    job_dir: str  #: a gs:// URI, or empty
    runtime_version: str  #: as the user asked for it; empty if not
    python_version: str
    region: str
    scale_tier: ScaleTier
    machine_types: Mapping[str, str]  #: by role, as CUSTOM gives them: master, worker, ps, evaluator
    accelerators: Mapping[str, int]  #: by role, how many GPUs a replica has beside those of its machine
    worker_count: int  #: used by CUSTOM alone; the other tiers fix their numbers
    parameter_server_count: int
    evaluator_count: int
    max_running_s: float
    priority: int
    use_chief: bool
    containers: Mapping[str, TrainingContainer]  #: by role; empty for a job that runs a module
    input: Mapping[str, Any]  #: the whole of it, as stored

    @property
    def what(self) -> str:
        """Which kind of work this is, for people and for engines."""
        return TRAINING_IN_CONTAINERS if self.containers else TRAINING

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Read what `read_job` let through, such as the stored `job.body["trainingInput"]`."""
        scheduling = given.get("scheduling", {})
        containers = read_containers(given)
        return cls(
            module=given.get("pythonModule", ""),
            args=containers["master"].args if containers else tuple(given.get("args", ())),
            package_uris=tuple(given.get("packageUris", ())),
            job_dir=given.get("jobDir", ""),
            runtime_version=given.get("runtimeVersion", ""),
            python_version=given.get("pythonVersion", ""),
            region=given.get("region", ""),
            scale_tier=ScaleTier(given.get("scaleTier", ScaleTier.BASIC)),
            machine_types={
                role: given[name]
                for role, name in (
                    ("master", "masterType"),
                    ("worker", "workerType"),
                    ("ps", "parameterServerType"),
                    ("evaluator", "evaluatorType"),
                )
                if given.get(name)
            },
            accelerators=read_accelerators(given),
            worker_count=int(given.get("workerCount", 0)),
            parameter_server_count=int(given.get("parameterServerCount", 0)),
            evaluator_count=int(given.get("evaluatorCount", 0)),
            max_running_s=f.duration_s(scheduling.get("maxRunningTime", DEFAULT_RUNNING)),
            priority=scheduling.get("priority", 0),
            use_chief=given.get("useChiefInTfConfig", False),
            containers=containers,
            input=given,
        )


def check_training(given: Mapping[str, Any], machines: MachineTypes = STANDARD) -> Training:
    """The training that an input of the right types asks for.

    `InvalidArgumentError` if it makes no sense or is not offered.
    """
    if len(orjson.dumps(given)) > MAX_INPUT_BYTES:
        raise InvalidArgumentError(
            f"The training input is larger than {MAX_INPUT_BYTES:,} bytes. Put long arguments into a file in a bucket.",
            field="training_input",
        )
    _check_offered(given)
    _check_tier(given, machines)
    check_accelerators(given, machines)
    check_containers(given)
    training = Training.parse(given)
    if not training.containers:
        _check_program(training)
    elif asked := next(gpu_fields(given, machines), None):
        raise InvalidArgumentError(
            f"Images run without GPUs here, and {asked[1]} needs one. Submit a package.", field=asked[0]
        )
    _check_surroundings(training)
    _check_scheduling(given.get("scheduling", {}))
    return training


_NOT_OFFERED = {
    "encryptionConfig": "Keys of one's own are not offered here; put the state folder on an encrypted disk instead.",
    "enableWebAccess": "Interactive shells are not offered on this server version.",
    "hyperparameters": "Hyperparameter tuning is not offered on this server version. Submit one job for each trial.",
    "network": "There are no VPC networks here: a job uses the network of the server's machine.",
    "serviceAccount": "There are no service accounts here: a job runs as the user who runs the server.",
}
_NOT_OFFERED_TO_REPLICAS = {
    "diskConfig": "Jobs use the disk of the server's machine. Leave this field out.",
    "tpuTfVersion": "This server has no TPUs. Leave this field out.",
}
_REPLICAS = ("worker", "parameterServer", "evaluator")


def _check_offered(given: Mapping[str, Any]) -> None:
    for name, sentence in _NOT_OFFERED.items():
        if given.get(name):
            raise InvalidArgumentError(f"{sentence} Leave this field out.", field=f.snake(name))
    for role in ("master", *_REPLICAS):
        for name, value in given.get(f"{role}Config", {}).items():
            if value and name in _NOT_OFFERED_TO_REPLICAS:
                raise InvalidArgumentError(_NOT_OFFERED_TO_REPLICAS[name], field=f.snake(f"{role}Config.{name}"))


def _check_tier(given: Mapping[str, Any], machines: MachineTypes) -> None:
    tier = ScaleTier(given.get("scaleTier", ScaleTier.BASIC))
    if tier is ScaleTier.BASIC_TPU:
        raise InvalidArgumentError(
            f"This server has no TPUs, and {tier} needs one. Use scale_tier BASIC.", field="scale_tier"
        )
    for role in _REPLICAS:
        if int(given.get(f"{role}Count", 0)) < 0:
            raise InvalidArgumentError("A number of replicas can't be negative.", field=f.snake(f"{role}Count"))
    if tier is ScaleTier.CUSTOM:
        _check_custom(given, machines)
        return
    for name in ("masterType", *(f"{role}{part}" for role in _REPLICAS for part in ("Count", "Type"))):
        if given.get(name, "0") not in ("0", ""):
            raise InvalidArgumentError(
                f"This field goes with scale_tier CUSTOM, and this job's is {tier}. "
                f"Leave it out, or set scale_tier to CUSTOM.",
                field=f.snake(name),
            )


def _check_custom(given: Mapping[str, Any], machines: MachineTypes) -> None:
    """Counts and types of a gang that the user put together: each role has both or neither."""
    machines.check(given.get("masterType", ""), field="master_type")
    families = {machines.family(given["masterType"])}
    for role in _REPLICAS:
        count, machine = int(given.get(f"{role}Count", 0)), given.get(f"{role}Type", "")
        if count and not machine:
            raise InvalidArgumentError(
                f"There are {count} of these, but their machine type is missing.", field=f.snake(f"{role}Type")
            )
        if machine:
            machines.check(machine, field=f.snake(f"{role}Type"))
            families.add(machines.family(machine))
        if machine and not count:
            raise InvalidArgumentError(
                "There is a machine type, but no number of replicas.", field=f.snake(f"{role}Count")
            )
    if len(families - {""}) > 1:
        raise InvalidArgumentError(
            "All roles need machine types of one family: either n1-… or the old names such as standard.",
            field="master_type",
        )
    total = 1 + sum(int(given.get(f"{role}Count", 0)) for role in _REPLICAS)
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


def _check_surroundings(training: Training) -> None:
    if training.region and not _REGION.fullmatch(training.region):
        raise InvalidArgumentError(
            f"{training.region!r} is not the name of a region, such as us-central1.", field="region"
        )
    for number, arg in enumerate(training.args):
        if "\0" in arg:
            raise InvalidArgumentError(
                f"Argument {number} holds a NUL character, which no program can be given.", field="args"
            )


def _check_scheduling(given: Mapping[str, Any]) -> None:
    if f.duration_s(given.get("maxRunningTime", DEFAULT_RUNNING)) <= 0:
        raise InvalidArgumentError(
            "The longest running time must be more than 0s.", field="scheduling.max_running_time"
        )
    if "maxWaitTime" in given:
        raise InvalidArgumentError(
            "A limit on waiting is not offered on this server version: a job waits until there is room for it. "
            "Leave this field out.",
            field="scheduling.max_wait_time",
        )
    if not 0 <= given.get("priority", 0) <= 1000:
        raise InvalidArgumentError(
            f"A priority is from 0 to 1000; {given['priority']} is not.", field="scheduling.priority"
        )
