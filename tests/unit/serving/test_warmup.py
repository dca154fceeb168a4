"""TensorFlow Serving's warm-up files, read without TensorFlow."""

from __future__ import annotations

import base64
import io
import struct

import numpy as np
import pytest

from trainshed.serving.formats.protobuf import BadMessageError, fields
from trainshed.serving.formats.tf_serving_warmup import requests, tensor
from trainshed.serving.formats.tfrecord import records
from trainshed.testing.workloads.event_files import field, framed, varint


def shaped(*sizes: int) -> bytes:
    return field(2, b"".join(field(2, field(1, size)) for size in sizes))


def predict_log(signature: str, **inputs: bytes) -> bytes:
    entries = b"".join(field(2, field(1, name.encode()) + field(2, value)) for name, value in inputs.items())
    request = field(1, field(1, b"mnist") + field(3, signature.encode())) + entries
    return field(6, field(1, request))


FLOATS = field(1, 1) + shaped(2, 2) + field(4, np.array([[0.5, 1], [2, 3]], "<f4").tobytes())
STRINGS = field(1, 7) + shaped(2) + field(8, b"\xff\x00") + field(8, b"text")


def test_a_predict_log_becomes_rows() -> None:
    data = framed(predict_log("serving_default", x=FLOATS, s=STRINGS))
    assert list(requests(data)) == [
        {
            "signature_name": "serving_default",
            "instances": [
                {"x": [0.5, 1.0], "s": {"b64": base64.b64encode(b"\xff\x00").decode()}},
                {"x": [2.0, 3.0], "s": {"b64": base64.b64encode(b"text").decode()}},
            ],
        }
    ]


def test_a_log_without_a_signature_names_none() -> None:
    assert list(requests(framed(predict_log("", x=FLOATS)))) == [{"instances": [{"x": [0.5, 1.0]}, {"x": [2.0, 3.0]}]}]


@pytest.mark.parametrize("kind", [2, 3], ids=["classification", "regression"])
def test_examples_go_as_they_are(kind: int) -> None:
    examples = field(1, field(1, b"one") + field(1, b"two"))
    log = field(kind, field(1, field(1, field(3, b"classify")) + field(2, examples)))
    wanted = [{"b64": base64.b64encode(text).decode()} for text in (b"one", b"two")]
    assert list(requests(framed(log))) == [{"signature_name": "classify", "instances": wanted}]


def test_what_has_no_rows_is_left_out() -> None:
    scalar = field(1, 1) + field(5, struct.pack("<f", 1))
    three = field(1, 1) + shaped(3) + field(5, struct.pack("<3f", 1, 2, 3))
    logs = (
        predict_log("a", x=scalar),
        predict_log("b", x=FLOATS, y=three),
        field(5, b""),
        predict_log("c", x=FLOATS),
    )
    assert [r["signature_name"] for r in requests(b"".join(map(framed, logs)))] == ["c"]


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        (field(1, 9) + shaped(3) + field(10, varint(1) + varint(-2) + varint(1 << 40)), [1, -2, 1 << 40]),
        (field(1, 3) + shaped(2) + field(7, 5) + field(7, -1), [5, -1]),
        (field(1, 2) + shaped(1) + field(6, struct.pack("<d", 0.1)), [0.1]),
        (field(1, 10) + shaped(2) + field(11, b"\x01\x00"), [True, False]),
        (field(1, 19) + shaped(1) + field(13, varint(0x3C00)), [1.0]),
        (field(1, 1) + shaped(2, 2) + field(5, struct.pack("<f", 7)), [[7, 7], [7, 7]]),
        (field(1, 1) + shaped(0), []),
    ],
    ids=["packed", "one by one", "double", "bool", "half", "one value for all", "empty"],
)
def test_values_of_a_tensor(message: bytes, wanted: list[object]) -> None:
    assert tensor(message).tolist() == wanted


def test_a_tensor_with_too_few_values_is_refused() -> None:
    with pytest.raises(BadMessageError, match=r"shape \[2\] has 3 values"):
        tensor(field(1, 1) + shaped(2) + field(5, struct.pack("<3f", 1, 2, 3)))
    with pytest.raises(BadMessageError, match="type number 8"):
        tensor(field(1, 8) + shaped(1))


def test_a_broken_file_says_where() -> None:
    data = framed(b"first") + framed(b"second")
    assert list(records(io.BytesIO(data))) == [b"first", b"second"]
    with pytest.raises(BadMessageError, match="at byte 21 is cut short"):
        list(records(io.BytesIO(data[:-1])))
    with pytest.raises(BadMessageError, match="not a TFRecord file"):
        list(records(io.BytesIO(b"\x01" + data[1:])))
    spoilt = bytearray(data)
    spoilt[12] ^= 1
    with pytest.raises(BadMessageError, match="checksum of the record at byte 0"):
        list(records(io.BytesIO(bytes(spoilt))))


@pytest.mark.parametrize("message", [b"\x80", field(1, b"abc")[:-1], b"\x0b", b"\xff" * 11])
def test_a_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(BadMessageError):
        fields(message)
