"""TensorFlow Serving's REST bodies: rows and columns in, predictions and outputs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidInputsError
from .json_documents import read_object, write
from .predictors import InstancePredictor, InstanceRequest, TensorPredictor, split_predictions
from .tensors import INSTANCES, SIGNATURE_NAME, TensorRequest, json_values, tensors_of_columns

INPUTS = "inputs"
_INPUTS_KEY = b'"inputs"'


@dataclass(slots=True, kw_only=True)
class TfServingRequest:
    """Rows or columns. `key` keeps them apart from each other and from requests of other protocols."""

    request: TensorRequest | InstanceRequest
    columns: bool
    key: object

    @property
    def count(self) -> int:
        return self.request.count


class TfServingCodec:
    """Serves bodies of TensorFlow Serving with the predictor of any model."""

    columns_field = "outputs"  #: of the response to columns

    def __init__(self, predictor: TensorPredictor | InstancePredictor) -> None:
        self._predictor = predictor

    def read(self, body: bytes) -> TfServingRequest:
        """Parse a body. Raises `InvalidInputsError` if the model does not accept it."""
        if _INPUTS_KEY in body and INPUTS in (document := read_object(body)):
            if INSTANCES in document:
                raise InvalidInputsError(f'The body must have "{INSTANCES}" or "{INPUTS}", and has both.')
            return self.whole(self.columns(document[INPUTS], document.get(SIGNATURE_NAME)), columns=True)
        return self.whole(self._predictor.read(body), columns=False)

    def whole(self, request: TensorRequest | InstanceRequest, *, columns: bool) -> TfServingRequest:
        """The request with the form of its response."""
        return TfServingRequest(request=request, columns=columns, key=(type(self), columns, request.key))

    def run(self, requests: Sequence[TfServingRequest]) -> list[bytes]:
        """The responses to requests with equal keys, from one run of the model."""
        inner = [request.request for request in requests]
        if not requests[0].columns:
            return [write({"predictions": rows}) for rows in split_predictions(inner, self._rows(inner))]
        return [write({self.columns_field: outputs}) for outputs in self._outputs(inner)]

    def columns(self, inputs: Any, signature_name: object) -> TensorRequest | InstanceRequest:
        """A request of parsed columns."""
        if isinstance(self._predictor, TensorPredictor):
            return tensors_of_columns(inputs, signature_name, self._predictor.signatures)
        return self._predictor.request(instances_of_columns(inputs), "")

    def _rows(self, requests: Sequence[Any]) -> list[Any]:
        rows = self._predictor.predictions(requests)
        if isinstance(self._predictor, TensorPredictor) and rows and len(rows[0]) == 1:
            return [next(iter(row.values())) for row in rows]  # the only output has no name in rows
        return rows

    def _outputs(self, requests: Sequence[Any]) -> list[Any]:
        """The outputs for each request: of the only output its values, of several an object."""
        if isinstance(self._predictor, InstancePredictor):
            return split_predictions(requests, self._predictor.predictions(requests))
        results = []
        for arrays in self._predictor.split_outputs(requests):
            values = {alias: json_values(array, alias) for alias, array in arrays.items()}
            results.append(next(iter(values.values())) if len(values) == 1 else values)
        return results


def instances_of_columns(inputs: Any) -> list[Any]:
    """The instances in columns: of an object with lists, one object for each row; of a list, its items.

    Raises `InvalidInputsError` if the columns are not lists of equal length.
    """
    if type(inputs) is list:
        return inputs
    if type(inputs) is not dict or not inputs or not all(type(column) is list for column in inputs.values()):
        raise InvalidInputsError("The inputs must be a list, or an object with a list for each column.")
    if len({len(column) for column in inputs.values()}) > 1:
        raise InvalidInputsError("The columns of the inputs have different lengths.")
    return [dict(zip(inputs, row, strict=True)) for row in zip(*inputs.values(), strict=True)]
