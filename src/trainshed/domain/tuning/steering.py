"""What people changed about a search while it runs: its bounds, points of their own, its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainshed.domain.tuning.hyperparameters import Tuning
from trainshed.domain.tuning.space import ParameterKind, ParameterSpec, Point, Space
from trainshed.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class OwnPoint:
    """A point that a person wants to try. It becomes the next trial."""

    number: int  #: in the order in which they were given
    point: Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """The changes of one search. The job itself stays as it was submitted."""

    max_trials: int | None = None  #: None: as submitted
    max_parallel: int | None = None
    finish: str = ""  #: why the search ends with the trials that it has; empty if it goes on
    points: tuple[OwnPoint, ...] = ()  #: that no trial has tried yet, the next one first

    def applied(self, tuning: Tuning) -> Tuning:
        """Return what the search is to do now."""
        return replace(
            tuning,
            max_trials=self.max_trials or tuning.max_trials,
            max_parallel=self.max_parallel or tuning.max_parallel,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringChange:
    """What a person changes about a search. What is not given stays."""

    max_trials: int | None = None
    max_parallel: int | None = None
    finish: str = ""  #: the first reason counts
    point: Point | None = None  #: to be tried behind those that wait
    message: str = ""  #: for the history of the job; empty: nothing that people have to know


def read_own_point(space: Space, values: Mapping[str, object], path: str) -> dict[str, float | int | str]:
    """Return a point that a person gave. Numbers may be texts, as command lines have them.

    Raises `InvalidArgumentError`, which names the parameter.
    """
    parameters = {parameter.name: parameter for parameter in space.all_parameters()}
    read = {
        name: _number(parameters[name], value, path) if name in parameters else value for name, value in values.items()
    }
    return space.read_point(read, path)


def _number(parameter: ParameterSpec, value: object, path: str) -> object:
    if not isinstance(value, str) or parameter.kind is ParameterKind.CATEGORICAL:
        return value
    try:
        return float(value)
    except ValueError:
        raise InvalidArgumentError(
            f"Parameter {parameter.name!r} can't be {value[:80]!r}. It is {parameter.describe()}.", field=path
        ) from None
