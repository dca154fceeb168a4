"""Resolution of requested versions to a runtime: a pure function of the request and the available runtimes."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass

from trainshed.errors import InvalidArgumentError
from trainshed.runtimes.catalogue import CATALOGUE, DEFAULT_RUNTIME, Runtime

_NUMBER = re.compile(r"(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]{0,2})")
_PYTHON = re.compile(r"2\.7|3\.(0|[1-9][0-9]?)")


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """The resolved runtime, and notes about it for the job's log and `describe`."""

    name: str
    notes: tuple[str, ...] = ()


def resolve(
    runtime_version: str | None,
    python_version: str | None,
    *,
    available: Container[str],
    catalogue: Mapping[str, Runtime] = CATALOGUE,
    what: str = "job",
) -> RuntimeChoice:
    """Resolve the requested versions to one of the `available` runtimes. `what` is the noun of the notes.

    Asks of no more runtimes than necessary whether they are available, which can take seconds.

    An unknown older version gets the nearest newer runtime. Raises `InvalidArgumentError`, which lists the runtimes, if
    the version is newer than all or malformed.
    """
    requested = runtime_version or DEFAULT_RUNTIME
    name = requested if requested in available else _nearest_newer(requested, available, catalogue)
    notes = (
        []
        if name == requested
        else [f"{_substitution_reason(requested, catalogue)}; this {what} runs on {name}, the nearest newer one."]
    )
    if python_version and not _PYTHON.fullmatch(python_version):
        raise InvalidArgumentError(
            f"{python_version!r} is not a Python version. {_list_available(available, catalogue)}",
            field="training_input.python_version",
        )
    if python_version and python_version != catalogue[name].python:
        python = catalogue[name].python
        notes.append(f"Python {python_version} is not offered on runtime {name}; this {what} runs on Python {python}.")
    return RuntimeChoice(name, tuple(notes))


def _nearest_newer(requested: str, available: Container[str], catalogue: Mapping[str, Runtime]) -> str:
    if _NUMBER.fullmatch(requested):
        newer = [name for name in catalogue if _NUMBER.fullmatch(name) and _number(name) > _number(requested)]
        for name in sorted(newer, key=_number):
            if name in available:
                return name
    if requested in catalogue:
        problem = f"Runtime {requested} needs Python {catalogue[requested].python}, which this machine does not have."
    elif _NUMBER.fullmatch(requested):
        problem = f"There is no runtime {requested} or newer."
    else:
        problem = f"{requested!r} is not a runtime version."
    raise InvalidArgumentError(
        f"{problem} {_list_available(available, catalogue)}", field="training_input.runtime_version"
    )


def _number(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split("."))


def _substitution_reason(requested: str, catalogue: Mapping[str, Runtime]) -> str:
    if requested in catalogue:
        return f"Runtime {requested} needs Python {catalogue[requested].python}, which this machine does not have"
    return f"Runtime {requested} is not offered any more"


def _list_available(available: Container[str], catalogue: Mapping[str, Runtime]) -> str:
    names = [f"{name} (Python {runtime.python})" for name, runtime in catalogue.items() if name in available]
    return f"The runtimes are: {', '.join(names)}." if names else "No runtime can be had on this machine."
