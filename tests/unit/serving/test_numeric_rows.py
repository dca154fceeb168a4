"""The fast path for rows of numbers: what it accepts, and that the slow path gives the same arrays."""

from __future__ import annotations

import json
import math
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainshed.serving.codec.tensors import NumericInput, TensorRequest, numeric_input, tensor_request
from trainshed.serving.errors import InvalidInputsError
from trainshed.serving.signatures import Signature, Tensor

DTYPES = ["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SHAPES: list[tuple[int, ...]] = [(-1,), (-1, 3), (-1, -1), (2, 3), (-1, 2, 1), (-1, -1, 2)]


def signatures(dtype: str, shape: tuple[int, ...] | None) -> dict[str, Signature]:
    outputs = {"y": Tensor(dtype="float32", shape=(-1,))}
    return {"serving_default": Signature(inputs={"x": Tensor(dtype=dtype, shape=shape)}, outputs=outputs)}


def quick(body: bytes, dtype: str = "float32", shape: tuple[int, ...] = (-1, 3)) -> TensorRequest | None:
    plain = numeric_input(signatures(dtype, shape))
    assert isinstance(plain, NumericInput)
    return plain.read(body)


TAKEN: dict[str, tuple[bytes, str, tuple[int, ...], Any]] = {
    "rows": (
        b'{"instances": [[1, 2.5, 3], [4, 5, -6e-1]]}',
        "float32",
        (-1, 3),
        [[1, 2.5, 3], [4, 5, np.float32(-0.6)]],
    ),
    "rows by name": (b'{"instances":[{"x":[1,2,3]},{"x":[4,5,6]}]}', "float32", (-1, 3), [[1, 2, 3], [4, 5, 6]]),
    "an escaped key": (b'{"\\u0069nstances":[[1,2,3]]}', "float32", (-1, 3), [[1, 2, 3]]),
    "white space": (b' \n{ "instances"\t: [ [1 ,2, 3] ] }\r\n', "float32", (-1, 3), [[1, 2, 3]]),
    "any length": (b'{"instances":[[1,2],[3,4]]}', "float64", (-1, -1), [[1, 2], [3, 4]]),
    "bare numbers": (b'{"instances":[1,-2,3]}', "int64", (-1,), [1, -2, 3]),
    "bytes": (b'{"instances":[[0,128,255]]}', "uint8", (-1, 3), [[0, 128, 255]]),
    "large naturals": (b'{"instances":[18446744073709551615]}', "uint64", (-1,), [2**64 - 1]),
    "pictures": (b'{"instances":[[[1],[2]],[[3],[4]]]}', "float32", (-1, 2, 1), [[[1], [2]], [[3], [4]]]),
    "pictures by name": (b'{"instances":[{"x":[[1],[2]]}]}', "float32", (-1, 2, 1), [[[1], [2]]]),
    "as many as asked for": (b'{"instances":[[1,2,3],[4,5,6]]}', "float32", (2, 3), [[1, 2, 3], [4, 5, 6]]),
}


@pytest.mark.parametrize("body, dtype, shape, wanted", TAKEN.values(), ids=TAKEN)
def test_rows_of_numbers_are_taken(body: bytes, dtype: str, shape: tuple[int, ...], wanted: Any) -> None:
    request = quick(body, dtype, shape)
    assert request is not None
    array = request.inputs["x"]
    assert array.dtype == dtype
    assert array.tolist() == wanted
    assert array.flags.writeable
    assert array.flags.c_contiguous


LEFT: dict[str, tuple[bytes, str, tuple[int, ...]]] = {
    "nothing": (b"", "float32", (-1, 3)),
    "no JSON": (b'{"instances":[[1,2,3]]', "float32", (-1, 3)),
    "a byte order mark": (b'\xef\xbb\xbf{"instances":[[1,2,3]]}', "float32", (-1, 3)),
    "no instances": (b'{"instances":[]}', "float32", (-1, 3)),
    "instances twice": (b'{"instances":[[1,2,3]],"instances":[[1,2,3]]}', "float32", (-1, 3)),
    "another field": (b'{"instances":[[1,2,3]],"signature_name":"serving_default"}', "float32", (-1, 3)),
    "another name": (b'{"instances":[{"z":[1,2,3]}]}', "float32", (-1, 3)),
    "a name twice": (b'{"instances":[{"x":[1,2,3],"x":[1,2,3]}]}', "float32", (-1, 3)),
    "one with a name, one without": (b'{"instances":[{"x":[1,2,3]},[1,2,3]]}', "float32", (-1, 3)),
    "one without a name, one with": (b'{"instances":[[1,2,3],{"x":[1,2,3]}]}', "float32", (-1, 3)),
    "too short": (b'{"instances":[[1,2,3],[1,2]]}', "float32", (-1, 3)),
    "short and long": (b'{"instances":[[1,2],[1],[1,2,3]]}', "float32", (-1, -1)),
    "a list too many": (b'{"instances":[[1,[2],3]]}', "float32", (-1, 3)),
    "a list too many, and a number too few": (b'{"instances":[[1,[2,3]],[4,5]]}', "float32", (-1, -1)),
    "a truth": (b'{"instances":[[1,true,3]]}', "float32", (-1, 3)),
    "null": (b'{"instances":[[1,null,3]]}', "float32", (-1, 3)),
    "NaN": (b'{"instances":[[1,NaN,3]]}', "float32", (-1, 3)),
    "beyond float32": (b'{"instances":[[1,1e39,3]]}', "float32", (-1, 3)),
    "beyond int8": (b'{"instances":[128]}', "int8", (-1,)),
    "below uint8": (b'{"instances":[-1]}', "uint8", (-1,)),
    "beyond 64 bits": (b'{"instances":[18446744073709551616]}', "float64", (-1,)),
    "a float for an integer": (b'{"instances":[1.0]}', "int32", (-1,)),
    "one too many": (b'{"instances":[[1,2,3],[1,2,3],[1,2,3]]}', "float32", (2, 3)),
}


@pytest.mark.parametrize("body, dtype, shape", LEFT.values(), ids=LEFT)
def test_all_else_is_left_to_the_long_way(body: bytes, dtype: str, shape: tuple[int, ...]) -> None:
    assert quick(body, dtype, shape) is None


def test_a_parser_is_not_stuck_with_what_it_gave_before() -> None:
    for body in (b'{"instances":[[1,2,3]]}', b'{"instances":[{"x":[1,2,3]},[1]]}', b'{"instances":[[1,true,3]]}') * 2:
        quick(body)
    assert quick(b'{"instances":[[7,8,9]]}') is not None


def test_long_bodies_are_taken_too() -> None:
    rows = np.arange(600_000, dtype=np.float64).reshape(-1, 3) / 7
    body = json.dumps({"instances": rows.tolist()}).encode()
    assert len(body) > 4 << 20
    request = quick(body, "float64")
    assert request is not None
    assert request.inputs["x"].tobytes() == rows.tobytes()


def test_several_threads_read_at_once() -> None:
    wrong: list[int] = []

    def read(number: int) -> None:
        body = json.dumps({"instances": [[number, number + 0.5, 3.0]] * 50}).encode()
        for _ in range(100):
            request = quick(body)
            if request is None or request.inputs["x"][49].tolist() != [number, number + 0.5, 3.0]:
                wrong.append(number)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    "dtype, shape", [("string", (-1,)), ("bool", (-1,)), ("float16", (-1, 3)), ("float32", None), ("float32", ())]
)
def test_other_inputs_have_no_fast_path(dtype: str, shape: tuple[int, ...] | None) -> None:
    assert numeric_input(signatures(dtype, shape)) is None


