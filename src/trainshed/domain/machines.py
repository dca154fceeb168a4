"""Machine types: the names that users know, and the cores that each stands for. Nothing here has GPUs or TPUs."""

from __future__ import annotations

import re

from trainshed.errors import Invalid

_N1 = re.compile(r"n1-(?:standard|highmem|highcpu)-(1|2|4|8|16|32|64|96)")
_ACCELERATED = re.compile(r".*_(gpu|p100|v100)|a2-.*|g2-.*|cloud_tpu")

#: the old names, and the cores of the machines behind them
_OLD = {"standard": 4, "large_model": 8, "complex_model_s": 8, "complex_model_m": 16, "complex_model_l": 32}


def check(machine: str, *, field: str) -> None:
    """`Invalid` if this server can't stand in for such a machine."""
    if _ACCELERATED.fullmatch(machine):
        raise Invalid(
            f"This server has no GPUs or TPUs, and {machine} needs one. Use n1-standard-4, for example.", field=field
        )
    if machine not in _OLD and not _N1.fullmatch(machine):
        wrong = f"{machine!r} is not a machine type" if machine else "scale_tier CUSTOM needs a machine type here"
        raise Invalid(
            f"{wrong}. Use n1-standard-4 or another of n1-standard, n1-highmem and n1-highcpu, or one of "
            f"{', '.join(_OLD)}.",
            field=field,
        )


def family(machine: str) -> str:
    """The roles of one job can't mix families."""
    return "old" if machine in _OLD else "n1"


def cores(machine: str) -> int:
    """The cores of a machine that `check` let through."""
    return _OLD[machine] if machine in _OLD else int(machine.rpartition("-")[2])


_GB_PER_CORE = {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9}


def memory_gb(machine: str) -> float:
    """The memory of a machine that `check` let through."""
    kind = "standard" if machine in _OLD else machine.split("-")[1]
    return cores(machine) * _GB_PER_CORE[kind]
