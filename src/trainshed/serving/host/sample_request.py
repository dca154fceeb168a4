"""The sample request of a version: for the warm-up of hosts and the comparison of loaders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ..errors import LoaderError
from ..formats.protobuf import BadMessageError
from ..formats.tf_serving_warmup import requests
from ..loaders.base import InstanceModel, Model, TensorModel
from ..loaders.tabular import TabularModel, plain
from ..signatures import DEFAULT, STRING, Signature, Tensor

FOLDER = "assets.extra"
OWN, SERVING = "sample_request.json", "tf_serving_warmup_requests"
ROWS = 3  #: of a generated sample for a table
LENGTHS = (8, 32, 224)  #: tried for dimensions of any length: convolutions need a minimum

Inputs = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """A predict request that the model accepts."""

    body: dict[str, Any]
    source: str  #: its file; empty if it was generated from the signature

    @property
    def given(self) -> bool:
        """Whether the model's owner wrote it. A model that fails on it is broken."""
        return bool(self.source)


def find_sample(model_dir: Path, model: Model) -> SampleRequest | None:
    """The sample of `assets.extra`, or one that is generated from the inputs of the model. Returns None without either.

    A generated sample has been run. Raises `LoaderError` if a file of `assets.extra` is not a request.
    """
    sample = bundled_sample(model_dir)
    if sample is not None:
        return sample
    body = _tensor_sample(model) if isinstance(model, TensorModel) else _table_sample(model)
    return None if body is None else SampleRequest(body=body, source="")


def bundled_sample(model_dir: Path) -> SampleRequest | None:
    """The sample in the model's files. Raises `LoaderError` if the file is not a request."""
    own, serving = model_dir / FOLDER / OWN, model_dir / FOLDER / SERVING
    if own.is_file():
        try:
            body = orjson.loads(own.read_bytes())
        except orjson.JSONDecodeError as exc:
            raise LoaderError(f"{FOLDER}/{OWN} is not JSON: {exc}.") from exc
        if not isinstance(body, dict) or not isinstance(body.get("instances"), list) or not body["instances"]:
            raise LoaderError(f'{FOLDER}/{OWN} is no request: expected an object like {{"instances": [...]}}.')
        return SampleRequest(body=body, source=f"{FOLDER}/{OWN}")
    if serving.is_file():
        try:
            body = next(requests(serving.read_bytes()), None)
        except BadMessageError as exc:
            raise LoaderError(f"{FOLDER}/{SERVING} cannot be read: {exc}") from exc
        if body is not None:
            return SampleRequest(body=body, source=f"{FOLDER}/{SERVING}")
    return None


def generated_inputs(signature: Signature, *, rows: int = 1, length: int = LENGTHS[0], seed: int = 0) -> Inputs | None:
    """Inputs that match a signature: floats from 0 to 1, the integers 0 and 1. Returns None if it takes strings.

    `rows` is ignored where the signature has a fixed number of instances.
    """
    rng = np.random.default_rng(seed)
    inputs: Inputs = {}
    for name, tensor in signature.inputs.items():
        values = _values(tensor, rows=rows, length=length, rng=rng)
        if values is None:
            return None
        inputs[name] = values
    return inputs


def varied_inputs(inputs: Mapping[str, NDArray[Any]], *, rows: int, seed: int) -> Inputs:
    """Variations of inputs: floats nearer to zero, integers of the same input or 0 or 1, unchanged strings."""
    rng = np.random.default_rng(seed)
    indexes = rng.integers(0, len(next(iter(inputs.values()))), rows)
    return {name: _varied(array[indexes], rng) for name, array in inputs.items()}


def body(inputs: Mapping[str, NDArray[Any]], *, signature: str = "") -> dict[str, Any]:
    """The request body with these inputs."""
    columns = {name: plain(_shortest(array).tolist()) for name, array in inputs.items()}
    instances = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return ({"signature_name": signature} if signature else {}) | {"instances": instances}


def _shortest(array: NDArray[Any]) -> NDArray[Any]:
    """Floats with the fewest digits that identify them in their own type."""
    return array.astype("U").astype(np.float64) if array.dtype.kind == "f" else array


def _tensor_sample(model: TensorModel) -> dict[str, Any] | None:
    name = DEFAULT if DEFAULT in model.signatures else min(model.signatures)
    for length in LENGTHS:
        inputs = generated_inputs(model.signatures[name], length=length)
        if inputs is None or any(array.ndim == 0 for array in inputs.values()):
            return None
        if _succeeds(lambda feeds=inputs: model.run(name, feeds)):
            return body(inputs, signature="" if name == DEFAULT or len(model.signatures) == 1 else name)
    return None


def _table_sample(model: InstanceModel) -> dict[str, Any] | None:
    if not isinstance(model, TabularModel) or not model.width:
        return None
    rows = np.random.default_rng(0).random((ROWS, model.width)).round(4).tolist()
    return {"instances": rows} if _succeeds(lambda: model.predict(rows)) else None


def _succeeds(call: Any) -> bool:
    """Whether the model accepts the generated inputs. It need not: they may be invalid."""
    try:
        call()
    except Exception:  # noqa: BLE001 - the model's own code
        return False
    return True


def _values(tensor: Tensor, *, rows: int, length: int, rng: np.random.Generator) -> NDArray[Any] | None:
    if tensor.dtype == STRING or tensor.dtype == "bfloat16" or tensor.dtype.startswith("complex"):
        return None  # unknown content, or types that NumPy lacks
    shape = (-1,) if tensor.shape is None else tensor.shape
    sizes = [size if size != -1 else rows if at == 0 else length for at, size in enumerate(shape)]
    if tensor.dtype.startswith("float"):
        return rng.random(sizes).round(4).astype(tensor.dtype)
    return rng.integers(0, 2, sizes).astype(tensor.dtype)


def _varied(array: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    if array.dtype.kind == "O":
        return array
    if array.dtype.kind in "biu":
        small = rng.integers(0, 2, array.shape).astype(array.dtype)
        return np.where(rng.random(array.shape) < 0.5, array, small)
    return (array * rng.random(array.shape)).astype(array.dtype)
