"""The Open Inference Protocol V2: metadata of server and models, and the header that its binary extension adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainshed.gateway.routes import ModelRoute
from trainshed.serving.frames import infer_head
from trainshed.serving.signatures import DEFAULT

JSON_LENGTH_HEADER = "inference-header-content-length"  #: the length of the JSON before binary data
_JSON_LENGTH = JSON_LENGTH_HEADER.encode()
_MAX_DIGITS = 15
_BEYOND_ANY_BODY = 10**_MAX_DIGITS
_DATATYPES: Mapping[str, str] = {
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "bool": "BOOL",
    "string": "BYTES",
}


def request_head(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The head of an `INFER` frame for a request with these headers.

    A length that is no number becomes one that no body has, which the host rejects if the body has binary data.
    """
    value = dict(headers).get(_JSON_LENGTH, b"0")
    return infer_head(int(value) if value.isdigit() and len(value) <= _MAX_DIGITS else _BEYOND_ANY_BODY)


def server_metadata(version: str) -> dict[str, Any]:
    return {"name": "trainshed", "version": version, "extensions": ["binary_tensor_data"]}


def model_metadata(model: ModelRoute, signatures: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs and outputs of a version's default signature.

    Models without signatures take tensors of any name, datatype and shape; one of two dimensions is most usual.
    """
    name = DEFAULT if DEFAULT in signatures else min(signatures, default="")
    signature = signatures.get(name)
    any_input = {"name": "input-0", "datatype": "FP64", "shape": [-1, -1]}
    any_output = {"name": "predict", "datatype": "FP64", "shape": [-1]}
    return {
        "name": model.model,
        "versions": list(model.versions),
        "platform": "trainshed",
        "inputs": _tensors(signature["inputs"]) if signature else [any_input],
        "outputs": _tensors(signature["outputs"]) if signature else [any_output],
    }


def model_config(model: ModelRoute, signatures: Mapping[str, Any]) -> dict[str, Any]:
    """The same as Triton's model configuration. The first dimension is among `dims`, so `max_batch_size` is 0."""
    metadata = model_metadata(model, signatures)
    return {
        "name": model.model,
        "platform": metadata["platform"],
        "max_batch_size": 0,
        "input": [_config(tensor) for tensor in metadata["inputs"]],
        "output": [_config(tensor) for tensor in metadata["outputs"]],
    }


def _config(tensor: Mapping[str, Any]) -> dict[str, Any]:
    datatype = "STRING" if tensor["datatype"] == "BYTES" else tensor["datatype"]
    return {"name": tensor["name"], "data_type": f"TYPE_{datatype}", "dims": tensor["shape"]}


def _tensors(tensors: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "datatype": _DATATYPES.get(tensor["dtype"], tensor["dtype"]),
            "shape": [-1] if tensor["shape"] is None else list(tensor["shape"]),
        }
        for name, tensor in tensors.items()
    ]
