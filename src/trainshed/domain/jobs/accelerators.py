"""GPUs that a training job asks for beside its machines: which there are names for, and where the job names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.domain.json_fields import snake
from trainshed.errors import InvalidArgumentError

#: role -> what the fields of trainingInput about it begin with
_ROLES = {"master": "master", "worker": "worker", "ps": "parameterServer", "evaluator": "evaluator"}
_MODELS = ("K80", "P4", "P100", "T4", "V100", "A100")
TYPES = tuple(f"NVIDIA_TESLA_{model}" for model in _MODELS)
MAX_GPUS = 64  #: of one replica
GPU_TIER = "BASIC_GPU"


def read_accelerators(given: Mapping[str, Any]) -> dict[str, int]:
    """How many each replica of a role asks for, by role, from a trainingInput that `check_accelerators` let through."""
    counts = {role: int(_asked(given, name).get("count", 0)) for role, name in _ROLES.items()}
    return {role: count for role, count in counts.items() if count}


def check_accelerators(given: Mapping[str, Any], machines: MachineTypes) -> None:
    """`InvalidArgumentError` for accelerators that there are none of, or that do not go with the rest."""
    for name in _ROLES.values():
        asked = _asked(given, name)
        if not asked:
            continue
        field = snake(f"{name}Config.acceleratorConfig")
        kind, count, machine = asked.get("type", ""), int(asked.get("count", 0)), given.get(f"{name}Type", "")
        if kind.startswith("TPU"):
            raise InvalidArgumentError("This server has no TPUs. Leave this field out.", field=f"{field}.type")
        if kind not in TYPES:
            raise InvalidArgumentError(
                f"{kind!r} is not an accelerator. They are: {', '.join(TYPES)}.", field=f"{field}.type"
            )
        if not 0 < count <= MAX_GPUS:
            raise InvalidArgumentError(
                f"A replica can have 1 to {MAX_GPUS} accelerators, not {count}.", field=f"{field}.count"
            )
        if not machine:
            raise InvalidArgumentError(
                "Accelerators go with scale_tier CUSTOM and a machine type of this role.", field=field
            )
        if machines.of(machine).gpu:
            raise InvalidArgumentError(f"{machine} has GPUs of its own. Leave this field out.", field=field)


def gpu_fields(given: Mapping[str, Any], machines: MachineTypes) -> Iterator[tuple[str, str]]:
    """Where a trainingInput asks for GPUs, and by which word, as (scale_tier, BASIC_GPU)."""
    if given.get("scaleTier") == GPU_TIER:
        yield "scale_tier", GPU_TIER
    for name in _ROLES.values():
        machine = given.get(f"{name}Type", "")
        if machine and machines.of(machine).gpu:
            yield snake(f"{name}Type"), machine
        if asked := _asked(given, name):
            yield snake(f"{name}Config.acceleratorConfig"), asked["type"]


def _asked(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    asked: Mapping[str, Any] = given.get(f"{name}Config", {}).get("acceleratorConfig", {})
    return asked
