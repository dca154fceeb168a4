"""Predictors: from request bodies to response bodies, for one model, with one or several requests per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import BadOutputsError, ModelRunError, ServingError
from ..loaders.base import InstanceModel, Model, TensorModel
from .json_documents import read_object, write
from .responses import Answer, error_answer
from .tensors import (
    TensorRequest,
    check_count,
    columns,
    empty_outputs,
    instances_of,
    numeric_input,
    takes_text,
    tensor_request,
    tensors_of,
)

if TYPE_CHECKING:
    from ..loaders.base import Array


class PredictorRequest(Protocol):
    """A request that a predictor has parsed."""

    @property
    def count(self) -> int:
        """The number of instances."""

    @property
    def key(self) -> object:
        """Requests with equal keys can share a batch."""


class RequestCodec(Protocol):
    """Serves the requests of one protocol with one model. `read` is thread-safe; `run` is not."""

    def read(self, body: bytes) -> Any:
        """Parse a body to a `PredictorRequest`. Raises `InvalidInputsError` if the model does not accept it."""

    def run(self, requests: Sequence[Any]) -> list[bytes]:
        """The responses to requests with equal keys, from one run of the model.

        A `ServingError` applies to all of them.
        """


class Predictor(RequestCodec, Protocol):
    """Serves one model by ml v1's requests."""

    def outputs(self, requests: Sequence[Any]) -> Mapping[str, NDArray[Any]]:
        """Like `run`, but returns arrays by name, with one row for each instance of all requests."""

    def takes_text(self, signature: str) -> bool:
        """Whether a line of text is an instance by itself. An empty signature is the default."""

    def request(self, instances: list[Any], signature: str) -> Any:
        """Like `read`, for parsed instances."""

    def read_lines(self, lines: Sequence[bytes], signature: str) -> Any:
        """Like `read`, for lines that are one JSON instance each. Returns None if there is no fast path."""

    def predictions(self, requests: Sequence[Any]) -> list[Any]:
        """Like `run`, but returns one prediction per instance of all requests, not yet written as JSON."""


def predictor(model: Model) -> TensorPredictor | InstancePredictor:
    return TensorPredictor(model) if isinstance(model, TensorModel) else InstancePredictor(model)


def predict(predictor: Predictor, body: bytes) -> Answer:
    """Serve one request alone. Errors of the model become error responses."""
    try:
        return 200, predictor.run([predictor.read(body)])[0]
    except Exception as exc:  # noqa: BLE001 - every exception of a model becomes a response
        return error_answer(exc)


class TensorPredictor:
    """The predictor of models with signatures."""

    def __init__(self, model: TensorModel) -> None:
        self._model = model
        self.signatures = model.signatures
        self._numeric_input = numeric_input(model.signatures)

    def read(self, body: bytes) -> TensorRequest:
        request = self._numeric_input.read(body) if self._numeric_input is not None else None
        return request if request is not None else tensor_request(body, self._model.signatures)

    def run(self, requests: Sequence[TensorRequest]) -> list[bytes]:
        return _responses(requests, self.predictions(requests))

    def takes_text(self, signature: str) -> bool:
        return takes_text(signature, self._model.signatures)

    def request(self, instances: list[Any], signature: str) -> TensorRequest:
        return tensors_of(instances, signature, self._model.signatures)

    def read_lines(self, lines: Sequence[bytes], signature: str) -> TensorRequest | None:
        numeric = numeric_input(self._model.signatures, signature)
        return numeric.read_lines(lines) if numeric is not None else None

    def predictions(self, requests: Sequence[TensorRequest]) -> list[Any]:
        count = sum(request.count for request in requests)
        if not count:
            return []
        values = columns(self.outputs(requests), count)
        return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]

    def split_outputs(self, requests: Sequence[TensorRequest]) -> list[dict[str, Array]]:
        """The outputs for each request, from one run of the model.

        Raises `BadOutputsError` if those of several requests cannot be told apart by their first dimension.
        """
        outputs = self.outputs(requests)
        if len(requests) == 1:
            return [outputs]
        count = sum(request.count for request in requests)
        for alias, array in outputs.items():
            check_count(array, alias, count)
        ends = list(accumulate(request.count for request in requests))
        return [
            {alias: array[end - request.count : end] for alias, array in outputs.items()}
            for request, end in zip(requests, ends, strict=True)
        ]

    def outputs(self, requests: Sequence[TensorRequest]) -> dict[str, NDArray[Any]]:
        first = requests[0]
        if not any(request.count for request in requests):
            return empty_outputs(self.signatures[first.signature])
        inputs = first.inputs
        if len(requests) > 1:
            inputs = {name: np.concatenate([request.inputs[name] for request in requests]) for name in inputs}
        try:
            return self._model.run(first.signature, inputs)
        except ServingError:
            raise
        except Exception as exc:
            raise ModelRunError(f"Exception during running the graph: {exc or type(exc).__name__}") from exc


