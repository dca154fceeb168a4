"""Tables in, JSON values out: shared by the loaders of scikit-learn, XGBoost, LightGBM and CatBoost."""

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
    """An `InstanceModel` whose instances are rows of a table. It can be explained."""

    detail: str
    merges: bool
    names: tuple[str, ...]  #: of the columns; empty if unknown
    width: int  #: number of columns; 0 if unknown

    def predict(self, instances: list[Any], /, **kwargs: Any) -> list[Any]: ...

    def rows(self, instances: list[Any]) -> NDArray[Any]:
        """The instances as a table. Raises `InvalidInputsError` if they are not rows."""

    def scores(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """A number for each row and label, from which the prediction follows."""


def table(instances: list[Any], *, names: Sequence[str], width: int) -> NDArray[Any]:
    """One row for each instance: of 64-bit floats if all values are numbers, else of objects.

    An instance is a list, or an object with a value for each of `names`. `width` is the number of columns, 0 if
    unknown. A null is a missing value. An instance gives the same row in every batch, except a row of numbers beside
    rows of words.
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
    """The value in JSON types. Raises `BadOutputsError` if it has no JSON form."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic | np.ndarray):
        values = value.tolist()
        return plain(values) if value.dtype.kind in "OSVMmc" else values
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    for conversion in ("toarray", "to_numpy", "tolist"):  # sparse matrices, data frames, array-likes
        if callable(method := getattr(value, conversion, None)):
            return plain(method())
    raise BadOutputsError(f"The model answered with a {type(value).__name__}, which has no form in JSON.")


def predictions(outputs: Any, *, count: int) -> list[Any]:
    """A model's outputs as one JSON value per instance. Raises `BadOutputsError` if the counts differ."""
    values = plain(outputs)
    if not isinstance(values, list) or len(values) != count:
        received = f"{len(values)} predictions" if isinstance(values, list) else f"a {type(values).__name__}"
        raise BadOutputsError(f"The model answered with {received} to {count} instances.")
    return values


def _row(at: int, instance: Any, *, names: Sequence[str], width: int) -> list[Any]:
    expected = f"a list of {width} values" if width else "a list of values"
    if isinstance(instance, dict):
        if not names:
            raise InvalidInputsError(f"Instance {at} is an object, but the model knows no names: expected {expected}.")
        if unknown := [key for key in instance if key not in names]:
            raise InvalidInputsError(f"Unexpected feature name: {unknown[0]}. Expected: {', '.join(names)}.")
        if missing := [name for name in names if name not in instance]:
            raise InvalidInputsError(f"Input {missing[0]} was missing in at least one input instance.")
        return [instance[name] for name in names]
    if not isinstance(instance, list):
        raise InvalidInputsError(f"Instance {at} is {_describe(instance)}; expected {expected}.")
    if width and len(instance) != width:
        raise InvalidInputsError(f"Instance {at} has {len(instance)} values; expected {width}.")
    if any(isinstance(value, list | dict) for value in instance):
        raise InvalidInputsError(f"Instance {at} holds lists or objects; expected {expected}.")
    return instance


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float)


def _describe(value: Any) -> str:
    if value is None:
        return "null"
    return "text" if isinstance(value, str) else "a bare value"
