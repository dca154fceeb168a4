"""Infer requests of the Open Inference Protocol V2, in JSON and with its extension for binary tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidInputsError
from ..frames import BadFrameError, pack_infer, unpack_infer
from .infer_tensors import BINARY_SIZE, TensorReader, fitted, written
from .json_documents import read_object, write
from .predictors import InstancePredictor, InstanceRequest, TensorPredictor, split_predictions
from .tensors import SIGNATURE_NAME, TensorRequest, request_of, resolve_signature
from .tf_serving import instances_of_columns

if TYPE_CHECKING:
    from ..loaders.base import Array

PREDICT = "predict"  #: the name of the output of a model without signatures, as in MLServer


@dataclass(slots=True, kw_only=True)
class InferRequest:
    """A request with what its response must have. `key` keeps it apart from requests of other protocols."""

    request: TensorRequest | InstanceRequest
    key: object
    id: str | None
    outputs: tuple[tuple[str, bool], ...]  #: names, and whether they are binary; empty: all
    binary: bool  #: whether outputs that are not named are binary

    @property
    def count(self) -> int:
        return self.request.count


class InferCodec:
    """Serves infer requests with the predictor of any model."""

    def __init__(self, predictor: TensorPredictor | InstancePredictor, *, model: str, version: str) -> None:
        self._predictor = predictor
        self._names = {"model_name": model, "model_version": version}

    def read(self, body: bytes) -> InferRequest:
        """Parse a body. Raises `InvalidInputsError` if the model does not accept it."""
        document, binary = _parts(body)
        parameters = _object(document, "parameters")
        reader = TensorReader(binary)
        arrays: dict[str, Array] = {}
        for fields in _objects(document, "inputs"):
            array = reader.read(fields)
            if fields["name"] in arrays:
                raise InvalidInputsError(f'There are two inputs with the name "{fields["name"]}".')
            arrays[fields["name"]] = array
        reader.finish()
        if not arrays:
            raise InvalidInputsError('The field "inputs" must have an item for each input of the model.')
        whole = bool(parameters.get("binary_data_output"))
        request = self._request(arrays, parameters.get(SIGNATURE_NAME))
        outputs = tuple(_requested(fields, whole) for fields in _objects(document, "outputs"))
        self._check_outputs(outputs, request)
        given = document.get("id")
        if given is not None and type(given) is not str:
            raise InvalidInputsError('The field "id" must be a string.')
        key = (InferCodec, request.key)
        return InferRequest(request=request, key=key, id=given, outputs=outputs, binary=whole)

    def run(self, requests: Sequence[InferRequest]) -> list[bytes]:
        """The responses to requests with equal keys, from one run of the model."""
        inner: list[Any] = [request.request for request in requests]
        if isinstance(self._predictor, TensorPredictor):
            results = self._predictor.split_outputs(inner)
        else:
            parts = split_predictions(inner, self._predictor.predictions(inner))
            results = [arrays_of_predictions(part) for part in parts]
        return [self._response(request, arrays) for request, arrays in zip(requests, results, strict=True)]

    def _request(self, arrays: dict[str, Array], signature_name: object) -> TensorRequest | InstanceRequest:
        if isinstance(self._predictor, InstancePredictor):
            return self._predictor.request(instances_of_arrays(arrays), "")
        name = resolve_signature(signature_name, self._predictor.signatures)
        signature = self._predictor.signatures[name]
        if len(arrays) == len(signature.inputs) == 1:  # clients of other servers know the input by other names
            arrays = dict(zip(signature.inputs, arrays.values(), strict=True))
        if arrays.keys() != signature.inputs.keys():
            given, known = ", ".join(arrays), ", ".join(signature.inputs)
            raise InvalidInputsError(f"Input mismatch: the model takes {known}, but {given} came.")
        inputs = {alias: fitted(arrays[alias], alias, tensor) for alias, tensor in signature.inputs.items()}
        return request_of(name, inputs, signature)

    def _check_outputs(self, outputs: Sequence[tuple[str, bool]], request: TensorRequest | InstanceRequest) -> None:
        if isinstance(request, InstanceRequest) or isinstance(self._predictor, InstancePredictor):
            return  # it is known when the model has run
        known = self._predictor.signatures[request.signature].outputs
        if unknown := [name for name, _ in outputs if name not in known]:
            raise InvalidInputsError(f"There is no output {unknown[0]}. The model has: {', '.join(known)}.")

    def _response(self, request: InferRequest, arrays: Mapping[str, Array]) -> bytes:
        wanted = request.outputs or tuple((name, request.binary) for name in arrays)
        if len(wanted) == len(arrays) == 1 and isinstance(self._predictor, InstancePredictor):
            arrays = {wanted[0][0]: next(iter(arrays.values()))}
        if unknown := [name for name, _ in wanted if name not in arrays]:
            raise InvalidInputsError(f"There is no output {unknown[0]}. The model has: {', '.join(arrays)}.")
        tensors = [written(arrays[name], name, binary=binary) for name, binary in wanted]
        document: dict[str, Any] = {**self._names, "outputs": [fields for fields, _ in tensors]}
        if request.id is not None:
            document["id"] = request.id
        is_binary = any(binary for _, binary in wanted)
        return pack_infer(write(document), b"".join(data for _, data in tensors) if is_binary else None)


def instances_of_arrays(arrays: Mapping[str, Array]) -> list[Any]:
    """The instances in tensors: of the only one, its rows; of several, one object for each row."""
    columns = {name: _json_values(array) for name, array in arrays.items()}
    if len(columns) > 1:
        return instances_of_columns(columns)
    (values,) = columns.values()
    return values if type(values) is list else [values]


def _json_values(array: Array) -> Any:
    """The values in JSON form. A column of a table may have a second dimension of 1."""
    if array.dtype.kind == "O":
        return _decoded(array.tolist())
    return array.tolist()


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidInputsError("This model takes text, and an element of BYTES is not UTF-8.") from None


def arrays_of_predictions(predictions: list[Any]) -> dict[str, Array]:
    """Predictions as outputs: one for each key if all are objects with the same keys, else one."""
    first = predictions[0] if predictions else None
    if type(first) is dict and first and all(type(p) is dict and p.keys() == first.keys() for p in predictions):
        return {name: _column([prediction[name] for prediction in predictions]) for name in first}
    return {PREDICT: _column(predictions)}


def _column(values: list[Any]) -> Array:
    """Numbers as they are and strings as bytes. Everything else becomes its JSON text."""
    if not all(type(value) is str for value in values):
        try:
            numbers = np.array(values)
        except (ValueError, OverflowError):  # lists of different lengths
            numbers = np.empty(0, object)
        if numbers.dtype.kind in "biuf":
            return numbers
    array = np.empty(len(values), object)
    array[:] = [value.encode() if type(value) is str else write(value) for value in values]
    return array


def _parts(body: bytes) -> tuple[dict[str, Any], memoryview]:
    """The JSON document of a request and its binary data.

    A client may send the length of another request's JSON with a body that has no binary data. It is ignored then.
    """
    try:
        length, payload = unpack_infer(body)
    except BadFrameError as exc:
        raise InvalidInputsError(str(exc)) from exc
    if not 0 < length < len(payload):
        document = read_object(bytes(payload))
        if 0 < length != len(payload) and _has_binary(document):
            raise InvalidInputsError(f"Inference-Header-Content-Length is {length:,} of {len(payload):,} bytes.")
        return document, memoryview(b"")
    try:
        document = read_object(bytes(payload[:length]))
    except InvalidInputsError:
        document = {}
    if _has_binary(document):
        return document, payload[length:]
    document = read_object(bytes(payload))
    return document, memoryview(b"")


def _has_binary(document: Mapping[str, Any]) -> bool:
    inputs = document.get("inputs")
    return type(inputs) is list and any(BINARY_SIZE in _object(item, "parameters") for item in inputs)


def _object(value: Any, name: str) -> dict[str, Any]:
    """A field that is an object. Anything else is an empty one."""
    field = value.get(name) if type(value) is dict else None
    return field if type(field) is dict else {}


def _objects(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    items = document.get(name, [])
    if type(items) is not list or not all(type(item) is dict for item in items):
        raise InvalidInputsError(f'The field "{name}" must be a list of objects.')
    return items


def _requested(fields: Mapping[str, Any], whole: bool) -> tuple[str, bool]:
    name = fields.get("name")
    if type(name) is not str:
        raise InvalidInputsError("Every output must have a name, which is a string.")
    return name, bool(_object(fields, "parameters").get("binary_data", whole))