def split_predictions(requests: Sequence[PredictorRequest], predictions: list[Any]) -> list[list[Any]]:
    """The predictions for each request, from those for all of them."""
    if len(requests) == 1:
        return [predictions]
    parts, offset = [], 0
    for request in requests:
        parts.append(predictions[offset : offset + request.count])
        offset += request.count
    return parts


def _responses(requests: Sequence[PredictorRequest], predictions: list[Any]) -> list[bytes]:
    return [write({"predictions": part}) for part in split_predictions(requests, predictions)]


@dataclass(slots=True, kw_only=True)
class InstanceRequest:
    instances: list[Any]
    others: dict[str, Any]  #: the other fields of the body
    key: object

    @property
    def count(self) -> int:
        return len(self.instances)


class InstancePredictor:
    """The predictor of models that take instances as they are."""

    def __init__(self, model: InstanceModel) -> None:
        self._model = model

    def read(self, body: bytes) -> InstanceRequest:
        document = read_object(body)
        instances = instances_of(document)
        return self.request_with(instances, {k: v for k, v in document.items() if k != "instances"})

    def _key(self, others: dict[str, Any]) -> object:
        return write(others) if self._model.merges else object()

    def run(self, requests: Sequence[InstanceRequest]) -> list[bytes]:
        return _responses(requests, self.predictions(requests))

    def takes_text(self, signature: str) -> bool:
        return False

    def request(self, instances: list[Any], signature: str) -> InstanceRequest:
        return self.request_with(instances, {"signature_name": signature} if signature else {})

    def request_with(self, instances: list[Any], others: dict[str, Any]) -> InstanceRequest:
        """A request of parsed instances with the other fields of its body."""
        return InstanceRequest(instances=instances, others=others, key=self._key(others))

    def read_lines(self, lines: Sequence[bytes], signature: str) -> None:
        return None

    def outputs(self, requests: Sequence[InstanceRequest]) -> dict[str, NDArray[Any]]:
        predictions = self.predictions(requests)
        if predictions and all(isinstance(each, dict) and each.keys() == predictions[0].keys() for each in predictions):
            return {str(name): _array([each[name] for each in predictions]) for name in predictions[0]}
        return {"predictions": _array(predictions)}

    def predictions(self, requests: Sequence[InstanceRequest]) -> list[Any]:
        instances = [instance for request in requests for instance in request.instances]
        if not instances and self._model.merges:  # so that the result does not depend on the batch
            return []
        try:
            predictions = self._model.predict(instances, **requests[0].others)
        except ServingError:
            raise
        except Exception as exc:
            raise ModelRunError(f"{type(exc).__name__}: {exc}") from exc
        if len(requests) > 1 and len(predictions) != len(instances):
            raise BadOutputsError(
                f"The model answered with {len(predictions)} predictions to {len(instances)} instances."
            )
        return predictions


def _array(values: list[Any]) -> NDArray[Any]:
    """JSON values as an array: of numbers or strings if they all are and have one shape, else of objects."""
    try:
        array = np.asarray(values)
    except ValueError:  # of different lengths
        array = np.asarray(None)
    if array.dtype.kind in "biufU":
        return array
    objects = np.empty(len(values), object)
    for at, value in enumerate(values):
        objects[at] = value
    return objects
