"""Parity: a framework's own outputs in a reference file, and how far another loader's outputs are from them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ..codec.tensors import tensor_request
from ..loaders.base import TensorModel
from ..signatures import Signature
from .sample_request import Inputs, find_sample, generated_inputs, varied_inputs

RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-3, 1e-5  #: of floats
SEEDS = (1, 2, 3)
BATCHES = (1, 3)
MANIFEST = "manifest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityCase:
    """One request and the reference's outputs for it."""

    reference: str  #: the framework that computed the outputs, such as TensorFlow
    signature: str
    inputs: Mapping[str, NDArray[Any]]
    outputs: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """How a loader's outputs compare with the reference's."""

    difference: float  #: the greatest between two numbers
    within: bool  #: whether the loader may serve instead of the reference
    message: str  #: the result as a sentence

    def as_json(self) -> dict[str, Any]:
        return {"difference": self.difference, "within": self.within, "message": self.message}


def sample_inputs(model: TensorModel, model_dir: Path) -> tuple[str, Inputs] | None:
    """Signature and inputs of the sample request. Raises what `find_sample` raises, and `InvalidInputsError`."""
    sample = find_sample(model_dir, model)
    if sample is None:
        return None
    request = tensor_request(orjson.dumps(sample.body), model.signatures)
    return request.signature, dict(request.inputs)


def cases(model: TensorModel, sample: tuple[str, Inputs] | None) -> Iterator[ParityCase]:
    """The model's outputs for the sample request and variations of it, for each signature with known inputs.

    Every signature that takes the sample's inputs gets them. Variations that the model rejects are omitted.
    """
    for name, signature in model.signatures.items():
        for inputs in _requests(name, signature, model.signatures, sample):
            outputs = _outputs(model, name, inputs)
            if outputs is not None:
                reference = model.detail.rpartition(" ")[0]  # without its version
                yield ParityCase(reference=reference, signature=name, inputs=inputs, outputs=outputs)


def write(model: TensorModel, sample: tuple[str, Inputs] | None, path: Path) -> int:
    """Write `cases` to a file. Returns their number. `sample` is a signature and its inputs."""
    arrays: dict[str, NDArray[Any]] = {}
    manifest = []
    for case in cases(model, sample):
        manifest.append(
            {
                "reference": case.reference,
                "signature": case.signature,
                "inputs": {name: _store(arrays, array) for name, array in case.inputs.items()},
                "outputs": {name: _store(arrays, array) for name, array in case.outputs.items()},
            }
        )
    arrays[MANIFEST] = np.frombuffer(orjson.dumps(manifest), np.uint8)
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # the stubs take `allow_pickle` for one of them
    return len(manifest)


def read(file: Path | IO[bytes]) -> list[ParityCase]:
    """Read the cases that `write` wrote."""
    with np.load(file) as arrays:
        return [
            ParityCase(
                reference=case["reference"],
                signature=case["signature"],
                inputs={name: _load(arrays, item) for name, item in case["inputs"].items()},
                outputs={name: _load(arrays, item) for name, item in case["outputs"].items()},
            )
            for case in orjson.loads(arrays[MANIFEST].tobytes())
        ]


def compare(model: TensorModel, reference: list[ParityCase]) -> Parity:
    """Run the cases with another model, all its signatures. Integers and strings must be equal, floats nearly equal."""
    if unknown := sorted(set(model.signatures) - {case.signature for case in reference}):
        message = (
            f"Nothing is known to compare the signature {unknown[0]} by. "
            "Put a request that it answers into assets.extra/sample_request.json."
        )
        return Parity(difference=0.0, within=False, message=message)
    greatest = 0.0
    for case in reference:
        if case.signature not in model.signatures:
            message = f"The signature {case.signature} is missing."
            return Parity(difference=greatest, within=False, message=message)
        try:
            outputs = model.run(case.signature, dict(case.inputs))
        except Exception as exc:  # noqa: BLE001 - the reference serves this request and this model does not
            message = f"A request that {case.reference} answers failed: {type(exc).__name__}: {exc}"
            return Parity(difference=greatest, within=False, message=message)
        difference, problem = _difference(case, outputs)
        greatest = max(greatest, difference)
        if problem:
            return Parity(difference=greatest, within=False, message=f"Signature {case.signature}: {problem}")
    framework = next((case.reference for case in reference), "")
    message = f"{len(reference)} requests are answered as by {framework}; the greatest difference is {greatest:.2g}."
    return Parity(difference=greatest, within=True, message=message)


def _outputs(model: TensorModel, name: str, inputs: Inputs) -> Mapping[str, NDArray[Any]] | None:
    """The model's outputs. Returns None if it rejects the inputs: they are generated, and need not be valid."""
    try:
        return model.run(name, inputs)
    except Exception:  # noqa: BLE001 - a graph may raise anything
        return None


def _requests(
    name: str, signature: Signature, signatures: Mapping[str, Signature], sample: tuple[str, Inputs] | None
) -> Iterator[Inputs]:
    base = None
    if sample is not None and signatures[sample[0]].inputs == signature.inputs:
        base = sample[1]
    elif signature.batched:
        base = generated_inputs(signature)
    if base is None:
        return
    yield base
    for seed in SEEDS:
        for rows in BATCHES if signature.batched else (len(next(iter(base.values()))),):
            yield varied_inputs(base, rows=rows, seed=seed)


def _difference(case: ParityCase, actual: Mapping[str, NDArray[Any]]) -> tuple[float, str]:
    """The greatest difference between numbers, and a sentence about the first output beyond the tolerance."""
    expected = case.outputs
    if set(expected) != set(actual):
        return 0.0, f"the outputs are {', '.join(sorted(actual))} and not {', '.join(sorted(expected))}."
    greatest = 0.0
    for name in sorted(expected):
        one, other = _comparable(expected[name]), _comparable(actual[name])
        if one.shape != other.shape:
            return greatest, f"{name} has the shape {list(other.shape)} and not {list(one.shape)}."
        if one.dtype.kind == "O" or other.dtype.kind == "O":
            good = np.asarray(one == other)
        else:
            distance = np.abs(one.astype(np.float64) - other.astype(np.float64))
            greatest = max(greatest, float(np.nanmax(distance, initial=0.0, where=np.isfinite(distance))))
            exact = one.dtype.kind != "f" and other.dtype.kind != "f"
            good = (
                one == other
                if exact
                else np.isclose(other, one, RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE, equal_nan=True)
            )
        if not good.all():
            at = tuple(np.argwhere(~good)[0])
            return greatest, f"{name} is {other[at]!r} where {case.reference} says {one[at]!r}."
    return greatest, ""


def _comparable(array: NDArray[Any]) -> NDArray[Any]:
    """16-bit floats as 32-bit ones: not all functions of NumPy accept them."""
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype.name in ("bfloat16", "float16") else array


def _store(arrays: dict[str, NDArray[Any]], array: NDArray[Any]) -> Any:
    if array.dtype.kind == "O":
        return {"shape": array.shape, "strings": [base64.b64encode(value).decode() for value in array.reshape(-1)]}
    name = f"array{len(arrays)}"
    arrays[name] = array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    return name


def _load(arrays: Any, item: Any) -> NDArray[Any]:
    if isinstance(item, str):
        return np.asarray(arrays[item])
    values = np.empty(len(item["strings"]), object)
    values[:] = [base64.b64decode(text) for text in item["strings"]]
    return values.reshape(item["shape"])
