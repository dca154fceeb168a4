"""Folders of MLflow that need MLflow itself: whatever `mlflow.pyfunc.load_model` loads.

MLflow comes with the version's own packages. It puts the folder's `code` on the path, in the host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # it would report the loading of a model to MLflow's makers

import mlflow
import mlflow.pyfunc
import numpy as np
import pandas
from mlflow.exceptions import MlflowException
from mlflow.types import DataType

from ..errors import BadOutputsError, InvalidInputsError, LoaderError, UserCodeError
from ..signatures import DEFAULT, DTYPES, STRING, Signature, Tensor
from ..spec import ServingSpec
from .base import Model
from .tabular import plain

if TYPE_CHECKING:
    from .base import Array

INPUT, OUTPUT = "inputs", "output"  #: names of the only tensors of a signature, if it names none
_CALLERS_FAULT = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST"}
_DTYPES = set(DTYPES.values()) - {STRING, "bfloat16"}
_USER_ERRORS = (Exception, SystemExit)  #: a model may run any code
#: columns of these types are converted as MLflow's own scoring server does
_COLUMN_DTYPES = {
    DataType.boolean: "bool",
    DataType.integer: "int32",
    DataType.long: "int64",
    DataType.float: "float32",
    DataType.double: "float64",
    DataType.datetime: "datetime64[ns]",
}


def load(spec: ServingSpec) -> Model:
    """The model with the signature of its `MLmodel` if that has tensors alone, else one that takes instances."""
    try:
        model = mlflow.pyfunc.load_model(str(spec.model_dir))
    except _USER_ERRORS as exc:
        raise LoaderError(f"MLflow {mlflow.__version__} can't load the model: {type(exc).__name__}: {exc}") from exc
    signature = _signature(model.metadata.signature)
    return PyfuncModel(model) if signature is None else PyfuncTensorModel(model, signature)


class PyfuncTensorModel:
    """A model whose `MLmodel` has tensors with names, or one without, on both sides."""

    def __init__(self, model: Any, signature: Signature) -> None:
        self.detail = _detail(model)
        self.signatures: Mapping[str, Signature] = {DEFAULT: signature}
        self._model = model
        self._named = model.metadata.get_input_schema().has_input_names()

    def run(self, signature: str, inputs: dict[str, Array]) -> dict[str, Array]:
        arrays = {name: _of_text(array) if array.dtype == object else array for name, array in inputs.items()}
        results = _predict(self._model, arrays if self._named else next(iter(arrays.values())), None)
        tensors = self.signatures[signature].outputs
        if isinstance(results, pandas.DataFrame) and len(tensors) > 1:
            results = {name: results[name].to_numpy() for name in results}
        if not isinstance(results, Mapping):
            if len(tensors) > 1:
                raise BadOutputsError(f"The model returned a {type(results).__name__}; expected {', '.join(tensors)}.")
            results = dict.fromkeys(tensors, results)
        if missing := [name for name in tensors if name not in results]:
            raise BadOutputsError(f"The model returned no output {missing[0]}, which its signature has.")
        return {name: _array(name, results[name], tensor) for name, tensor in tensors.items()}


class PyfuncModel:
    """A model that takes a data frame, or whatever its code takes. Requests are not batched: it may depend on all."""

    merges = False

    def __init__(self, model: Any) -> None:
        self.detail = _detail(model)
        self._model = model
        self._schema = model.metadata.get_input_schema()

    def predict(self, instances: list[Any], /, **kwargs: Any) -> list[Any]:
        params = kwargs.pop("params", None)
        if kwargs:
            raise InvalidInputsError(f'A model of MLflow takes no field "{min(kwargs)}". Its arguments are "params".')
        if params is not None and not isinstance(params, dict):
            raise InvalidInputsError('"params" must be an object.')
        outputs = _predict(self._model, self._input(instances), params)
        values = outputs.to_dict("records") if isinstance(outputs, pandas.DataFrame) else outputs
        if not isinstance(values := plain(values), list):
            raise BadOutputsError(f"The model must return one prediction for each row, and not a {type(outputs)}.")
        return values

    def _input(self, instances: list[Any]) -> Any:
        schema = self._schema
        objects = bool(instances) and all(isinstance(each, dict) for each in instances)
        if schema is None:
            return pandas.DataFrame(instances) if objects else _rows(instances, None)
        if schema.is_tensor_spec():
            if not schema.has_input_names():
                return _rows(instances, schema.inputs[0].type)
            columns = pandas.DataFrame(instances) if objects else None
            if columns is None:
                raise InvalidInputsError(f"Each instance must be an object with {', '.join(schema.input_names())}.")
            return {
                spec.name: _rows(columns[spec.name].tolist(), spec.type)
                for spec in schema.inputs
                if spec.name in columns
            }
        return self._frame(instances, objects)

    def _frame(self, instances: list[Any], objects: bool) -> pandas.DataFrame:
        """A table with columns of the signature's types. Columns that it does not have are MLflow's to refuse."""
        specs = self._schema.inputs
        names = [spec.name for spec in specs] if self._schema.has_input_names() else None
        if objects:
            frame = pandas.DataFrame(instances)
        else:
            rows = [each if isinstance(each, list) else [each] for each in instances]
            if any(len(row) != len(specs) for row in rows):
                raise InvalidInputsError(f"Each instance must have {len(specs)} values, or be an object with them.")
            frame = pandas.DataFrame(rows, columns=names or range(len(specs)))
        for at, spec in enumerate(specs):
            column = spec.name if names else at
            if column in frame and (dtype := _COLUMN_DTYPES.get(spec.type)):
                try:
                    frame[column] = frame[column].astype(dtype)
                except _USER_ERRORS as exc:
                    raise InvalidInputsError(f"Column {column} must be of type {spec.type.name}: {exc}") from exc
        return frame


def _predict(model: Any, values: Any, params: dict[str, Any] | None) -> Any:
    try:
        return model.predict(values, params=params)
    except MlflowException as exc:
        if exc.error_code in _CALLERS_FAULT:
            raise InvalidInputsError(f"MLflow refuses the input: {exc.message}") from exc
        raise UserCodeError(f"The model failed: {exc.message}") from exc
    except _USER_ERRORS as exc:
        raise UserCodeError(f"The model failed: {type(exc).__name__}: {exc}") from exc


def _detail(model: Any) -> str:
    loader = model.metadata.flavors["python_function"]["loader_module"]
    return f"MLflow {mlflow.__version__} ({loader})"


def _signature(signature: Any) -> Signature | None:
    """The signature of tensors in an `MLmodel`. None if it has none, or columns, or types that have no form here."""
    if signature is None or signature.inputs is None or signature.outputs is None:
        return None
    inputs, outputs = _tensors(signature.inputs, INPUT), _tensors(signature.outputs, OUTPUT)
    return Signature(inputs=inputs, outputs=outputs) if inputs and outputs else None


def _tensors(schema: Any, unnamed: str) -> dict[str, Tensor]:
    if not schema.is_tensor_spec():
        return {}
    found = {}
    for spec in schema.inputs:
        dtype = STRING if spec.type.kind in "OSU" else spec.type.name
        if dtype != STRING and dtype not in _DTYPES:
            return {}
        found[spec.name or unnamed] = Tensor(dtype=dtype, shape=tuple(spec.shape))
    return dict(sorted(found.items()))


def _rows(values: list[Any], dtype: Any) -> Array:
    try:
        return np.array(values, None if dtype is None else object if dtype.kind in "OSU" else dtype)
    except (ValueError, TypeError, OverflowError) as exc:
        raise InvalidInputsError(f"The instances are no tensor: {exc}") from exc


def _of_text(array: Array) -> Array:
    try:
        return np.array([each.decode() for each in array.ravel().tolist()], object).reshape(array.shape)
    except UnicodeDecodeError as exc:
        raise InvalidInputsError("This model takes text, and an element is not UTF-8.") from exc


def _array(name: str, values: Any, tensor: Tensor) -> Array:
    array = np.asarray(values)
    if tensor.dtype != STRING:
        if array.dtype.kind not in "biufc":
            raise BadOutputsError(f"Output {name} has the type {array.dtype}; its signature says {tensor.dtype}.")
        return array.astype(tensor.dtype, copy=False)
    texts = [each if isinstance(each, bytes) else str(each).encode() for each in array.ravel().tolist()]
    words = np.empty(len(texts), object)
    words[:] = texts
    return words.reshape(array.shape)
