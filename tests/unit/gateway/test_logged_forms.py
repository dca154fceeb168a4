"""Binary tensors in the request log: as JSON, which a replay can send."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from trainshed.gateway.protocols.logged_forms import logged_text, replayed_body
from trainshed.serving.frames import FrameKind, infer_head, pack_infer


@pytest.mark.parametrize(
    ("datatype", "data", "values"),
    [
        ("BOOL", b"\0\1", [False, True]),
        ("UINT8", b"\0\xff", [0, 255]),
        ("INT16", struct.pack("<2h", -2, 5), [-2, 5]),
        ("INT64", struct.pack("<2q", -(1 << 62), 5), [-(1 << 62), 5]),
        ("FP16", struct.pack("<2e", 0.5, -2), [0.5, -2.0]),
        ("FP32", struct.pack("<2f", 0.5, -2), [0.5, -2.0]),
        ("FP64", struct.pack("<2d", 0.1, -2), [0.1, -2.0]),
        ("BF16", struct.pack("<2H", 0x3F80, 0xC000), [1.0, -2.0]),
        ("BYTES", struct.pack("<I2sI", 2, "é".encode(), 0), ["é", ""]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_request_and_its_answer_become_json(datatype: str, data: bytes, values: list[Any]) -> None:
    tensor = {"name": "x", "datatype": datatype, "shape": [2], "parameters": {"binary_data_size": len(data)}}
    plain = {"name": "x", "datatype": datatype, "shape": [2], "parameters": {}, "data": values}
    output = {"name": "y", "parameters": {"binary_data": True}}
    document = json.dumps(
        {"inputs": [tensor], "outputs": [output], "parameters": {"binary_data_output": True}}
    ).encode()
    request = logged_text(FrameKind.INFER, infer_head(len(document)) + document + data)
    assert json.loads(request) == {
        "inputs": [plain],
        "outputs": [{"name": "y", "parameters": {}}],
        "parameters": {},
    }
    answer = logged_text(FrameKind.INFER, pack_infer(json.dumps({"outputs": [tensor]}).encode(), data))
    assert json.loads(answer) == {"outputs": [plain]}


@pytest.mark.parametrize("length", [0, 5, 40, 1000])
def test_json_is_logged_as_it_is(length: int) -> None:
    """Whatever the length says that the client left from another request."""
    text = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]})
    assert logged_text(FrameKind.INFER, infer_head(length) + text.encode()) == text
    assert replayed_body(FrameKind.INFER, text) == infer_head(0) + text.encode()
    assert logged_text(FrameKind.PREDICT, text.encode()) == text
    assert replayed_body(FrameKind.PREDICT, text) == text.encode()
