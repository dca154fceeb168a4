"""What a lower precision changes, measured on rows like those of the sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trainshed.serving.errors import LoaderError
from trainshed.serving.host.precision import measure_precision
from trainshed.serving.host.sample_request import SampleRequest
from trainshed.testing.fakes.models import Scorer

ROW = SampleRequest(body={"instances": [[1.0, 2.0, 3.0]]}, source="")


class Reduced(Scorer):
    """A scorer whose scores are changed in another precision than f32."""

    precision = "bf16"

    def __init__(self, factor: float, *, swapped: bool = False) -> None:
        super().__init__()
        self.factor = factor
        self.swapped = swapped

    def in_f32(self) -> Scorer:
        return Scorer()

    def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        outputs = super().run(signature, inputs)
        scores = (outputs["scores"] * np.float32(self.factor)).astype(np.float32)
        return {**outputs, "scores": scores[:, ::-1].copy() if self.swapped else scores}


def test_the_difference_and_the_agreement_are_measured() -> None:
    measured = measure_precision(Reduced(1.01), ROW, "bf16")
    assert measured is not None
    assert (measured.name, measured.rows, measured.agreement) == ("bf16", 65, 1.0)
    assert measured.difference == pytest.approx(0.01, rel=1e-3)
    assert measured.message == (
        "It computes in bf16: of 65 rows, all answers are within 1.0e-02 of the largest in f32, and the largest value "
        "is the same one in 100.0% of them."
    )
    swapped = measure_precision(Reduced(1.0, swapped=True), ROW, "bf16")
    assert swapped is not None
    assert swapped.agreement == 0.0


def test_nothing_is_measured_in_f32_or_without_a_sample() -> None:
    assert measure_precision(Scorer(), ROW, "f32") is None
    unmeasured = measure_precision(Reduced(1.0), None, "bf16")
    assert unmeasured is not None
    assert (unmeasured.difference, unmeasured.agreement, unmeasured.rows) == (None, None, 0)
    assert "was not measured" in unmeasured.message


def test_a_difference_that_is_not_finite_is_said() -> None:
    measured = measure_precision(Reduced(float("inf")), ROW, "bf16")
    assert measured is not None
    assert measured.difference is None
    assert "not finite" in measured.message


def test_a_loader_without_the_precision_is_refused() -> None:
    with pytest.raises(LoaderError, match=r"Precision bf16 is for models that OpenVINO serves, and NumPy serves this"):
        measure_precision(Scorer(), ROW, "bf16")
