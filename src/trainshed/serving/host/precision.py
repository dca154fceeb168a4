"""Precision: how far the answers of a model that computes in fewer bits are from its answers in f32."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..codec.json_documents import write
from ..codec.predictors import predictor
from ..errors import LoaderError
from ..loaders.base import Model, ReducedModel
from ..spec import F32
from .invariance import OutputsComparison
from .sample_request import SampleRequest
from .warmup import answered_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionComparison:
    """What a lower precision changes."""

    name: str
    difference: float | None  #: the greatest, relative to the largest magnitude of its output; None if not measured
    agreement: float | None  #: the share of rows whose largest value is the same one; None without columns to compare
    rows: int  #: that were compared
    message: str  #: the result as a sentence

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def measure_precision(model: Model, sample: SampleRequest | None, precision: str) -> PrecisionComparison | None:
    """Compare a model in `precision` with itself in f32, on the sample and rows like it. Returns None for f32.

    Raises `LoaderError` if the model computes in another precision.
    """
    if precision == F32:
        return None
    if not isinstance(model, ReducedModel) or model.precision != precision:
        raise LoaderError(
            f"Precision {precision} is for models that OpenVINO serves, and {model.detail} serves this one. Create the "
            f"version with precision f32."
        )
    if sample is None:
        return PrecisionComparison(
            name=precision,
            difference=None,
            agreement=None,
            rows=0,
            message=f"It computes in {precision}. What that changes was not measured: there is no sample request.",
        )
    compared = _compare(model, sample)
    shares = [share for output in compared.outputs.values() if (share := output.agreement()) is not None]
    agreement = min(shares, default=None)
    distance = (
        "some answers are not finite where those in f32 are"
        if compared.difference is None
        else f"all answers are within {compared.difference:.1e} of the largest in f32"
    )
    same = "" if agreement is None else f", and the largest value is the same one in {agreement:.1%} of them"
    return PrecisionComparison(
        name=precision,
        difference=compared.difference,
        agreement=agreement,
        rows=compared.rows,
        message=f"It computes in {precision}: of {compared.rows} rows, {distance}{same}.",
    )


def _compare(model: ReducedModel, sample: SampleRequest) -> OutputsComparison:
    reduced, exact = predictor(model), predictor(model.in_f32())
    rows, expected = answered_rows(exact, exact.read(write(sample.body)))
    compared = OutputsComparison()
    for row, outputs in zip(rows, expected, strict=True):
        compared.add(outputs, reduced.outputs([row]))
    return compared