def test_the_fast_path_is_that_of_the_default_signature() -> None:
    one = signatures("float32", (-1, 3))["serving_default"]
    two = signatures("int64", (-1,))["serving_default"]
    both = numeric_input({"other": two, "serving_default": one})
    assert both is not None
    assert (both.signature, both.tensor.dtype) == ("serving_default", "float32")
    alone = numeric_input({"other": two})
    assert alone is not None
    assert alone.signature == "other"
    assert numeric_input({"other": two, "another": one}) is None
    wide = Signature(inputs={**one.inputs, "z": one.inputs["x"]}, outputs=one.outputs)
    assert numeric_input({"serving_default": wide}) is None


NUMBERS = (
    st.integers(-300, 300).map(str)
    | st.integers(-(2**66), 2**66).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr)
    | st.sampled_from(
        ["-0", "-0.0", "0e5", "1E+3", "1e-400", "1e400", "3.4028235677973366e38", "3.40282357e38", "01", "1."]
    )
    | st.from_regex(r"\A-?(0|[1-9]\d{0,40})(\.\d{1,60})?([eE][+-]?\d{1,3})?\Z")
)
ODD = st.sampled_from(["true", "null", '"a"', "NaN", "-Infinity", "{}", "[]", '{"x":1}', '{"b64":"AA=="}', ""])
ROW = st.lists(NUMBERS, min_size=3, max_size=3).map(lambda items: f"[{','.join(items)}]")
VALUE = st.recursive(
    NUMBERS | ROW | ODD,
    lambda inner: st.lists(inner, max_size=4).map(lambda items: f"[{', '.join(items)}]"),
    max_leaves=12,
)
NAMED = VALUE.map(lambda value: f'{{"x":{value}}}')
INSTANCES = (
    st.lists(ROW, min_size=1, max_size=4)
    | st.lists(ROW.map(lambda row: f'{{"x": {row}}}'), min_size=1, max_size=4)
    | st.lists(NUMBERS, min_size=1, max_size=4)
    | st.lists(VALUE | NAMED, max_size=4)
).map(lambda items: f"[{','.join(items)}]")
KEYS = st.just("instances") | st.sampled_from(["signature_name", "Instances", "x"])
BODIES = (
    INSTANCES.map(lambda value: f'{{"instances":{value}}}')
    | st.lists(st.tuples(KEYS, INSTANCES | VALUE), max_size=3).map(
        lambda pairs: "{" + ", ".join(f'"{key}": {value}' for key, value in pairs) + "}"
    )
    | VALUE
).map(str.encode)


