"""Rows in and plain values out, for the frameworks that take tables: what scikit-learn and XGBoost share."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..errors import BadOutputsError, InvalidInputsError


@runtime_checkable
class TabularModel(Protocol):
    """An `InstanceModel` whose instances are rows of a table, which can be explained."""

    detail: str
    merges: bool
    names: tuple[str, ...]  #: of the columns; empty if the model does not know them
    width: int  #: the number of columns; 0 if the model does not say

    def predict(self, instances: list[Any], /, **kwargs: Any) -> list[Any]: ...

    def rows(self, instances: list[Any]) -> NDArray[Any]:
        """The instances as a table. Raises InvalidInputs for what is none."""

    def scores(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """A number for each row and label: what the model's answer is made of."""


def table(instances: list[Any], *, names: Sequence[str], width: int) -> NDArray[Any]:
    """One row for each instance: of 64-bit floats if all values are numbers, else of objects.

    An instance is a list, or an object with a value for each of `names`. `width` is the number of values that the
    model takes, 0 if it does not say. A null is a missing value. The same instance is the same row whatever instances
    stand beside it, but for rows of numbers that stand beside rows of words.
    """
    if not instances:
        return np.empty((0, width))
    rows = [_row(at, instance, names=names, width=width) for at, instance in enumerate(instances)]
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        at = next(at for at, row in enumerate(rows) if len(row) != len(rows[0]))
        raise InvalidInputsError(f"Instance 0 has {len(rows[0])} values and instance {at} has {len(rows[at])}.")
    if all(_is_number(value) for row in rows for value in row):
        return np.array([[math.nan if value is None else value for value in row] for row in rows], np.float64)
    values = np.empty((len(rows), len(rows[0])), object)
    values[:] = rows
    return values


def plain(value: Any) -> Any:
    """The same value made of what JSON has. Raises BadOutputs for what has no such form."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic | np.ndarray):
        given = value.tolist()
        return plain(given) if value.dtype.kind in "OSVMmc" else given
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    for turn in ("toarray", "to_numpy", "tolist"):  # sparse matrices, data frames, what behaves like an array
        if callable(method := getattr(value, turn, None)):
            return plain(method())
    raise BadOutputsError(f"The model answered with a {type(value).__name__}, which has no form in JSON.")


def predictions(answer: Any, *, count: int) -> list[Any]:
    """A model's answer as one plain value for each instance. Raises BadOutputs if it has not one for each."""
    values = plain(answer)
    if not isinstance(values, list) or len(values) != count:
        given = f"{len(values)} predictions" if isinstance(values, list) else f"a {type(values).__name__}"
        raise BadOutputsError(f"The model answered with {given} to {count} instances.")
    return values


def _row(at: int, instance: Any, *, names: Sequence[str], width: int) -> list[Any]:
    expected = f"a list of {width} values" if width else "a list of values"
    if isinstance(instance, dict):
        if not names:
            raise InvalidInputsError(f"Instance {at} is an object, but the model knows no names: expected {expected}.")
        if strange := [key for key in instance if key not in names]:
            raise InvalidInputsError(f"Unexpected feature name: {strange[0]}. Expected: {', '.join(names)}.")
        if missing := [name for name in names if name not in instance]:
            raise InvalidInputsError(f"Input {missing[0]} was missing in at least one input instance.")
        return [instance[name] for name in names]
    if not isinstance(instance, list):
        raise InvalidInputsError(f"Instance {at} is {_kind(instance)}; expected {expected}.")
    if width and len(instance) != width:
        raise InvalidInputsError(f"Instance {at} has {len(instance)} values; expected {width}.")
    if any(isinstance(value, list | dict) for value in instance):
        raise InvalidInputsError(f"Instance {at} holds lists or objects; expected {expected}.")
    return instance


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return "text" if isinstance(value, str) else "a bare value"
