"""Signatures: the named inputs and outputs of a model that takes tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

DEFAULT = "serving_default"

#: numbers of TensorFlow's DataType enum and the names used here, which are NumPy's but for `string` and `bfloat16`
DTYPES: Mapping[int, str] = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "string",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
}

STRING = "string"  #: in arrays: dtype `object`, each element `bytes`


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """The type and shape of one input or output."""

    dtype: str  #: a value of `DTYPES`
    shape: tuple[int, ...] | None  #: -1 is any length; None is any rank. The first dimension counts instances

    def as_json(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": None if self.shape is None else list(self.shape)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        shape = value["shape"]
        return cls(dtype=str(value["dtype"]), shape=None if shape is None else tuple(map(int, shape)))

    @property
    def batched(self) -> bool:
        """Whether instances can be batched along the first dimension."""
        return self.shape is None or (len(self.shape) > 0 and self.shape[0] == -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One way to call a model. Inputs and outputs are sorted by name."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]

    def as_json(self) -> dict[str, Any]:
        return {
            "inputs": {name: tensor.as_json() for name, tensor in self.inputs.items()},
            "outputs": {name: tensor.as_json() for name, tensor in self.outputs.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            inputs={name: Tensor.from_json(tensor) for name, tensor in value["inputs"].items()},
            outputs={name: Tensor.from_json(tensor) for name, tensor in value["outputs"].items()},
        )

    @property
    def batched(self) -> bool:
        """Whether every input and output has a first dimension of any length, which counts instances."""
        return all(tensor.batched for tensor in (*self.inputs.values(), *self.outputs.values()))
