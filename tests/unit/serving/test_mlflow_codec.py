"""Bodies of MLflow's scoring protocol, with models of every kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trainshed.serving.codec.mlflow import MlflowCodec
from trainshed.serving.codec.predictors import predictor
from trainshed.serving.codec.tf_serving import TfServingCodec
from trainshed.serving.errors import InvalidInputsError
from trainshed.serving.loaders.base import Model
from trainshed.serving.loaders.tabular import table
from trainshed.serving.signatures import Signature, Tensor
from trainshed.testing.fakes.models import Scorer, Shouter, Weighing

ROWS = [[1.0, 2.0, 0.5], [0.0, 0.0, 1.0]]
SCORED = [{"label": 0, "scores": [3.5, 2.0]}, {"label": 1, "scores": [-3.0, 4.0]}]
NAMES = ["a", "b", "c"]
RECORDS = [dict(zip(NAMES, row, strict=True)) for row in ROWS]


class Difference:
    """Two inputs of one number for each row."""

    detail = "NumPy"
    signatures: Mapping[str, Signature] = {
        "serving_default": Signature(
            inputs={name: Tensor(dtype="float64", shape=(-1,)) for name in ("a", "b")},
            outputs={"difference": Tensor(dtype="float64", shape=(-1,))},
        )
    }

    def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {"difference": inputs["a"] - inputs["b"]}


class Table(Weighing):
    """Rows of any form; a missing value is 0."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def rows(self, instances: list[Any]) -> NDArray[Any]:
        return np.nan_to_num(table(instances, names=self.names, width=3).astype(np.float64))


class Echo:
    """Code of a user: it returns what it gets."""

    detail = "Python"
    merges = False

    def predict(self, instances: list[Any], /, **kwargs: Any) -> list[Any]:
        return [[instance, kwargs] for instance in instances]


def answer(model: Model, body: object) -> Any:
    """The predictions, which are all that a response has."""
    codec = MlflowCodec(predictor(model), model)
    (response,) = codec.run([codec.read(body if isinstance(body, bytes) else json.dumps(body).encode())])
    document = json.loads(response)
    assert document.keys() == {"predictions"}
    return document["predictions"]


def split(columns: list[Any] | None, data: list[Any]) -> dict[str, Any]:
    return {"dataframe_split": {"data": data} if columns is None else {"columns": columns, "data": data}}


@pytest.mark.parametrize(
    "body",
    [
        {"instances": ROWS},
        {"instances": ROWS, "params": {}},
        {"instances": ROWS, "signature_name": "serving_default"},
        {"dataframe_split": {"columns": NAMES, "index": [0, 1], "data": ROWS}},
        split(None, ROWS),
        split(["x"], [[row] for row in ROWS]),
        split(["any"], [[row] for row in ROWS]),
        {"dataframe_records": RECORDS},
        {"dataframe_records": [{"x": row} for row in ROWS]},
    ],
    ids=range(9),
)
def test_rows_for_a_model_with_one_input(body: object) -> None:
    assert answer(Scorer(), body) == SCORED


@pytest.mark.parametrize("inputs", [ROWS, {"x": ROWS}])
@pytest.mark.parametrize("others", [{}, {"params": {}}, {"signature_name": "serving_default"}])
def test_tensors(inputs: object, others: dict[str, Any]) -> None:
    columns = {"label": [0, 1], "scores": [row["scores"] for row in SCORED]}
    assert answer(Scorer(), {"inputs": inputs, **others}) == columns


def test_an_input_with_one_value_for_each_row_is_a_column_of_any_name() -> None:
    assert answer(Shouter(), split(["prompt"], [["a"], ["b"]])) == ["A", "B"]
    assert answer(Shouter(), {"dataframe_records": [{"text": "a"}]}) == ["A"]


def test_several_inputs_are_columns_by_name() -> None:
    assert answer(Difference(), split(["b", "a"], [[1, 5], [2, 9]])) == [4.0, 7.0]
    assert answer(Difference(), {"dataframe_records": [{"b": 1, "a": 5}]}) == [4.0]


def test_no_rows() -> None:
    bodies: list[dict[str, Any]] = [{"dataframe_records": []}, split(NAMES, []), {"instances": []}]
    for body in bodies:
        assert answer(Scorer(), body) == []


