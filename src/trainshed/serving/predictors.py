"""From the body of a request to the body of its answer, for one model: alone, or several requests in one run of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .codec import TensorRequest, columns, instances_of, tensor_request
from .documents import error_body, read_object, write
from .errors import BadOutputs, RunFailed, ServingError
from .loaders.base import InstanceModel, Model, TensorModel

Answer = tuple[int, bytes]  #: HTTP status and body


class Request(Protocol):
    """What a predictor made of a body."""

    @property
    def count(self) -> int:
        """Instances."""

    @property
    def key(self) -> object:
        """Requests with equal keys may be put together."""


class Predictor(Protocol):
    """Knows one model. `read` may be called by any thread, `run` by one at a time."""

    def read(self, body: bytes) -> Any:
        """A `Request`. `InvalidInputs` if the model can't take it."""

    def run(self, requests: Sequence[Any]) -> list[bytes]:
        """The answers to requests of one key, in one call of the model. A `ServingError` is for all of them."""


def predictor(model: Model) -> Predictor:
    return TensorPredictor(model) if isinstance(model, TensorModel) else InstancePredictor(model)


def failure(error: BaseException) -> Answer:
    """What is answered instead of predictions."""
    known = error if isinstance(error, ServingError) else RunFailed(f"{type(error).__name__}: {error}")
    return known.status, error_body(known.status, f"Prediction failed: {known}")


def predict(predictor: Predictor, body: bytes) -> Answer:
    """One request, alone. Raises nothing that is the model's fault."""
    try:
        return 200, predictor.run([predictor.read(body)])[0]
    except Exception as exc:  # noqa: BLE001 - whatever a model raises is its answer
        return failure(exc)


class TensorPredictor:
    """For models with signatures."""

    def __init__(self, model: TensorModel) -> None:
        self._model = model

    def read(self, body: bytes) -> TensorRequest:
        return tensor_request(body, self._model.signatures)

    def run(self, requests: Sequence[TensorRequest]) -> list[bytes]:
        first = requests[0]
        count = sum(request.count for request in requests)
        if not count:
            return [write({"predictions": []}) for _ in requests]
        inputs = first.inputs
        if len(requests) > 1:
            inputs = {name: np.concatenate([request.inputs[name] for request in requests]) for name in inputs}
        try:
            outputs = self._model.run(first.signature, inputs)
        except ServingError:
            raise
        except Exception as exc:
            raise RunFailed(f"Exception during running the graph: {exc or type(exc).__name__}") from exc
        values = columns(outputs, count)
        rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        if len(requests) == 1:
            return [write({"predictions": rows})]
        answers, at = [], 0
        for request in requests:
            answers.append(write({"predictions": rows[at : at + request.count]}))
            at += request.count
        return answers


@dataclass(slots=True, kw_only=True)
class InstanceRequest:
    instances: list[Any]
    others: dict[str, Any]  #: the other fields of the body
    key: object

    @property
    def count(self) -> int:
        return len(self.instances)


class InstancePredictor:
    """For models that take instances as they come."""

    def __init__(self, model: InstanceModel) -> None:
        self._model = model

    def read(self, body: bytes) -> InstanceRequest:
        document = read_object(body)
        instances = instances_of(document)
        others = {name: value for name, value in document.items() if name != "instances"}
        key = write(others) if self._model.merges else object()
        return InstanceRequest(instances=instances, others=others, key=key)

    def run(self, requests: Sequence[InstanceRequest]) -> list[bytes]:
        instances = [instance for request in requests for instance in request.instances]
        try:
            predictions = self._model.predict(instances, **requests[0].others)
        except ServingError:
            raise
        except Exception as exc:
            raise RunFailed(f"{type(exc).__name__}: {exc}") from exc
        if len(requests) == 1:
            return [write({"predictions": predictions})]
        if len(predictions) != len(instances):
            raise BadOutputs(f"The model answered with {len(predictions)} predictions to {len(instances)} instances.")
        answers, at = [], 0
        for request in requests:
            answers.append(write({"predictions": predictions[at : at + request.count]}))
            at += request.count
        return answers
