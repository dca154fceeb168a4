"""A sample request for a version: its warm-up sample, or one generated from its signature."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson

from trainshed.domain.models.version_details import ServedModel

MAX_SAMPLE_BYTES = 64 * 1024  #: larger samples are truncated to one instance
_MAX_VALUES = 1024  #: per generated input
_DEFAULT = "serving_default"


def sample_request(served: ServedModel | None) -> dict[str, Any]:
    """The sample instances of a version, their signature and their source. `served` is None until it is READY.

    `source` is `sample` for the warm-up request of its hosts, and `signature` for generated values of the right shape.
    It is empty if neither exists. Of a large sample only the first instance is returned, and `cut` is true.
    """
    signatures = served.signatures if served else {}
    sample = (served.sample if served else None) or {}
    instances = sample.get("instances") or []
    name = str(sample.get("signature_name", "")) or _default_signature(signatures)
    source = "sample" if instances else ""
    if not instances and name and (instance := _zero_instance(signatures[name])) is not None:
        instances, source = [instance], "signature"
    truncated = len(instances) > 1 and len(orjson.dumps(instances)) > MAX_SAMPLE_BYTES
    return {
        "instances": instances[:1] if truncated else instances,
        "signature": name,
        "inputs": signatures.get(name, {}).get("inputs", {}),
        "source": source,
        "cut": truncated,
    }


def _default_signature(signatures: Mapping[str, Any]) -> str:
    return _DEFAULT if _DEFAULT in signatures else min(signatures, default="")


def _zero_instance(signature: Mapping[str, Any]) -> dict[str, Any] | None:
    """One instance of zeros and empty strings. Returns None if it would have too many values."""
    inputs = signature.get("inputs", {})
    shapes = {
        name: [1 if size == -1 else size for size in (tensor["shape"] or [-1])[1:]] for name, tensor in inputs.items()
    }
    if not inputs or any(math.prod(shape) > _MAX_VALUES for shape in shapes.values()):
        return None
    return {name: _full(_zero(name, inputs[name]["dtype"]), shape) for name, shape in shapes.items()}


def _zero(name: str, dtype: str) -> Any:
    if dtype == "string":
        return {"b64": ""} if name.endswith("_bytes") else ""
    return False if dtype == "bool" else 0.0 if "float" in dtype else 0


def _full(value: Any, shape: list[int]) -> Any:
    return [_full(value, shape[1:]) for _ in range(shape[0])] if shape else value
