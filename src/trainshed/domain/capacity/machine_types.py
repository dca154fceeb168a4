"""Machine types: the names that users know and the resources behind each. An operator can add and override types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from trainshed.domain.names import machine_name
from trainshed.errors import CannotProceedError, InvalidArgumentError

_SIZES = (1, 2, 4, 8, 16, 32, 64, 96)
_N1 = re.compile(rf"n1-(standard|highmem|highcpu)-({'|'.join(map(str, _SIZES))})")
SERVING_ONLY_TYPE = re.compile(r"mls1-c([14])-m([24])")  #: machine types that only versions can use
_DEFAULT_SERVING_TYPE = "mls1-c1-m2"
_GB_PER_CORE = {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9}
_A2 = re.compile(r"a2-highgpu-([1248])g")
_A2_CORES, _A2_GB = 12, 85  #: for each GPU
_TPU = "cloud_tpu"

#: legacy name -> the n1 machine type behind it and its number of GPUs
_LEGACY_TYPES = {
    "standard": ("n1-standard-4", 0),
    "large_model": ("n1-highmem-8", 0),
    "complex_model_s": ("n1-highcpu-8", 0),
    "complex_model_m": ("n1-highcpu-16", 0),
    "complex_model_l": ("n1-highcpu-32", 0),
    "standard_gpu": ("n1-standard-8", 1),
    "complex_model_m_gpu": ("n1-standard-16", 4),
    "complex_model_l_gpu": ("n1-standard-32", 8),
    "standard_p100": ("n1-standard-8", 1),
    "complex_model_m_p100": ("n1-standard-16", 4),
    "standard_v100": ("n1-standard-8", 1),
    "large_model_v100": ("n1-highmem-8", 1),
    "complex_model_m_v100": ("n1-standard-16", 4),
    "complex_model_l_v100": ("n1-standard-32", 8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """Resources of one replica on a machine of this type."""

    cpu: float
    memory_gb: float
    gpu: float = 0
    #: custom resources, by the names that the cluster uses
    resources: Mapping[str, float] = field(default_factory=dict)


class MachineTypes:
    """The table of machine types: Google's, overridden by the operator's."""

    def __init__(self, custom: Mapping[str, MachineType] | None = None) -> None:
        self._custom = dict(custom or {})

    @classmethod
    def read(cls, tables: Mapping[str, Any]) -> Self:
        """Read the tables `[machines.NAME]` of config.toml.

        Raises `CannotProceedError`, which names the table, if one is invalid.
        """
        return cls({name: _read(name, table) for name, table in tables.items()})

    def check(self, machine_type: str, *, field: str) -> None:
        """Raises `InvalidArgumentError` if this server does not offer the machine type."""
        if machine_type in self._custom:
            return
        if machine_type == _TPU:
            raise InvalidArgumentError(
                f"This server has no TPUs, and {machine_type} needs one. Use n1-standard-4, for example. "
                f"Machines of a cluster that have them can be named under [machines.NAME] in config.toml.",
                field=field,
            )
        if machine_type not in _LEGACY_TYPES and not _N1.fullmatch(machine_type) and not _A2.fullmatch(machine_type):
            problem = (
                f"{machine_type!r} is not a machine type"
                if machine_type
                else "scale_tier CUSTOM needs a machine type here"
            )
            raise InvalidArgumentError(
                f"{problem}. Use n1-standard-4 or another of n1-standard, n1-highmem, n1-highcpu and a2-highgpu, or "
                f"one of {', '.join((*_LEGACY_TYPES, *self._custom))}.",
                field=field,
            )

    def family(self, machine_type: str) -> str:
        """Return the family of a machine type. A custom type has none.

        The roles of one job cannot mix Google's families.
        """
        return "old" if machine_type in _LEGACY_TYPES else "" if machine_type in self._custom else "new"

    def of(self, machine_type: str) -> MachineType:
        """Return the resources of a machine type.

        Raises `InvalidArgumentError` if the type does not exist (any more).
        """
        self.check(machine_type, field="machine_type")
        if machine_type in self._custom:
            return self._custom[machine_type]
        if a2 := _A2.fullmatch(machine_type):
            return MachineType(cpu=_A2_CORES * int(a2[1]), memory_gb=_A2_GB * int(a2[1]), gpu=int(a2[1]))
        n1_type, gpus = _LEGACY_TYPES.get(machine_type, (machine_type, 0))
        _, kind, cores = n1_type.split("-")
        return MachineType(cpu=int(cores), memory_gb=int(cores) * _GB_PER_CORE[kind], gpu=gpus)

    def serving(self, machine_type: str) -> MachineType:
        """Return the resources of a host. No name means the smallest type.

        Raises `InvalidArgumentError` if the type is unknown.
        """
        if small := SERVING_ONLY_TYPE.fullmatch(machine_type or _DEFAULT_SERVING_TYPE):
            return MachineType(cpu=int(small[1]), memory_gb=int(small[2]))
        return self.of(machine_type)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, without the legacy ones."""
        yield from dict.fromkeys((*self._custom, *(f"n1-{kind}-{size}" for kind in _GB_PER_CORE for size in _SIZES)))


STANDARD = MachineTypes()  #: Google's types alone


def _read(name: str, table: Any) -> MachineType:
    where = f"[machines.{name}] in config.toml"
    try:
        machine_name(name)
    except InvalidArgumentError as exc:
        raise CannotProceedError(f"{where}: {exc}") from exc
    keys = ("cpu", "memory_gb", "gpu", "resources")
    if not isinstance(table, Mapping) or set(table) - set(keys) or not {"cpu", "memory_gb"} <= set(table):
        raise CannotProceedError(
            f"{where} must have cpu and memory_gb, and can have gpu and resources, and nothing else."
        )
    custom = table.get("resources", {})
    if not isinstance(custom, Mapping):
        raise CannotProceedError(f"{where}: resources is a table of names and numbers, such as {{tpu = 1}}.")
    numbers = {key: table.get(key, 0) for key in ("cpu", "memory_gb", "gpu")}
    numbers |= {f"resources.{key}": custom[key] for key in custom}
    for key, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 1e9:
            raise CannotProceedError(f"{where}: {key} is {number!r}; it must be a number that is not negative.")
    return MachineType(cpu=table["cpu"], memory_gb=table["memory_gb"], gpu=table.get("gpu", 0), resources=dict(custom))
