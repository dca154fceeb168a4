"""A request for a version that a person can begin with: the sample it was warmed with, or one after its signature."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson

LARGE = 64 * 1024  #: bytes of JSON that are still for people
_MOST_VALUES = 1024  #: of one input that is made up
_DEFAULT = "serving_default"


def sample_request(details: Mapping[str, Any]) -> dict[str, Any]:
    """The instances, which signature they are for, and where they are from, as a version's details tell.

    `source` is `sample` for the request that its hosts were warmed with, `signature` for one that only has the right
    shape, empty if nothing is known. Of a large sample only the first instance is given, and `cut` is true.
    """
    signatures: Mapping[str, Any] = details.get("signatures") or {}
    stored = details.get("sample") or {}
    instances = stored.get("instances") or []
    name = str(stored.get("signature_name", "")) or _chosen(signatures)
    source = "sample" if instances else ""
    if not instances and name and (made := _made(signatures[name])) is not None:
        instances, source = [made], "signature"
    cut = len(instances) > 1 and len(orjson.dumps(instances)) > LARGE
    return {
        "instances": instances[:1] if cut else instances,
        "signature": name,
        "inputs": signatures.get(name, {}).get("inputs", {}),
        "source": source,
        "cut": cut,
    }


def _chosen(signatures: Mapping[str, Any]) -> str:
    return _DEFAULT if _DEFAULT in signatures else min(signatures, default="")


def _made(signature: Mapping[str, Any]) -> dict[str, Any] | None:
    """One instance of zeros and empty texts; None if there would be too many of them."""
    inputs = signature.get("inputs", {})
    shapes = {
        name: [1 if size == -1 else size for size in (tensor["shape"] or [-1])[1:]] for name, tensor in inputs.items()
    }
    if not inputs or any(math.prod(shape) > _MOST_VALUES for shape in shapes.values()):
        return None
    return {name: _filled(_empty(name, inputs[name]["dtype"]), shape) for name, shape in shapes.items()}


def _empty(name: str, dtype: str) -> Any:
    if dtype == "string":
        return {"b64": ""} if name.endswith("_bytes") else ""
    return False if dtype == "bool" else 0.0 if "float" in dtype else 0


def _filled(value: Any, shape: list[int]) -> Any:
    return [_filled(value, shape[1:]) for _ in range(shape[0])] if shape else value
