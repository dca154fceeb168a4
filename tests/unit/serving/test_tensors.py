"""Instances in every form that there is, and what is said of those that do not fit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.serving.codec.tensors import columns, tensor_request
from trainshed.serving.errors import BadOutputsError, InvalidInputsError
from trainshed.serving.signatures import Signature, Tensor


def signature(**inputs: tuple[str, tuple[int, ...] | None]) -> Signature:
    tensors = {name: Tensor(dtype=dtype, shape=shape) for name, (dtype, shape) in inputs.items()}
    return Signature(inputs=tensors, outputs={"y": Tensor(dtype="float32", shape=(-1,))})


ROWS = {"serving_default": signature(x=("float32", (-1, 3)))}
TWO = {"serving_default": signature(a=("int64", (-1,)), b=("string", (-1, 2)))}
TEXT = {"serving_default": signature(s=("string", (-1,)))}


def read(instances: Any, signatures: dict[str, Signature], **others: Any) -> dict[str, Any]:
    body = json.dumps({"instances": instances, **others}).encode()
    return dict(tensor_request(body, signatures).inputs)


@pytest.mark.parametrize(
    "instances",
    [
        [[1, 2, 3], [4, 5, 6]],
        [[1.0, 2.0, 3.0], [4, 5.0, 6]],
        [{"x": [1, 2, 3]}, {"x": [4, 5, 6]}],
        [[1, 2, 3], {"x": [4, 5, 6]}],
    ],
)
def test_one_input_takes_bare_values_and_named_ones(instances: list[Any]) -> None:
    array = read(instances, ROWS)["x"]
    assert array.dtype == np.float32
    assert array.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_several_inputs_take_objects() -> None:
    inputs = read([{"a": 1, "b": ["x", {"b64": "AP8="}]}, {"b": ["ä", ""], "a": -5}], TWO)
    assert inputs["a"].dtype == np.int64
    assert inputs["a"].tolist() == [1, -5]
    assert inputs["b"].tolist() == [[b"x", b"\x00\xff"], ["ä".encode(), b""]]


@pytest.mark.parametrize("instance", ["text", {"s": "text"}, {"b64": "dGV4dA=="}, {"s": {"b64": "dGV4dA=="}}])
def test_strings_may_be_base64(instance: Any) -> None:
    assert read([instance], TEXT)["s"].tolist() == [b"text"]


def test_dimensions_of_any_length_take_what_comes() -> None:
    image = {"serving_default": signature(x=("uint8", (-1, -1, 2, 1)))}
    assert read([[[[1], [2]], [[3], [4]], [[5], [6]]]], image)["x"].shape == (1, 3, 2, 1)
    assert read([[[1.5], [2]]], {"s": signature(x=("float32", None))})["x"].shape == (1, 2, 1)
    assert read([7, 8], {"s": signature(x=("float64", (-1,)))})["x"].tolist() == [7.0, 8.0]
    assert read([[1, 2], [3, 4]], {"s": signature(x=("float32", (-1, -1)))})["x"].tolist() == [[1, 2], [3, 4]]


def test_numbers_that_are_none_are_taken() -> None:
    array = tensor_request(b'{"instances": [[NaN, Infinity, -Infinity]]}', ROWS).inputs["x"]
    assert str(array.tolist()) == "[[nan, inf, -inf]]"


def test_no_instances_are_no_mistake() -> None:
    request = tensor_request(b'{"instances": []}', ROWS)
    assert request.count == 0
    assert request.inputs["x"].shape == (0, 3)


WRONG: dict[str, tuple[Any, dict[str, Signature], str]] = {
    "too short": ([[1, 2, 3], [1, 2]], ROWS, r'input "x" takes values of shape \[3\], but instance 1 has shape \[2\]'),
    "a bare number": ([1], ROWS, r"shape \[3\], but instance 0 has shape \[\]"),
    "too deep": ([[[1, 2, 3]]], ROWS, r"instance 0 has shape \[1, 3\]"),
    "ragged": ([[1, [2], 3]], ROWS, "instance 0 has lists of different lengths"),
    "text": ([[1, "2", 3]], ROWS, 'input "x" takes float32, but a string came'),
    "null": ([[1, None, 3]], ROWS, "but null came"),
    "an object": ([[1, {"x": 1}, 3]], ROWS, "but an object came"),
    "beyond float32": ([[1, 1e39, 3]], ROWS, "takes float32, and a number is too large"),
    "another name": ([{"y": [1, 2, 3]}], ROWS, r"Expected tensor name: x, got tensor name: \['y'\]"),
    "b64 for numbers": ([{"b64": "AA=="}], ROWS, r"got tensor name: \['b64'\]"),
    "no list": ({"x": 1}, ROWS, '"instances" must be a list'),
    "left out": (None, ROWS, '"instances" must be a list'),
    "no object": ([5], TWO, "Instance 0 must be an object with a value for each of the inputs a, b, not 5"),
    "one more name": ([{"a": 1, "b": ["", ""], "c": 1}], TWO, "Unexpected tensor name: c"),
    "one name less": ([{"a": 1, "b": ["", ""]}, {"a": 1}], TWO, "Input b was missing in at least one input instance"),
    "a fraction": ([{"a": 1.5, "b": ["", ""]}], TWO, 'Input "a" takes int64, and a number is out of its range or not'),
    "beyond int64": ([{"a": 2**63, "b": ["", ""]}], TWO, "takes int64, and a number"),
    "strings too short": ([{"a": 1, "b": ["x"]}], TWO, r'input "b" takes values of shape \[2\].*\[1\]'),
    "a number as text": ([5], TEXT, 'input "s" takes strings, but 5 came'),
    "no base64": ([{"b64": "?"}], TEXT, 'The b64 of input "s" is not base64'),
    "ragged strings": ([["a"], "b"], TEXT, "different lengths"),
    "a number for a truth": ([1], {"s": signature(x=("bool", (-1,)))}, "takes bool, but 1 came"),
    "a complex number": ([1], {"s": signature(x=("complex64", (-1,)))}, "complex"),
    "a type of its own": ([1], {"s": signature(x=("type 20", (-1,)))}, "no form"),
    "a fixed batch": ([1, 2], {"s": signature(x=("float32", (3,)))}, r"takes shape \[3\], but \[2\] came"),
    "a scalar input": ([1], {"s": signature(x=("float32", ()))}, r"takes shape \[\], but \[1\] came"),
}


@pytest.mark.parametrize("instances, signatures, message", WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_named(instances: Any, signatures: dict[str, Signature], message: str) -> None:
    with pytest.raises(InvalidInputsError, match=message):
        read(instances, signatures)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_integers_keep_to_their_range(dtype: str) -> None:
    wide = {"s": signature(x=(dtype, (-1,)))}
    edges = [int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)]
    assert read(edges, wide)["x"].tolist() == edges
    assert read([100.0], wide)["x"].tolist() == [100]
    for beyond in (edges[0] - 1, edges[1] + 1):
        with pytest.raises(InvalidInputsError, match=dtype):
            read([beyond], wide)


NUMBERS = st.integers(-(2**70), 2**70) | st.floats() | st.booleans()


@given(
    st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=4), st.sampled_from(["float32", "float64"])
)
def test_packing_is_no_other_than_numpys_own(rows: list[list[Any]], dtype: str) -> None:
    signatures = {"s": signature(x=(dtype, (-1, 3)))}
    body = json.dumps({"instances": rows}).encode()
    with np.errstate(over="ignore"):
        wanted = np.array(json.loads(body)["instances"], np.float64).astype(dtype)
    finite = np.isinf(wanted) == np.isinf(np.array(rows, np.float64))
    if finite.all():
        assert tensor_request(body, signatures).inputs["x"].tobytes() == wanted.tobytes()
    else:
        with pytest.raises(InvalidInputsError, match="too large"):
            tensor_request(body, signatures)


def test_a_signature_is_chosen_by_name_or_is_the_only_one_or_the_default() -> None:
    several = {"a": ROWS["serving_default"], "serving_default": ROWS["serving_default"]}
    body = b'{"instances": [[1, 2, 3]]%b}'
    assert tensor_request(body % b"", several).signature == "serving_default"
    assert tensor_request(body % b', "signature_name": "a"', several).signature == "a"
    assert tensor_request(body % b"", {"only": several["a"]}).signature == "only"
    for wrong in (b'"b"', b"5", b'"\\u0000"'):
        with pytest.raises(InvalidInputsError, match="signature"):
            tensor_request(body % (b', "signature_name": ' + wrong), several)
    with pytest.raises(InvalidInputsError, match="No signature found for signature key serving_default"):
        tensor_request(body % b"", {"a": several["a"], "b": several["a"]})


def test_outputs_become_rows() -> None:
    outputs = {
        "n": np.array([1, 2], np.int8),
        "t": np.array([b"a", "ä".encode()], object),
        "x_bytes": np.array([[b"\xff"], [b""]], object),
        "b": np.array([True, False]),
    }
    assert columns(outputs, 2) == {
        "n": [1, 2],
        "t": ["a", "ä"],
        "x_bytes": [[{"b64": "/w=="}], [{"b64": ""}]],
        "b": [True, False],
    }


@pytest.mark.parametrize(
    "array, message",
    [
        (np.float32(1), r'Output "y" has shape \[\] for 2 instances'),
        (np.zeros(3), r"shape \[3\] for 2 instances"),
        (np.array([b"\xff", b""], object), "Give it a name that ends in _bytes"),
        (np.zeros(2, np.complex64), "complex64"),
    ],
)
def test_outputs_that_can_not_be_given_back_are_named(array: Any, message: str) -> None:
    with pytest.raises(BadOutputsError, match=message):
        columns({"y": np.asarray(array)}, 2)
