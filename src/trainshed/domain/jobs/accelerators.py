"""Accelerators of a training job: the known types, and the fields of trainingInput that request GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.domain.json_fields import snake
from trainshed.errors import InvalidArgumentError

#: role -> prefix of its fields in trainingInput
_FIELD_PREFIXES = {"master": "master", "worker": "worker", "ps": "parameterServer", "evaluator": "evaluator"}
_CONFIG_FIELDS = tuple((role, f"{prefix}Config") for role, prefix in _FIELD_PREFIXES.items())
_MODELS = ("K80", "P4", "P100", "T4", "V100", "A100")
TYPES = tuple(f"NVIDIA_TESLA_{model}" for model in _MODELS)
MAX_GPUS = 64  #: per replica
GPU_TIER = "BASIC_GPU"
UNSPECIFIED = "ACCELERATOR_TYPE_UNSPECIFIED"


def read_accelerators(training_input: Mapping[str, Any]) -> dict[str, int]:
    """The number of GPUs per replica, by role. The input has passed `check_accelerators`."""
    configs = {role: training_input[field] for role, field in _CONFIG_FIELDS if field in training_input}
    counts = {role: int(config.get("acceleratorConfig", {}).get("count", 0)) for role, config in configs.items()}
    return {role: count for role, count in counts.items() if count}


def check_accelerators(training_input: Mapping[str, Any], machines: MachineTypes) -> None:
    """Raises `InvalidArgumentError` if the accelerators are unknown or do not match the other fields."""
    for name in _FIELD_PREFIXES.values():
        config = _accelerator_config(training_input, name)
        if not config:
            continue
        field = snake(f"{name}Config.acceleratorConfig")
        kind, count, machine = (
            config.get("type", ""),
            int(config.get("count", 0)),
            training_input.get(f"{name}Type", ""),
        )
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


def gpu_fields(training_input: Mapping[str, Any], machines: MachineTypes) -> Iterator[tuple[str, str]]:
    """The fields that request GPUs, each with its value: (scale_tier, BASIC_GPU)."""
    if training_input.get("scaleTier") == GPU_TIER:
        yield "scale_tier", GPU_TIER
    for name in _FIELD_PREFIXES.values():
        machine = training_input.get(f"{name}Type", "")
        if machine and machines.of(machine).gpu:
            yield snake(f"{name}Type"), machine
        if config := _accelerator_config(training_input, name):
            yield snake(f"{name}Config.acceleratorConfig"), config["type"]


def _accelerator_config(training_input: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the accelerators of a role; empty if none are requested, which some clients write as a count of 0."""
    config: Mapping[str, Any] = training_input.get(f"{name}Config", {}).get("acceleratorConfig", {})
    is_empty = int(config.get("count", 0)) == 0 and config.get("type", UNSPECIFIED) == UNSPECIFIED
    return {} if is_empty else config
