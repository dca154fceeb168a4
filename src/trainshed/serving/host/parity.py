"""TensorFlow's answers, kept in a file, and how far another loader's are from them."""

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

RELATIVE, ABSOLUTE = 1e-3, 1e-5  #: how far a float may be off
SEEDS = (1, 2, 3)
BATCHES = (1, 3)
MANIFEST = "manifest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityCase:
    """One request and TensorFlow's answer to it."""

    signature: str
    inputs: Mapping[str, NDArray[Any]]
    outputs: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """How a loader's answers compare with TensorFlow's."""

    difference: float  #: the greatest between two numbers
    within: bool  #: whether the loader may answer in TensorFlow's place
    text: str  #: the same, as a sentence

    def as_json(self) -> dict[str, Any]:
        return {"difference": self.difference, "within": self.within, "text": self.text}


def sample_inputs(model: TensorModel, model_dir: Path) -> tuple[str, Inputs] | None:
    """The signature and the inputs of the sample request. Raises as `samples.find_sample` does, and InvalidInputs."""
    sample = find_sample(model_dir, model)
    if sample is None:
        return None
    request = tensor_request(orjson.dumps(sample.body), model.signatures)
    return request.signature, dict(request.inputs)


def cases(model: TensorModel, sample: tuple[str, Inputs] | None) -> Iterator[ParityCase]:
    """The model's answers to the sample and to variations of it, for each signature that inputs are known for.

    The sample's inputs go to every signature that takes them. A variation that the model refuses is left out.
    """
    for name, signature in model.signatures.items():
        for inputs in _requests(name, signature, model.signatures, sample):
            outputs = _answer(model, name, inputs)
            if outputs is not None:
                yield ParityCase(signature=name, inputs=inputs, outputs=outputs)


def write(model: TensorModel, sample: tuple[str, Inputs] | None, path: Path) -> int:
    """Keep the answers of `cases` in a file, and return how many there are. `sample` is a signature and its inputs."""
    arrays: dict[str, NDArray[Any]] = {}
    listed = []
    for case in cases(model, sample):
        listed.append(
            {
                "signature": case.signature,
                "inputs": {name: _put(arrays, array) for name, array in case.inputs.items()},
                "outputs": {name: _put(arrays, array) for name, array in case.outputs.items()},
            }
        )
    arrays[MANIFEST] = np.frombuffer(orjson.dumps(listed), np.uint8)
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # the stubs take `allow_pickle` for one of them
    return len(listed)


def read(file: Path | IO[bytes]) -> list[ParityCase]:
    """What `write` kept."""
    with np.load(file) as kept:
        return [
            ParityCase(
                signature=case["signature"],
                inputs={name: _take(kept, item) for name, item in case["inputs"].items()},
                outputs={name: _take(kept, item) for name, item in case["outputs"].items()},
            )
            for case in orjson.loads(kept[MANIFEST].tobytes())
        ]


def compare(model: TensorModel, known: list[ParityCase]) -> Parity:
    """Ask another model the same, all signatures of it. Integers and strings must be equal, floats nearly so."""
    if unknown := sorted(set(model.signatures) - {case.signature for case in known}):
        text = (
            f"Nothing is known to compare the signature {unknown[0]} by. "
            "Put a request that it answers into assets.extra/sample_request.json."
        )
        return Parity(difference=0.0, within=False, text=text)
    greatest = 0.0
    for case in known:
        if case.signature not in model.signatures:
            text = f"The signature {case.signature} is missing."
            return Parity(difference=greatest, within=False, text=text)
        try:
            outputs = model.run(case.signature, dict(case.inputs))
        except Exception as exc:  # noqa: BLE001 - whatever it is, TensorFlow answers this request and the other does not
            text = f"A request that TensorFlow answers failed: {type(exc).__name__}: {exc}"
            return Parity(difference=greatest, within=False, text=text)
        difference, fault = _differ(case.outputs, outputs)
        greatest = max(greatest, difference)
        if fault:
            return Parity(difference=greatest, within=False, text=f"Signature {case.signature}: {fault}")
    text = f"{len(known)} requests are answered as by TensorFlow; the greatest difference is {greatest:.2g}."
    return Parity(difference=greatest, within=True, text=text)


def _answer(model: TensorModel, name: str, inputs: Inputs) -> Mapping[str, NDArray[Any]] | None:
    """None for inputs that the model refuses: they are made up, and there is nothing to compare with."""
    try:
        return model.run(name, inputs)
    except Exception:  # noqa: BLE001 - a graph may raise what it likes
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


def _differ(wanted: Mapping[str, NDArray[Any]], given: Mapping[str, NDArray[Any]]) -> tuple[float, str]:
    """The greatest difference between numbers, and a sentence about the first output that is not good enough."""
    if set(wanted) != set(given):
        return 0.0, f"the outputs are {', '.join(sorted(given))} and not {', '.join(sorted(wanted))}."
    greatest = 0.0
    for name in sorted(wanted):
        one, other = _comparable(wanted[name]), _comparable(given[name])
        if one.shape != other.shape:
            return greatest, f"{name} has the shape {list(other.shape)} and not {list(one.shape)}."
        if one.dtype.kind == "O" or other.dtype.kind == "O":
            good = np.asarray(one == other)
        else:
            distance = np.abs(one.astype(np.float64) - other.astype(np.float64))
            greatest = max(greatest, float(np.nanmax(distance, initial=0.0, where=np.isfinite(distance))))
            exact = one.dtype.kind != "f" and other.dtype.kind != "f"
            good = one == other if exact else np.isclose(other, one, RELATIVE, ABSOLUTE, equal_nan=True)
        if not good.all():
            at = tuple(np.argwhere(~good)[0])
            return greatest, f"{name} is {other[at]!r} where TensorFlow says {one[at]!r}."
    return greatest, ""


def _comparable(array: NDArray[Any]) -> NDArray[Any]:
    """Small floats as greater ones: not all of NumPy's functions know them."""
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype.name in ("bfloat16", "float16") else array


def _put(arrays: dict[str, NDArray[Any]], array: NDArray[Any]) -> Any:
    if array.dtype.kind == "O":
        return {"shape": array.shape, "strings": [base64.b64encode(value).decode() for value in array.reshape(-1)]}
    name = f"array{len(arrays)}"
    arrays[name] = array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    return name


def _take(kept: Any, item: Any) -> NDArray[Any]:
    if isinstance(item, str):
        return np.asarray(kept[item])
    values = np.empty(len(item["strings"]), object)
    values[:] = [base64.b64decode(text) for text in item["strings"]]
    return values.reshape(item["shape"])