@settings(max_examples=600)
@given(BODIES, st.sampled_from(DTYPES), st.sampled_from(SHAPES))
@example(b'{"instances":[[1,[2,3]],[4]]}', "float32", (-1, -1))
@example(b'{"instances":[[-0,-0.0,0]]}', "float64", (-1, 3))
def test_what_is_taken_is_what_the_long_way_makes_of_it(body: bytes, dtype: str, shape: tuple[int, ...]) -> None:
    taken = quick(body, dtype, shape)
    if taken is None:
        return
    long = tensor_request(body, signatures(dtype, shape))
    quick_array, long_array = taken.inputs["x"], long.inputs["x"]
    assert (quick_array.dtype, quick_array.shape) == (long_array.dtype, long_array.shape)
    assert quick_array.tobytes() == long_array.tobytes()
    assert (taken.signature, taken.count) == (long.signature, long.count)
    assert taken.key == long.key or shape[0] != -1


@settings(max_examples=200)
@given(
    st.lists(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3), min_size=1),
    st.data(),
)
def test_what_was_broken_on_its_way_is_never_taken_for_something_else(rows: list[list[float]], data: Any) -> None:
    body = bytearray(json.dumps({"instances": rows}).encode())
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    taken = quick(bytes(body))
    try:
        long = tensor_request(bytes(body), signatures("float32", (-1, 3)))
    except InvalidInputsError:
        assert taken is None
        return
    if taken is not None:
        assert taken.inputs["x"].tobytes() == long.inputs["x"].tobytes()
    elif bytes(body) == json.dumps({"instances": rows}).encode():
        assert any(math.isinf(np.float32(number)) for row in rows for number in row)
