"""Parameter spaces as Python values: (low, high), (low, high, "log"), or a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainshed.errors import InvalidArgumentError

#: how a parameter is written: (low, high), (low, high, "log"), or a list of texts or numbers
ParameterRange = tuple[float, float] | tuple[float, float, str] | Sequence[str] | Sequence[float]

SCALES = {"linear": "UNIT_LINEAR_SCALE", "log": "UNIT_LOG_SCALE", "reverse log": "UNIT_REVERSE_LOG_SCALE"}
ALGORITHMS = {"bayesian": "ALGORITHM_UNSPECIFIED", "random": "RANDOM_SEARCH", "grid": "GRID_SEARCH"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRange:
    """A parameter in the API's words. It has bounds or values."""

    kind: str  #: INTEGER, DOUBLE, CATEGORICAL or DISCRETE
    bounds: tuple[float, float] | None = None
    values: tuple[str | float, ...] = ()
    scale: str = ""  #: empty: none was given


def read_range(name: str, values: ParameterRange) -> ReadRange:
    """Read one parameter of a space. Raises `InvalidArgumentError`, which names it."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidArgumentError(f"Parameter {name!r} is (low, high), (low, high, 'log') or a list; not {values!r}.")
    if isinstance(values, tuple) and len(values) in (2, 3) and not isinstance(values[0], str):
        low, high, *scale = values
        if scale and scale[0] not in SCALES:
            raise InvalidArgumentError(f"The scale of {name!r} is one of {', '.join(SCALES)}; {scale[0]!r} is not.")
        whole = isinstance(low, int) and isinstance(high, int)
        kind = "INTEGER" if whole else "DOUBLE"
        return ReadRange(kind=kind, bounds=(low, high), scale=SCALES[str(scale[0])] if scale else "")
    kind = "CATEGORICAL" if all(isinstance(value, str) for value in values) else "DISCRETE"
    return ReadRange(kind=kind, values=tuple(values))


def algorithm_word(name: str) -> str:
    """Return the API's word for an algorithm. Raises `InvalidArgumentError` for an unknown one."""
    if name not in ALGORITHMS:
        raise InvalidArgumentError(f"The algorithm is one of {', '.join(ALGORITHMS)}; {name!r} is not.")
    return ALGORITHMS[name]


def hyperparameter(name: str, values: ParameterRange) -> dict[str, object]:
    """Return a parameter of a tuning job, as in the API."""
    read = read_range(name, values)
    body: dict[str, object] = {"parameterName": name, "type": read.kind}
    if read.bounds is not None:
        body |= {"minValue": read.bounds[0], "maxValue": read.bounds[1]}
        return body | ({"scaleType": read.scale} if read.scale else {})
    return body | {"categoricalValues" if read.kind == "CATEGORICAL" else "discreteValues": list(read.values)}
