"""Warm-up: run the sample request, then check that the model is batch-invariant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..codec.json_documents import write
from ..codec.predictors import InstanceRequest, Predictor
from ..codec.tensors import TensorRequest
from .sample_request import SampleRequest, varied_inputs

_BATCH_SIZES = (2, 3, 5, 8)  #: that are tried, besides the maximum


def warm_up(predictor: Predictor, sample: SampleRequest | None, *, max_batch: int) -> bool:
    """Run the sample request. Returns whether requests may be batched.

    They may if batches of several sizes give, byte for byte, the responses that each request gets alone. Returns False
    without a sample. Raises what the model raises on the sample.
    """
    if sample is None:
        return False
    request = predictor.read(write(sample.body))
    predictor.run([request])
    sizes = sorted({size for size in (*_BATCH_SIZES, max_batch) if 1 < size <= max_batch})
    singles = _singles(request, max_batch)
    if not sizes or len(singles) < max_batch or singles[0].key != singles[1].key:
        return False
    alone = [predictor.run([single])[0] for single in singles]
    return all(predictor.run(singles[:size]) == alone[:size] for size in sizes)


def _singles(request: TensorRequest | InstanceRequest, count: int) -> Sequence[Any]:
    """Requests of one instance each, like `request`. Numeric inputs are varied."""
    if isinstance(request, InstanceRequest):
        instances = request.instances
        return [
            InstanceRequest(instances=[instances[at % len(instances)]], others=request.others, key=request.key)
            for at in range(count if instances else 0)
        ]
    if not request.count or not request.inputs:
        return []
    rows = varied_inputs(request.inputs, rows=count, seed=0)
    return [
        TensorRequest(
            signature=request.signature,
            inputs={name: array[at : at + 1] for name, array in rows.items()},
            count=1,
            key=request.key,
        )
        for at in range(count)
    ]
