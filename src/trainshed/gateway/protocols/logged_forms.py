"""Requests and responses as text for the request log, and back for a replay. Binary tensors become JSON."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import orjson

from trainshed.serving.frames import FrameKind, infer_head, unpack_infer

_BINARY_SIZE = "binary_data_size"
_CODES: Mapping[str, str] = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}
_LENGTH = struct.Struct("<I")


def logged_text(kind: int, body: bytes) -> str:
    """The body of a frame, of a request or of its response with status 200, as the log has it."""
    if kind != FrameKind.INFER:
        return body.decode("utf-8", "replace")
    length, payload = unpack_infer(body)
    document = _document(payload[:length]) if length else None
    tensors = _tensors(document)
    if document is None or not any(_BINARY_SIZE in _parameters(tensor) for tensor in tensors):
        return str(payload, "utf-8", "replace")
    offset = length
    for tensor in tensors:
        size = _parameters(tensor).pop(_BINARY_SIZE, None)
        if size is not None:
            tensor["data"] = _values(tensor["datatype"], payload[offset : offset + size])
            offset += size
    _parameters(document).pop("binary_data_output", None)
    if "inputs" in document:
        for output in document.get("outputs", ()):
            _parameters(output).pop("binary_data", None)
    return orjson.dumps(document).decode()


def replayed_body(kind: int, text: str) -> bytes:
    """The body of a frame that repeats a logged request."""
    return infer_head(0) + text.encode() if kind == FrameKind.INFER else text.encode()


def _document(data: memoryview) -> dict[str, Any] | None:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:  # the length was of another request
        return None
    return document if isinstance(document, dict) else None


def _tensors(document: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The inputs of a request, or the outputs of a response."""
    tensors = (document or {}).get("inputs", (document or {}).get("outputs"))
    return [tensor for tensor in tensors if isinstance(tensor, dict)] if isinstance(tensors, list) else []


def _parameters(fields: Mapping[str, Any]) -> dict[str, Any]:
    parameters = fields.get("parameters")
    return parameters if isinstance(parameters, dict) else {}


def _values(datatype: str, data: memoryview) -> list[Any]:
    if datatype == "BYTES":
        return _texts(data)
    if datatype == "BF16":
        halves = struct.unpack(f"<{len(data) // 2}H", data)
        return [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]
    code = _CODES[datatype]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(f'<{code}')}{code}", data))


def _texts(data: memoryview) -> list[str]:
    texts, offset = [], 0
    while offset < len(data):
        (length,) = _LENGTH.unpack_from(data, offset)
        offset += _LENGTH.size + length
        texts.append(str(data[offset - length : offset], "utf-8", "replace"))
    return texts
