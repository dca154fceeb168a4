"""TensorFlow Serving's REST API: the status and the metadata of models, in its words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainshed.domain.models.hosting import ServingState
from trainshed.gateway.routes import ModelRoute, VersionRoute

_STATES: Mapping[ServingState, str] = {
    ServingState.READY: "AVAILABLE",
    ServingState.SLEEPING: "AVAILABLE",  # a request activates it
    ServingState.WAKING: "AVAILABLE",
    ServingState.STARTING: "LOADING",
    ServingState.UNHEALTHY: "END",
}
_TYPES: Mapping[str, str] = {
    "float16": "DT_HALF",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "bfloat16": "DT_BFLOAT16",
    "int8": "DT_INT8",
    "int16": "DT_INT16",
    "int32": "DT_INT32",
    "int64": "DT_INT64",
    "uint8": "DT_UINT8",
    "uint16": "DT_UINT16",
    "uint32": "DT_UINT32",
    "uint64": "DT_UINT64",
    "bool": "DT_BOOL",
    "string": "DT_STRING",
    "complex64": "DT_COMPLEX64",
    "complex128": "DT_COMPLEX128",
}


def version_name(version: str) -> str:
    """The version that a path names. TensorFlow Serving's versions are numbers; number N is version vN."""
    return f"v{version}" if version.isascii() and version.isdigit() else version


def is_available(route: VersionRoute) -> bool:
    """Whether the version takes requests. One that is asleep is activated by them."""
    return _STATES[route.state] == "AVAILABLE"


def status(model: ModelRoute, versions: Iterable[VersionRoute]) -> dict[str, Any]:
    """The status of these versions. `name` and `ready` are for KServe's clients: its V1 protocol has the same path."""
    routes = list(versions)
    return {
        "name": model.model,
        "ready": any(map(is_available, routes)),
        "model_version_status": [_version_status(route) for route in routes],
    }


def _version_status(route: VersionRoute) -> dict[str, Any]:
    failed = route.state is ServingState.UNHEALTHY
    error = {"error_code": "UNAVAILABLE" if failed else "OK", "error_message": route.reason if failed else ""}
    return {"version": route.version, "state": _STATES[route.state], "status": error}


def metadata(route: VersionRoute, signatures: Mapping[str, Any]) -> dict[str, Any]:
    """The signatures of a version. A model without signatures has an empty table."""
    definitions = {name: _signature(signature) for name, signature in signatures.items()}
    return {
        "model_spec": {"name": route.model, "signature_name": "", "version": route.version},
        "metadata": {"signature_def": {"signature_def": definitions}},
    }


def _signature(signature: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "inputs": {name: _tensor(name, tensor) for name, tensor in signature["inputs"].items()},
        "outputs": {name: _tensor(name, tensor) for name, tensor in signature["outputs"].items()},
        "method_name": "tensorflow/serving/predict",
    }


def _tensor(name: str, tensor: Mapping[str, Any]) -> dict[str, Any]:
    shape = tensor["shape"]
    dimensions = [{"size": str(size), "name": ""} for size in shape or ()]
    return {
        "dtype": _TYPES.get(tensor["dtype"], "DT_INVALID"),
        "tensor_shape": {"dim": dimensions, "unknown_rank": shape is None},
        "name": name,
    }
