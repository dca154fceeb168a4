"""JSON that is taken and JSON that is not, and what comes back."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.serving.codec.json_documents import MAX_DEPTH, read_object, write
from trainshed.serving.errors import BadOutputsError, InvalidInputsError

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=12) | st.just("instances"), PLAIN, max_size=4))
def test_what_the_standard_library_writes_is_read(document: dict[str, Any]) -> None:
    assert read_object(json.dumps(document).encode()) == document
    assert read_object(json.dumps(document, ensure_ascii=False).encode("utf-8")) == document


@pytest.mark.fault("F54")
@pytest.mark.parametrize("token, value", [("NaN", math.nan), ("Infinity", math.inf), ("-Infinity", -math.inf)])
def test_numbers_that_are_none_are_taken_and_given(token: str, value: float) -> None:
    (given,) = read_object(f'{{"instances": [{token}]}}'.encode())["instances"]
    assert str(given) == str(value)
    assert write({"predictions": [value, 0.5, None]}) == f'{{"predictions":[{token},0.5,null]}}'.encode()


BAD = {
    "nothing": b"",
    "no JSON": b"instances",
    "cut short": b'{"instances": [1',
    "a list": b"[1]",
    "not UTF-8": b'{"instances": ["\xff"]}',
    "a byte order mark": b'\xef\xbb\xbf{"instances": [1]}',
    "a raw NUL": b'{"instances": ["\x00"]}',
    "half a character": b'{"instances": ["\\ud800"]}',
    "half a character beside NaN": b'{"instances": ["\\ud800", NaN]}',
    "half a character as a key": b'{"instances": [{"\\udc00": NaN}]}',
    "too large a float": b'{"instances": [1e400]}',
    "too large a float beside NaN": b'{"instances": [1e400, NaN]}',
    "a long integer": b'{"instances": [' + b"9" * 5000 + b"]}",
    "a long integer beside NaN": b'{"instances": [NaN, ' + b"9" * 5000 + b"]}",
    "deep lists": b'{"instances": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep lists, not closed": b'{"instances": ' + b"[" * 100_000,
    "deep objects": b'{"instances":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    "deep lists beside NaN": b'{"instances": [NaN, ' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
    "one list too deep": b'{"instances": ' + b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH + b"}",
    "one list too deep, late": b'{"instances": [' + b"[1]," * 200 + b"[" * 63 + b"]" * 63 + b"]}",
    "one object too deep": b'{"instances": [' + b'{"a":' * 63 + b"1" + b"}" * 63 + b"]}",
    "instances twice": b'{"instances": [1], "instances": [2]}',
    "instances twice, once escaped": b'{"instances": [1], "\\u0069nstances": [2]}',
    "an input twice": b'{"instances": [{"a": 1, "a": 2}]}',
    "an input twice, beside a colon": b'{"instances": [{"a": 1, "a": 2}], "b": ":"}',
    "a deep key twice": b'{"instances": [[[{"a": {"b": 1, "b": 1}}]]]}',
    "a key twice beside NaN": b'{"instances": [{"a": 1, "a": NaN}]}',
    "NaN in a string only": b'{"instances": ["NaN",]}',
    "other constants": b'{"instances": [-NaN]}',
}


@pytest.mark.fault("F54")
@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
def test_what_is_not_taken_is_the_callers_fault(body: bytes) -> None:
    with pytest.raises(InvalidInputsError) as caught:
        read_object(body)
    assert caught.value.status == 400
    assert len(str(caught.value)) < 300


@pytest.mark.fault("F54")
@given(st.binary() | st.text(alphabet='{}[]":,NaInfity0123456789e-.\\ud8 ').map(str.encode))
def test_no_bytes_at_all_raise_anything_else(body: bytes) -> None:
    with contextlib.suppress(InvalidInputsError):
        assert isinstance(read_object(body), dict)


@pytest.mark.parametrize(
    "body",
    [
        b'{"instances": ' + b"[" * 63 + b"1" + b"]" * 63 + b"}",
        b'{"instances": [' + b"[1]," * 200 + b"[1]]}",
        b'{"instances": ["' + b"[" * 200 + b'\\"' + b"{" * 200 + b'"]}',
        b'{"instances": [{"a": "x:y", "b": {"b64": "QQ=="}}]}',
        b'{"signature_name": "a:b", "instances": [{"a": "\\u0000"}]}',
    ],
)
def test_what_only_looks_bad_is_taken(body: bytes) -> None:
    assert read_object(body) == json.loads(body)


def test_long_integers_of_a_model_are_written_whole() -> None:
    assert write({"predictions": [2**80]}) == b'{"predictions":[1208925819614629174706176]}'


@pytest.mark.parametrize("value", [b"bytes", object(), "\ud800", {1, 2}])
def test_what_has_no_form_in_json_is_the_models_fault(value: object) -> None:
    with pytest.raises(BadOutputsError):
        write({"predictions": [value]})