def test_tables() -> None:
    reordered = split(["c", "a", "b"], [[row[2], row[0], row[1]] for row in ROWS])
    expected = [0.25, 0.5]
    assert answer(Table(*NAMES), reordered) == expected
    assert answer(Table(*NAMES), split([0, 1, 2], ROWS)) == expected
    assert answer(Table(), split(NAMES, ROWS)) == expected
    assert answer(Table(*NAMES), {"inputs": {name: [row[at] for row in ROWS] for at, name in enumerate(NAMES)}}) == (
        expected
    )
    assert answer(Table(*NAMES), {"dataframe_records": [{"a": 1, "b": 1, "c": 2}, {"b": 3, "c": 4}]}) == [2.0, -1.0]


def test_code_of_the_user_gets_objects_and_params() -> None:
    assert answer(Echo(), {"dataframe_records": [{"a": 1}, {"b": 2}]}) == [
        [{"a": 1, "b": None}, {}],
        [{"a": None, "b": 2}, {}],
    ]
    assert answer(Echo(), split([0, 1], [[1, 2]])) == [[[1, 2], {}]]
    params = {"params": {"k": 1}}
    assert answer(Echo(), {"instances": ["x"], **params}) == [["x", params]]
    assert answer(Echo(), {"inputs": {"a": [1]}, **params}) == [[{"a": 1}, params]]


@pytest.mark.parametrize(
    ("model", "body", "message"),
    [
        (Scorer(), b"", "not JSON"),
        (Scorer(), b"a,b,c\n1,2,3\n", "not JSON"),
        (Scorer(), b"[" * 1000, "not JSON"),
        (Scorer(), [], "must be a JSON object"),
        (Scorer(), {}, "exactly one of dataframe_split, dataframe_records, instances, inputs, and has none"),
        (Scorer(), {"params": {"k": 1}}, "has none"),
        (Scorer(), {"instances": ROWS, "dataframe_records": RECORDS}, "dataframe_records and instances"),
        (Scorer(), {"instances": ROWS, "params": {"k": 1}}, 'takes no "params"'),
        (Table(), {"instances": ROWS, "params": 1}, 'takes no "params"'),
        (Scorer(), {"dataframe_split": ROWS}, 'with "columns" and "data"'),
        (Scorer(), {"dataframe_split": {"columns": NAMES}}, 'with "columns" and "data"'),
        (Scorer(), {"dataframe_split": {"columns": 3, "data": ROWS}}, "a list of names"),
        (Scorer(), split([None, "b", "c"], ROWS), "a list of names"),
        (Scorer(), split(None, [1, 2, 3]), "Row 0 .* a list of values"),
        (Scorer(), split(["a"], ROWS), "Row 0 .* has 3 values; there are 1 columns"),
        (Scorer(), split(["a", "a", "b"], ROWS), "a name twice"),
        (Scorer(), split(["a", "b"], [[1.0, 2.0]]), "but instance 0 has shape"),
        (Scorer(), {"dataframe_records": {"a": 1}}, "a list of objects"),
        (Scorer(), {"dataframe_records": [ROWS]}, "a list of objects"),
        (Scorer(), {"dataframe_records": [{"a": 1, "b": 2, "c": "no"}]}, 'input "x" takes float32'),
        (Scorer(), {"dataframe_records": [*RECORDS, {"a": 1}]}, "null came"),
        (Scorer(), {"dataframe_records": RECORDS, "signature_name": "none"}, "No signature found"),
        (Difference(), split(["a", "z"], [[1, 2]]), "Unexpected tensor name: z"),
        (Difference(), split(["a"], [[1]]), "Input b was missing"),
        (Difference(), split(None, [[1, 2]]), "must be an object with a value for each of the inputs a, b"),
        (Table(*NAMES), split(["a", "b", "z"], ROWS), "Unexpected feature name: z"),
        (Table(*NAMES), split(["a", "b"], [[1, 2]]), "Input c was missing"),
        (Table(*NAMES), {"inputs": {"a": [1], "b": [1, 2]}}, "different lengths"),
    ],
    ids=range(28),
)
def test_bad_input(model: Model, body: object, message: str) -> None:
    with pytest.raises(InvalidInputsError, match=message):
        answer(model, body)


def test_forms_share_a_batch_but_not_with_another_protocol() -> None:
    model = Scorer()
    codec = MlflowCodec(predictor(model), model)
    bodies = [{"instances": ROWS}, split(NAMES, ROWS[:1]), {"dataframe_records": RECORDS}]
    requests = [codec.read(json.dumps(body).encode()) for body in bodies]
    other = TfServingCodec(predictor(model)).read(json.dumps(bodies[0]).encode())
    assert {request.key == requests[0].key for request in requests} == {True}
    assert other.key != requests[0].key
    assert codec.run(requests) == [codec.run([request])[0] for request in requests]
