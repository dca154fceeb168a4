"""Warm-up: run the sample request, then check that the model is batch-invariant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..codec.json_documents import write
from ..codec.predictors import InstanceRequest, Predictor
from ..codec.tensors import TensorRequest
from .invariance import EXACT, OFF, Invariance, InvarianceCheck, Outputs, not_batched
from .sample_request import SampleRequest, varied_inputs

VARIED_ROWS = 64  #: that are compared besides those of the sample
_SAMPLE_ROWS_MAX = 32


def warm_up(predictor: Predictor, sample: SampleRequest | None, *, max_batch: int, batching: str) -> Invariance:
    """Run the sample request. Returns whether requests are batched.

    They are if the rows of the sample, and VARIED_ROWS like them, get the same answers in batches as alone: integers
    and strings equal, floats within `TOLERANCE`. With `batching` EXACT, floats must be equal too. Raises what the model
    raises on the sample.
    """
    if sample is None:
        return not_batched("there is no sample request to check the model with")
    body = write(sample.body)
    request = predictor.read(body)
    predictor.run([request])
    if batching == OFF:
        return not_batched("the version asks for that")
    if request.key != predictor.read(body).key:
        return not_batched(
            "code of your own gets one request at a time"
            if isinstance(request, InstanceRequest)
            else "its inputs or outputs have a first dimension of fixed length"
        )
    if max_batch < 2 or not request.count:
        return not_batched("there is nothing to batch")
    rows, alone = answered_rows(predictor, request)
    check = InvarianceCheck(run=predictor.outputs, exact=batching == EXACT, max_batch=max_batch)
    return check.measure(rows, alone)


def answered_rows(predictor: Predictor, request: Any) -> tuple[list[Any], list[Outputs]]:
    """The rows of the sample and variations of them, each with its outputs alone.

    A variation that the model rejects is replaced by a row of the sample: it need not be valid.
    """
    rows = list(_rows(request))
    alone = [predictor.outputs([row]) for row in rows]
    count = len(rows)
    for at, varied in enumerate(_variations(request)):
        try:
            outputs = predictor.outputs([varied])
        except Exception:  # noqa: BLE001 - the model's own code
            varied, outputs = rows[at % count], alone[at % count]
        rows.append(varied)
        alone.append(outputs)
    return rows, alone


def _rows(request: TensorRequest | InstanceRequest) -> Iterator[Any]:
    """The rows of a request as requests of one row each."""
    for at in range(min(request.count, _SAMPLE_ROWS_MAX)):
        if isinstance(request, InstanceRequest):
            yield _instance_request(request, request.instances[at])
        else:
            yield _tensor_request(request, {name: array[at : at + 1] for name, array in request.inputs.items()})


def _variations(request: TensorRequest | InstanceRequest) -> Iterator[Any]:
    if isinstance(request, InstanceRequest):
        rng = np.random.default_rng(0)
        for at in range(VARIED_ROWS):
            yield _instance_request(request, _varied_instance(request.instances[at % request.count], rng))
        return
    varied = varied_inputs(request.inputs, rows=VARIED_ROWS, seed=0)
    for at in range(VARIED_ROWS):
        yield _tensor_request(request, {name: array[at : at + 1] for name, array in varied.items()})


def _instance_request(request: InstanceRequest, instance: Any) -> InstanceRequest:
    return InstanceRequest(instances=[instance], others=request.others, key=request.key)


def _tensor_request(request: TensorRequest, inputs: dict[str, Any]) -> TensorRequest:
    return TensorRequest(signature=request.signature, inputs=inputs, count=1, key=request.key)


def _varied_instance(instance: Any, rng: np.random.Generator) -> Any:
    """The instance with its floats nearer to zero. Integers may be categories, and stay."""
    if isinstance(instance, dict):
        return {name: _varied_instance(value, rng) for name, value in instance.items()}
    if isinstance(instance, list):
        return [_varied_instance(value, rng) for value in instance]
    return instance * rng.random() if isinstance(instance, float) else instance
