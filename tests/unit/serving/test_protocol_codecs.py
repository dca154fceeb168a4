"""Codecs of other protocols: batches give the answers that each request gets alone, and never mix protocols."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trainshed.serving.codec.open_inference import InferCodec, arrays_of_predictions
from trainshed.serving.codec.predictors import InstancePredictor, TensorPredictor
from trainshed.serving.codec.tf_serving import TfServingCodec
from trainshed.serving.errors import BadOutputsError, InvalidInputsError
from trainshed.serving.frames import infer_head, unpack_infer
from trainshed.serving.signatures import Signature, Tensor
from trainshed.testing.fakes.models import Scorer, Weighing


class Product:
    """Multiplies a matrix with a vector: inputs whose first dimensions differ."""

    detail = "NumPy"
    signatures: Mapping[str, Signature] = {
        "serving_default": Signature(
            inputs={"a": Tensor(dtype="float64", shape=(-1, 2)), "b": Tensor(dtype="float64", shape=(2,))},
            outputs={"c": Tensor(dtype="float64", shape=(-1,))},
        )
    }

    def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {"c": inputs["a"] @ inputs["b"]}


class Summary(Scorer):
    """Returns one value for a whole batch, against what its signature says."""

    def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {"total": np.array(inputs["x"].sum(), np.float64)}


def infer_body(rows: list[list[float]], **more: Any) -> bytes:
    data = np.array(rows, "<f4").tobytes()
    shape = [len(rows), 3]
    tensor = {"name": "x", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": len(data)}}
    document = json.dumps({"inputs": [tensor], **more}).encode()
    return infer_head(len(document)) + document + data


ROWS = [[[1.0, 2.0, 3.0]], [[0.5, 0.0, 0.0], [0.0, 1.0, 0.0]], [[9.0, 8.0, 7.0]]]


def test_infer_requests_share_a_batch() -> None:
    codec = InferCodec(TensorPredictor(Scorer()), model="m", version="v1")
    requests = [codec.read(infer_body(rows, id=str(at))) for at, rows in enumerate(ROWS)]
    assert len({request.key for request in requests}) == 1
    assert [request.count for request in requests] == [1, 2, 1]
    assert codec.run(requests) == [codec.run([request])[0] for request in requests]


@pytest.mark.parametrize("name", ["instances", "inputs"])
def test_requests_of_tensorflow_serving_share_a_batch(name: str) -> None:
    codec = TfServingCodec(TensorPredictor(Scorer()))
    requests = [codec.read(json.dumps({name: rows}).encode()) for rows in ROWS]
    assert len({request.key for request in requests}) == 1
    assert codec.run(requests) == [codec.run([request])[0] for request in requests]


def test_tables_share_a_batch() -> None:
    codec = InferCodec(InstancePredictor(Weighing()), model="m", version="v1")
    requests = [codec.read(infer_body(rows)) for rows in ROWS]
    assert len({request.key for request in requests}) == 1
    assert codec.run(requests) == [codec.run([request])[0] for request in requests]


def test_protocols_do_not_share_a_batch() -> None:
    predictor = TensorPredictor(Scorer())
    rows = json.dumps({"instances": ROWS[0]}).encode()
    served, inferred = TfServingCodec(predictor), InferCodec(predictor, model="m", version="v1")
    columns = served.read(json.dumps({"inputs": ROWS[0]}).encode())
    keys = [predictor.read(rows).key, served.read(rows).key, columns.key, inferred.read(infer_body(ROWS[0])).key]
    assert len(set(keys)) == 4


def test_tensors_whose_first_dimensions_differ_run_alone() -> None:
    body = json.dumps({"inputs": {"a": [[1, 2], [3, 4], [5, 6]], "b": [1, 10]}}).encode()
    codec = TfServingCodec(TensorPredictor(Product()))
    first, second = codec.read(body), codec.read(body)
    assert first.key != second.key
    assert [json.loads(answer) for answer in codec.run([first])] == [{"outputs": [21.0, 43.0, 65.0]}]


def test_an_output_without_a_value_for_each_instance() -> None:
    codec = InferCodec(TensorPredictor(Summary()), model="m", version="v1")
    alone, *rest = [codec.read(infer_body(rows)) for rows in ROWS]
    _, response = unpack_infer(codec.run([alone])[0])
    assert json.loads(bytes(response))["outputs"] == [{"name": "total", "datatype": "FP64", "shape": [], "data": [6.0]}]
    with pytest.raises(BadOutputsError):
        codec.run([alone, *rest])


@pytest.mark.parametrize(
    ("predictions", "outputs"),
    [
        ([], {"predict": []}),
        ([1, 2], {"predict": [1, 2]}),
        ([[0.5, 1], [2, 3]], {"predict": [[0.5, 1.0], [2.0, 3.0]]}),
        (["a", "b"], {"predict": [b"a", b"b"]}),
        ([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], {"a": [1, 2], "b": [b"x", b"y"]}),
        ([{"a": 1}, {"b": 2}], {"predict": [b'{"a":1}', b'{"b":2}']}),
        ([[1], [2, 3]], {"predict": [b"[1]", b"[2,3]"]}),
        ([1, None], {"predict": [b"1", b"null"]}),
        (["a", 1], {"predict": [b"a", b"1"]}),
    ],
    ids=range(9),
)
def test_predictions_of_any_kind_become_tensors(predictions: list[Any], outputs: dict[str, list[Any]]) -> None:
    assert {name: array.tolist() for name, array in arrays_of_predictions(predictions).items()} == outputs


def test_columns_become_rows_of_a_table() -> None:
    seen: list[Any] = []

    class Recorder(Weighing):
        def predict(self, instances: list[Any], /, **_kwargs: Any) -> list[Any]:
            seen.extend(instances)
            return [0] * len(instances)

    columns = [
        {"name": "age", "datatype": "INT32", "shape": [2], "data": [30, 40]},
        {"name": "town", "datatype": "BYTES", "shape": [2], "data": ["Bonn", "Ulm"]},
    ]
    codec = InferCodec(InstancePredictor(Recorder()), model="m", version="v1")
    codec.run([codec.read(infer_head(0) + json.dumps({"inputs": columns}).encode())])
    assert seen == [{"age": 30, "town": "Bonn"}, {"age": 40, "town": "Ulm"}]


def test_text_that_is_none() -> None:
    codec = InferCodec(InstancePredictor(Weighing()), model="m", version="v1")
    data = struct.pack("<I", 1) + b"\xff"
    tensor = {"name": "x", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(data)}}
    document = json.dumps({"inputs": [tensor]}).encode()
    with pytest.raises(InvalidInputsError, match="not UTF-8"):
        codec.read(infer_head(len(document)) + document + data)


def test_a_frame_that_is_cut() -> None:
    codec = InferCodec(TensorPredictor(Scorer()), model="m", version="v1")
    with pytest.raises(InvalidInputsError):
        codec.read(b"\0")
