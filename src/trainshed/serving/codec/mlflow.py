"""Bodies of MLflow's scoring protocol: data frames besides the rows and columns of TensorFlow Serving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidInputsError
from ..loaders.base import Model
from ..loaders.tabular import TabularModel
from ..signatures import Tensor
from .json_documents import read_object
from .predictors import InstancePredictor, InstanceRequest, TensorPredictor
from .tensors import INSTANCES, SIGNATURE_NAME, TensorRequest, instances_of, resolve_signature, tensors_of
from .tf_serving import INPUTS, TfServingCodec, TfServingRequest, instances_of_columns

_SPLIT, _RECORDS = "dataframe_split", "dataframe_records"
_FORMS = (_SPLIT, _RECORDS, INSTANCES, INPUTS)
_PARAMS = "params"
_INSTANCES_KEY = b'"instances"'
_OTHER_KEYS = (b'"dataframe_', b'"inputs"', b'"params"')


class MlflowCodec(TfServingCodec):
    """Serves bodies of /invocations with the predictor of any model. Rows and columns answer as `predictions`."""

    columns_field = "predictions"

    def __init__(self, predictor: TensorPredictor | InstancePredictor, model: Model) -> None:
        super().__init__(predictor)
        self._table = model if isinstance(model, TabularModel) else None

    def read(self, body: bytes) -> TfServingRequest:
        """Parse a body. Raises `InvalidInputsError` if the model does not accept it."""
        if _INSTANCES_KEY in body and not any(key in body for key in _OTHER_KEYS):
            return super().read(body)
        document = read_object(body)
        given = [form for form in _FORMS if form in document]
        if len(given) != 1:
            raise InvalidInputsError(
                f"The body must have exactly one of {', '.join(_FORMS)}, and has {' and '.join(given) or 'none'}."
            )
        others = {name: value for name, value in document.items() if name != given[0]}
        self._check_params(others)
        return self.whole(self._request(given[0], document, others), columns=given[0] == INPUTS)

    def _check_params(self, others: dict[str, Any]) -> None:
        """Drop empty params. Only code of the user takes others."""
        if not others.get(_PARAMS):
            others.pop(_PARAMS, None)
        elif isinstance(self._predictor, TensorPredictor) or self._table is not None:
            raise InvalidInputsError('This model takes no "params": only code of your own does. Leave the field out.')

    def _request(
        self, form: str, document: Mapping[str, Any], others: dict[str, Any]
    ) -> TensorRequest | InstanceRequest:
        signature_name = others.get(SIGNATURE_NAME)
        if form == INPUTS:
            if isinstance(self._predictor, TensorPredictor):
                return self.columns(document[INPUTS], signature_name)
            return self._predictor.request_with(instances_of_columns(document[INPUTS]), others)
        if form == INSTANCES:
            instances = instances_of(document)
        else:
            frame = (_split if form == _SPLIT else _records)(document[form])
            instances = self._instances(frame, signature_name)
        if isinstance(self._predictor, TensorPredictor):
            return tensors_of(instances, signature_name, self._predictor.signatures)
        return self._predictor.request_with(instances, others)

    def _instances(self, frame: _Frame, signature_name: object) -> list[Any]:
        if isinstance(self._predictor, TensorPredictor):
            signatures = self._predictor.signatures
            inputs = signatures[resolve_signature(signature_name, signatures)].inputs
            return _values_of_only_input(frame, inputs) if len(inputs) == 1 else frame.objects()
        return frame.rows if self._table is not None and not self._table.names else frame.objects()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    columns: list[str] | None  #: names; None if they have none
    rows: list[list[Any]]

    def objects(self) -> list[Any]:
        """An object for each row. Without names of columns, the rows as they are."""
        columns = self.columns
        return self.rows if columns is None else [dict(zip(columns, row, strict=True)) for row in self.rows]


def _values_of_only_input(frame: _Frame, inputs: Mapping[str, Tensor]) -> list[Any]:
    """The value of each row for the only input of a model: its only column if that fits, else all columns as a list."""
    ((alias, tensor),) = inputs.items()
    if any(len(row) != 1 for row in frame.rows):
        return frame.rows
    one_number = tensor.shape is not None and len(tensor.shape) == 1
    if frame.columns == [alias] or one_number or any(type(row[0]) is list for row in frame.rows):
        return [row[0] for row in frame.rows]
    return frame.rows


def _split(value: Any) -> _Frame:
    """A frame with columns beside its rows. Columns that are left out or numbered, as pandas does, have no names."""
    if type(value) is not dict or type(rows := value.get("data")) is not list:
        raise InvalidInputsError(f'"{_SPLIT}" must be an object with "columns" and "data", a list of rows.')
    for at, row in enumerate(rows):
        if type(row) is not list:
            raise InvalidInputsError(f'Row {at} of "{_SPLIT}" must be a list of values.')
    columns = value.get("columns")
    if columns is None:
        return _Frame(columns=None, rows=rows)
    if type(columns) is not list or any(type(column) not in (str, int) for column in columns):
        raise InvalidInputsError(f'"columns" of "{_SPLIT}" must be a list of names.')
    for at, row in enumerate(rows):
        if len(row) != len(columns):
            raise InvalidInputsError(f'Row {at} of "{_SPLIT}" has {len(row)} values; there are {len(columns)} columns.')
    names = [str(column) for column in columns]
    if len(set(names)) < len(names):
        raise InvalidInputsError(f'"columns" of "{_SPLIT}" has a name twice. Give each column its own.')
    return _Frame(columns=None if columns == [*range(len(columns))] else names, rows=rows)


def _records(value: Any) -> _Frame:
    """A frame with an object for each row. A value that an object lacks is null, as in pandas."""
    if type(value) is not list or not all(type(row) is dict for row in value):
        raise InvalidInputsError(f'"{_RECORDS}" must be a list of objects, one for each row.')
    columns = list(dict.fromkeys(name for row in value for name in row))
    return _Frame(columns=columns, rows=[[row.get(name) for name in columns] for row in value])
