"""Whether requests are batched: rows in batches are compared with rows alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trainshed.serving.codec.predictors import predictor
from trainshed.serving.host.invariance import Invariance, OutputsComparison, batch_bounds
from trainshed.serving.host.sample_request import SampleRequest
from trainshed.serving.host.warmup import warm_up
from trainshed.serving.signatures import Signature, Tensor
from trainshed.testing.fakes.models import Scorer, Shouter, Weighing

Outputs = Mapping[str, NDArray[Any]]
ROW = SampleRequest(body={"instances": [[0.5, 0.25, 1.0]]}, source="")


class Altered(Scorer):
    """A scorer whose outputs are changed, given the number of rows and of calls so far."""

    def __init__(self, change: Callable[[dict[str, NDArray[Any]], int, int], Outputs]) -> None:
        super().__init__()
        self.change = change
        self.calls = 0

    def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        self.calls += 1
        return dict(self.change(super().run(signature, inputs), len(inputs["x"]), self.calls))


def times(outputs: Outputs, factor: float) -> Outputs:
    return {**outputs, "scores": (outputs["scores"] * np.float32(factor)).astype(np.float32)}


def checked(
    model: Any, *, sample: SampleRequest | None = ROW, batching: str = "auto", max_batch: int = 32
) -> Invariance:
    return warm_up(predictor(model), sample, max_batch=max_batch, batching=batching)


@pytest.mark.parametrize("batching", ["auto", "exact"])
@pytest.mark.parametrize(
    ("model", "sample"),
    [(Scorer(), ROW), (Weighing(), ROW), (Shouter(), SampleRequest(body={"instances": ["a", "b"]}, source=""))],
    ids=["tensors", "table", "strings"],
)
def test_a_model_whose_answers_do_not_depend_on_the_batch_is_batched(
    model: Any, sample: SampleRequest, batching: str
) -> None:
    result = checked(model, sample=sample, batching=batching)
    rows = 64 + len(sample.body["instances"])
    assert result.batching, result.message
    assert (result.difference, result.rows) == (0.0, rows)
    assert (
        result.message
        == f"Requests are batched: {rows} rows get the same answers in batches as alone, to the last bit."
    )


def test_last_bits_that_move_with_the_batch_are_within_the_tolerance_and_not_exact() -> None:
    rounding = Altered(lambda outputs, rows, calls: times(outputs, 1 + 1e-6 * (rows > 3)))
    result = checked(rounding)
    assert result.batching
    assert result.difference is not None
    assert 0 < result.difference < 1e-5
    assert "65 rows" in result.message
    assert f"within {result.difference:.1e} of the largest magnitude" in result.message
    exact = checked(rounding, batching="exact")
    assert not exact.batching
    assert exact.difference == result.difference
    assert "the last bits of output scores differ" in exact.message


def test_floats_beyond_the_tolerance_are_not_batched() -> None:
    result = checked(Altered(lambda outputs, rows, calls: times(outputs, 1 + 3e-5 * (rows > 3))))
    assert not result.batching
    assert result.difference == pytest.approx(3e-5, rel=0.1)
    assert "output scores differs by 3.0e-05 of its largest magnitude, and 1e-05 is allowed" in result.message


def test_the_tolerance_is_that_of_the_largest_value_of_an_output() -> None:
    def shifted(outputs: Outputs, rows: int, calls: int) -> Outputs:
        scores = np.array(outputs["scores"], np.float64)
        scores[:, 0] += 1000.0 - 1e-3 * (rows > 3)  # far beyond the tolerance of the other column by itself
        return {"scores": scores}

    result = checked(Altered(shifted))
    assert result.batching
    assert result.difference == pytest.approx(1e-6, rel=0.1)


def test_integers_must_be_equal() -> None:
    result = checked(Altered(lambda outputs, rows, calls: {**outputs, "label": outputs["label"] + (rows == 8)}))
    assert not result.batching
    assert "output label has other integers or strings" in result.message


@pytest.mark.parametrize("batching", ["auto", "exact"])
def test_a_model_that_answers_differently_twice_is_not_batched(batching: str) -> None:
    result = checked(Altered(lambda outputs, rows, calls: times(outputs, 1 + 0.1 * calls)), batching=batching)
    assert not result.batching
    assert "the model answers the same request differently twice" in result.message


def test_a_batch_that_fails_is_no_reason_to_refuse_the_model() -> None:
    def fail(outputs: Outputs, rows: int, calls: int) -> Outputs:
        if rows > 5:
            raise ValueError("five rows at most")
        return outputs

    result = checked(Altered(fail))
    assert not result.batching
    assert result.message.startswith("Requests are not batched: a batch failed: ")
    assert "five rows at most" in result.message


def test_outputs_that_change_their_shape_are_not_batched() -> None:
    result = checked(Altered(lambda outputs, rows, calls: {"scores": outputs["scores"][:, : 1 if rows > 3 else 2]}))
    assert not result.batching
    assert "is float32 of shape [1, 1], and not float32 of [1, 2]" in result.message


class Fixed(Scorer):
    """A scorer that takes one row alone."""

    def __init__(self) -> None:
        one = Tensor(dtype="float32", shape=(1, 3))
        super().__init__(signatures={"serving_default": Signature(inputs={"x": one}, outputs={})})

    def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        assert len(inputs["x"]) == 1
        return super().run(signature, inputs)


class Own(Weighing):
    merges = False


@pytest.mark.parametrize(
    ("model", "options", "reason"),
    [
        (Scorer(), {"sample": None}, "there is no sample request to check the model with"),
        (Scorer(), {"batching": "off"}, "the version asks for that"),
        (Scorer(), {"max_batch": 1}, "there is nothing to batch"),
        (Own(), {}, "code of your own gets one request at a time"),
        (Fixed(), {}, "its inputs or outputs have a first dimension of fixed length"),
    ],
    ids=["no sample", "off", "one row", "own code", "fixed"],
)
def test_the_version_says_why_it_does_not_batch(model: Any, options: dict[str, Any], reason: str) -> None:
    result = checked(model, **options)
    assert (result.batching, result.difference, result.rows) == (False, None, 0)
    assert result.message == f"Requests are not batched: {reason}."


def test_variations_that_the_model_rejects_are_left_out() -> None:
    class Picky(Scorer):
        def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            if (inputs["x"][:, 2] != 1).any():
                raise ValueError("the third column is 1")
            return super().run(signature, inputs)

    result = checked(Picky())
    assert (result.batching, result.rows) == (True, 65)


@pytest.mark.parametrize(("expected", "actual"), [(np.nan, np.nan), (np.inf, np.inf), (-0.0, 0.0)])
def test_values_that_are_no_numbers_are_compared_too(expected: float, actual: float) -> None:
    comparison = OutputsComparison()
    comparison.add({"y": np.array([expected, 1.0])}, {"y": np.array([actual, 1.0])})
    assert comparison.problem(exact=False) == ""
    assert comparison.difference == 0.0


@pytest.mark.parametrize(("expected", "actual"), [(np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0), (np.inf, -np.inf)])
def test_a_number_that_is_none_in_a_batch_is_beyond_all_tolerance(expected: float, actual: float) -> None:
    comparison = OutputsComparison()
    comparison.add({"y": np.array([expected])}, {"y": np.array([actual])})
    assert "output y differs by inf" in comparison.problem(exact=False)
    assert comparison.difference is None


def test_the_best_column_counts_where_the_two_best_are_apart() -> None:
    comparison = OutputsComparison()
    comparison.add({"y": np.array([[1.0, 0.5], [1.0, 0.9]])}, {"y": np.array([[0.5, 1.0], [0.9, 1.0]])})
    output = comparison.outputs["y"]
    assert [output.changed_best(margin) for margin in (0.0, 0.2, 0.6)] == [2, 1, 0]
    assert output.agreement() == 0.0
    comparison.add({"y": np.array([[1.0, 0.5], [0.0, 0.9]])}, {"y": np.array([[1.0, 0.5], [0.0, 0.9]])})
    assert output.agreement() == 0.5


def test_one_column_has_no_best() -> None:
    comparison = OutputsComparison()
    comparison.add({"y": np.array([[1.0], [2.0]])}, {"y": np.array([[2.0], [1.0]])})
    assert comparison.outputs["y"].changed_best(0.0) == 0
    assert comparison.outputs["y"].agreement() is None


@pytest.mark.parametrize("max_batch", [2, 3, 8, 32, 100])
@pytest.mark.parametrize("rows", [1, 2, 65, 96])
def test_every_row_is_in_one_batch(rows: int, max_batch: int) -> None:
    bounds = list(batch_bounds(rows, max_batch))
    assert [at for start, stop in bounds for at in range(start, stop)] == list(range(rows))
    assert all(stop - start <= max_batch for start, stop in bounds)
    assert rows < 65 or max_batch > 32 or max(stop - start for start, stop in bounds) == max_batch
