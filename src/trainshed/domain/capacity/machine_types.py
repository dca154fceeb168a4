"""Machine types: the names that users know, and what each stands for. An operator can add to them and change them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from trainshed.domain.names import machine_name
from trainshed.errors import CannotProceedError, InvalidArgumentError

_SIZES = (1, 2, 4, 8, 16, 32, 64, 96)
_N1 = re.compile(rf"n1-(standard|highmem|highcpu)-({'|'.join(map(str, _SIZES))})")
SMALL = re.compile(r"mls1-c([14])-m([24])")  #: those that serve versions alone
_SMALLEST = "mls1-c1-m2"
_GB_PER_CORE = {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9}
_A2 = re.compile(r"a2-highgpu-([1248])g")
_A2_CORES, _A2_GB = 12, 85  #: for each of its GPUs
_TPU = "cloud_tpu"

#: the old names, the machines behind them, and the GPUs that came with those
_OLD = {
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
    """What one replica on a machine of some type may count on."""

    cpu: float
    memory_gb: float
    gpu: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)  #: others, by the names that a cluster has for them


class MachineTypes:
    """The table of machine types: Google's, with those of the operator over them."""

    def __init__(self, own: Mapping[str, MachineType] | None = None) -> None:
        self._own = dict(own or {})

    @classmethod
    def read(cls, tables: Mapping[str, Any]) -> Self:
        """From the tables `[machines.NAME]` of config.toml.

        `CannotProceedError`, naming the part, if one makes no sense.
        """
        return cls({name: _read(name, table) for name, table in tables.items()})

    def check(self, machine: str, *, field: str) -> None:
        """`InvalidArgumentError` if this server can't stand in for such a machine."""
        if machine in self._own:
            return
        if machine == _TPU:
            raise InvalidArgumentError(
                f"This server has no TPUs, and {machine} needs one. Use n1-standard-4, for example. "
                f"Machines of a cluster that have them can be named under [machines.NAME] in config.toml.",
                field=field,
            )
        if machine not in _OLD and not _N1.fullmatch(machine) and not _A2.fullmatch(machine):
            wrong = f"{machine!r} is not a machine type" if machine else "scale_tier CUSTOM needs a machine type here"
            raise InvalidArgumentError(
                f"{wrong}. Use n1-standard-4 or another of n1-standard, n1-highmem, n1-highcpu and a2-highgpu, or "
                f"one of {', '.join((*_OLD, *self._own))}.",
                field=field,
            )

    def family(self, machine: str) -> str:
        """The roles of one job can't mix Google's families. An operator's own machine has none."""
        return "old" if machine in _OLD else "" if machine in self._own else "new"

    def of(self, machine: str) -> MachineType:
        """What such a machine has. `InvalidArgumentError` if there is none of that name, or none any more."""
        self.check(machine, field="machine_type")
        if machine in self._own:
            return self._own[machine]
        if a2 := _A2.fullmatch(machine):
            return MachineType(cpu=_A2_CORES * int(a2[1]), memory_gb=_A2_GB * int(a2[1]), gpu=int(a2[1]))
        behind, gpus = _OLD.get(machine, (machine, 0))
        _, kind, cores = behind.split("-")
        return MachineType(cpu=int(cores), memory_gb=int(cores) * _GB_PER_CORE[kind], gpu=gpus)

    def serving(self, machine: str) -> MachineType:
        """What a host on such a machine has; the smallest if none is named. `InvalidArgumentError` as above."""
        if small := SMALL.fullmatch(machine or _SMALLEST):
            return MachineType(cpu=int(small[1]), memory_gb=int(small[2]))
        return self.of(machine)

    def __iter__(self) -> Iterator[str]:
        """The names, but for the old ones."""
        yield from dict.fromkeys((*self._own, *(f"n1-{kind}-{size}" for kind in _GB_PER_CORE for size in _SIZES)))


STANDARD = MachineTypes()  #: as Google has them


def _read(name: str, table: Any) -> MachineType:
    where = f"[machines.{name}] in config.toml"
    try:
        machine_name(name)
    except InvalidArgumentError as exc:
        raise CannotProceedError(f"{where}: {exc}") from exc
    known = ("cpu", "memory_gb", "gpu", "resources")
    if not isinstance(table, Mapping) or set(table) - set(known) or not {"cpu", "memory_gb"} <= set(table):
        raise CannotProceedError(
            f"{where} must have cpu and memory_gb, and can have gpu and resources, and nothing else."
        )
    others = table.get("resources", {})
    if not isinstance(others, Mapping):
        raise CannotProceedError(f"{where}: resources is a table of names and numbers, such as {{tpu = 1}}.")
    numbers = {key: table.get(key, 0) for key in ("cpu", "memory_gb", "gpu")}
    numbers |= {f"resources.{key}": others[key] for key in others}
    for key, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 1e9:
            raise CannotProceedError(f"{where}: {key} is {number!r}; it must be a number that is not negative.")
    return MachineType(cpu=table["cpu"], memory_gb=table["memory_gb"], gpu=table.get("gpu", 0), resources=dict(others))
