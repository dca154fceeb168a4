"""Which runtime a job gets for the numbers it asks for. A function of these and of what can be had, nothing else."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from trainshed.errors import InvalidArgumentError
from trainshed.runtimes.catalogue import CATALOGUE, DEFAULT, Runtime

_NUMBER = re.compile(r"(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]{0,2})")
_PYTHON = re.compile(r"2\.7|3\.(0|[1-9][0-9]?)")


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """The runtime a job runs on, and what the user should know about it: sentences for the log and for `describe`."""

    name: str
    notes: tuple[str, ...] = ()


def resolve(
    runtime_version: str | None,
    python_version: str | None,
    *,
    available: Collection[str],
    catalogue: Mapping[str, Runtime] = CATALOGUE,
    what: str = "job",
) -> RuntimeChoice:
    """The runtime for what a job asks for, of those `available` on this machine. Notes speak of `what` it is for.

    An old number gets the nearest newer runtime. `InvalidArgumentError`, listing those there are, for a number newer
    than all and for what is no number.
    """
    asked = runtime_version or DEFAULT
    name = asked if asked in available else _nearest_newer(asked, available, catalogue)
    notes = (
        []
        if name == asked
        else [f"{_why_another(asked, catalogue)}; this {what} runs on {name}, the nearest newer one."]
    )
    if python_version and not _PYTHON.fullmatch(python_version):
        raise InvalidArgumentError(
            f"{python_version!r} is not a Python version. {_offer(available, catalogue)}",
            field="training_input.python_version",
        )
    if python_version and python_version != catalogue[name].python:
        has = catalogue[name].python
        notes.append(f"Python {python_version} is not offered on runtime {name}; this {what} runs on Python {has}.")
    return RuntimeChoice(name, tuple(notes))


def _nearest_newer(asked: str, available: Collection[str], catalogue: Mapping[str, Runtime]) -> str:
    if _NUMBER.fullmatch(asked):
        newer = [name for name in available if _NUMBER.fullmatch(name) and _number(name) > _number(asked)]
        if newer:
            return min(newer, key=_number)
    if asked in catalogue:
        problem = f"Runtime {asked} needs Python {catalogue[asked].python}, which this machine does not have."
    elif _NUMBER.fullmatch(asked):
        problem = f"There is no runtime {asked} or newer."
    else:
        problem = f"{asked!r} is not a runtime version."
    raise InvalidArgumentError(f"{problem} {_offer(available, catalogue)}", field="training_input.runtime_version")


def _number(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split("."))


def _why_another(asked: str, catalogue: Mapping[str, Runtime]) -> str:
    if asked in catalogue:
        return f"Runtime {asked} needs Python {catalogue[asked].python}, which this machine does not have"
    return f"Runtime {asked} is not offered any more"


def _offer(available: Collection[str], catalogue: Mapping[str, Runtime]) -> str:
    names = [f"{name} (Python {runtime.python})" for name, runtime in catalogue.items() if name in available]
    return f"The runtimes are: {', '.join(names)}." if names else "No runtime can be had on this machine."
