"""From the body of a request to the body of its answer, for one model: alone, or several requests in one run of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..errors import BadOutputsError, ModelRunError, ServingError
from ..loaders.base import InstanceModel, Model, TensorModel
from .json_documents import read_object, write
from .responses import Answer, error_answer
from .tensors import TensorRequest, columns, instances_of, plain_input, takes_text, tensor_request, tensors_of


class PredictorRequest(Protocol):
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
        """A `PredictorRequest`. `InvalidInputsError` if the model can't take it."""

    def run(self, requests: Sequence[Any]) -> list[bytes]:
        """The answers to requests of one key, in one call of the model. A `ServingError` is for all of them."""

    def takes_text(self, signature: str) -> bool:
        """Whether a line of text is an instance as it stands. An empty signature is the default one."""

    def request(self, instances: list[Any], signature: str) -> Any:
        """As `read`, of instances that were parsed before."""

    def read_lines(self, lines: Sequence[bytes], signature: str) -> Any:
        """As `read`, of lines that are an instance in JSON each, if that is quickly done; None if not."""

    def predictions(self, requests: Sequence[Any]) -> list[Any]:
        """As `run`: the predictions for the instances of all requests, one for each, not yet written as JSON."""


def predictor(model: Model) -> Predictor:
    return TensorPredictor(model) if isinstance(model, TensorModel) else InstancePredictor(model)


def predict(predictor: Predictor, body: bytes) -> Answer:
    """One request, alone. Raises nothing that is the model's fault."""
    try:
        return 200, predictor.run([predictor.read(body)])[0]
    except Exception as exc:  # noqa: BLE001 - whatever a model raises is its answer
        return error_answer(exc)


class TensorPredictor:
    """For models with signatures."""

    def __init__(self, model: TensorModel) -> None:
        self._model = model
        self._plain = plain_input(model.signatures)

    def read(self, body: bytes) -> TensorRequest:
        request = self._plain.read(body) if self._plain is not None else None
        return request if request is not None else tensor_request(body, self._model.signatures)

    def run(self, requests: Sequence[TensorRequest]) -> list[bytes]:
        return _written(requests, self.predictions(requests))

    def takes_text(self, signature: str) -> bool:
        return takes_text(signature, self._model.signatures)

    def request(self, instances: list[Any], signature: str) -> TensorRequest:
        return tensors_of(instances, signature, self._model.signatures)

    def read_lines(self, lines: Sequence[bytes], signature: str) -> TensorRequest | None:
        plain = plain_input(self._model.signatures, signature)
        return plain.read_lines(lines) if plain is not None else None

    def predictions(self, requests: Sequence[TensorRequest]) -> list[Any]:
        first = requests[0]
        count = sum(request.count for request in requests)
        if not count:
            return []
        inputs = first.inputs
        if len(requests) > 1:
            inputs = {name: np.concatenate([request.inputs[name] for request in requests]) for name in inputs}
        try:
            outputs = self._model.run(first.signature, inputs)
        except ServingError:
            raise
        except Exception as exc:
            raise ModelRunError(f"Exception during running the graph: {exc or type(exc).__name__}") from exc
        values = columns(outputs, count)
        return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]


def _written(requests: Sequence[PredictorRequest], predictions: list[Any]) -> list[bytes]:
    """The answer to each request out of the predictions for all of them."""
    if len(requests) == 1:
        return [write({"predictions": predictions})]
    answers, at = [], 0
    for request in requests:
        answers.append(write({"predictions": predictions[at : at + request.count]}))
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
        return _written(requests, self.predictions(requests))

    def takes_text(self, signature: str) -> bool:
        return False

    def request(self, instances: list[Any], signature: str) -> InstanceRequest:
        others = {"signature_name": signature} if signature else {}
        return InstanceRequest(instances=instances, others=others, key=object())

    def read_lines(self, lines: Sequence[bytes], signature: str) -> None:
        return None

    def predictions(self, requests: Sequence[InstanceRequest]) -> list[Any]:
        instances = [instance for request in requests for instance in request.instances]
        if not instances and self._model.merges:  # so that company makes no difference to this either
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
