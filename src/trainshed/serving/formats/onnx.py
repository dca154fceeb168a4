"""The inputs and outputs of an ONNX file, read without ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import LoaderError
from ..signatures import Signature, Tensor
from .protobuf import BadMessageError, fields, signed

SUFFIX = ".onnx"
_MAIN = "model.onnx"  #: if a folder has several files

#: numbers of ONNX's TensorProto.DataType
_DTYPES: Mapping[int, str] = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
}
_KINDS = {4: "a sequence", 5: "a map", 8: "a sparse tensor", 9: "an optional value"}  #: fields of TypeProto


def model_file(model_dir: Path) -> Path:
    """The ONNX file of a folder. Raises `LoaderError` if there is none, or which one is unknown."""
    paths = sorted(path for path in model_dir.iterdir() if path.suffix == SUFFIX and path.is_file())
    if len(paths) > 1:
        paths = [path for path in paths if path.name == _MAIN] or paths
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise LoaderError(f"Multiple model files are found in the model_path: {names}. Name the one to use {_MAIN}.")
    if not paths:
        raise LoaderError(f"Could not find an {SUFFIX} file in {model_dir}")
    return paths[0]


def read_signature(path: Path) -> Signature:
    """The signature of an ONNX file. Raises `LoaderError` if the file is damaged, or has anything but tensors."""
    try:
        model = fields(memoryview(path.read_bytes()))
        graph = fields(model[7][0])
        constants = {_text(tensor, 8) for tensor in graph.get(5, [])}
        inputs = [entry for entry in graph.get(11, []) if _text(entry, 1) not in constants]
        return Signature(inputs=_tensors("Input", inputs), outputs=_tensors("Output", graph.get(12, [])))
    except (OSError, BadMessageError, LookupError, UnicodeDecodeError, TypeError, AttributeError) as exc:  # or damaged
        raise LoaderError(f"{path.name} is damaged, or no ONNX file: {_reason(exc)}.") from exc


def _tensors(kind: str, entries: Sequence[Any]) -> dict[str, Tensor]:
    tensors = {_text(entry, 1): _tensor(kind, _text(entry, 1), fields(fields(entry)[2][0])) for entry in entries}
    return {name: tensors[name] for name in sorted(tensors)}


def _tensor(kind: str, name: str, types: Mapping[int, list[Any]]) -> Tensor:
    if 1 not in types:
        other = next((_KINDS[number] for number in types if number in _KINDS), "of an unknown type")
        remedy = ", as by skl2onnx with the option zipmap=False" if kind == "Output" else ""
        raise LoaderError(f'{kind} "{name}" is {other}. Export the model with tensors only{remedy}.')
    tensor = fields(types[1][0])
    number = tensor.get(1, [0])[0]
    shape = tuple(map(_size, fields(tensor[2][0]).get(1, []))) if 2 in tensor else None
    return Tensor(dtype=_DTYPES.get(number, f"type {number}"), shape=shape)


def _size(dimension: Any) -> int:
    """The length of a dimension. -1 is any: it has a name, or nothing."""
    parts = fields(dimension)
    return signed(parts[1][0]) if 1 in parts else -1


def _text(message: Any, number: int) -> str:
    return bytes(fields(message)[number][0]).decode()


def _reason(exc: Exception) -> str:
    return str(exc).rstrip(".") if isinstance(exc, OSError | BadMessageError) else "its graph is missing or incomplete"
