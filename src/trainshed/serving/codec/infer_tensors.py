"""Tensors of the Open Inference Protocol: from its binary and JSON forms to arrays and back."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadOutputsError, InvalidInputsError
from ..signatures import STRING, Tensor
from .tensors import cast, format_shape, matches_shape

if TYPE_CHECKING:
    from ..loaders.base import Array

BINARY_SIZE = "binary_data_size"
_BYTES, _BF16 = "BYTES", "BF16"
_DTYPES = {  #: datatype -> NumPy's name
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}
_DATATYPES = {dtype: datatype for datatype, dtype in _DTYPES.items()}
_LENGTH = struct.Struct("<I")  #: before each element of BYTES
_MAX_DIMENSIONS = 32


class TensorReader:
    """Reads the inputs of one request. Binary tensors follow each other in the order of the inputs."""

    def __init__(self, binary: memoryview) -> None:
        self._binary = binary
        self._offset = 0

    def read(self, fields: Mapping[str, Any]) -> Array:
        """The array of an input, which the caller owns. Raises `InvalidInputsError` if it is not what it says."""
        name, datatype, shape = _head(fields)
        parameters = fields.get("parameters") or {}
        size = parameters.get(BINARY_SIZE) if type(parameters) is dict else None
        if size is None:
            flat = _from_json(fields.get("data"), name, datatype)
        else:
            if "data" in fields:
                raise InvalidInputsError(f'Input "{name}" has data both in JSON and in binary form.')
            flat = _from_binary(self._take(size, name), name, datatype)
        if flat.size != math.prod(shape):
            raise InvalidInputsError(
                f'Input "{name}" has {flat.size} elements, and its shape {format_shape(shape)} {math.prod(shape)}.'
            )
        try:
            return flat.reshape(shape)
        except ValueError:  # no elements, and a dimension beyond what an array can have
            raise InvalidInputsError(f'Input "{name}" has a shape that is too large: {format_shape(shape)}.') from None

    def finish(self) -> None:
        """Raises `InvalidInputsError` if bytes are left."""
        if self._offset != len(self._binary):
            rest = len(self._binary) - self._offset
            raise InvalidInputsError(f"After the binary data of all inputs, {rest:,} bytes are left.")

    def _take(self, size: Any, name: str) -> memoryview:
        if type(size) is not int or size < 0:
            raise InvalidInputsError(f'The {BINARY_SIZE} of input "{name}" must be a whole number of bytes.')
        data = self._binary[self._offset : self._offset + size]
        if len(data) != size:
            raise InvalidInputsError(
                f'Input "{name}" should have {size:,} bytes of binary data, and {len(data):,} are left.'
            )
        self._offset += size
        return data


def _head(fields: Mapping[str, Any]) -> tuple[str, str, list[int]]:
    name, datatype, shape = fields.get("name"), fields.get("datatype"), fields.get("shape")
    if type(name) is not str:
        raise InvalidInputsError("Every input must have a name, which is a string.")
    if datatype not in (*_DTYPES, _BYTES, _BF16):
        known = ", ".join((*_DTYPES, _BF16, _BYTES))
        raise InvalidInputsError(f'Input "{name}" has the datatype {str(datatype)[:40]!r}. There are: {known}.')
    if type(shape) is not list or not all(type(size) is int and size >= 0 for size in shape):
        raise InvalidInputsError(f'The shape of input "{name}" must be a list of whole numbers.')
    if len(shape) > _MAX_DIMENSIONS:
        raise InvalidInputsError(f'Input "{name}" has more than {_MAX_DIMENSIONS} dimensions.')
    return name, str(datatype), shape


def _from_binary(data: memoryview, name: str, datatype: str) -> Array:
    if datatype == _BYTES:
        return _elements(data, name)
    dtype = np.dtype("<u2" if datatype == _BF16 else _DTYPES[datatype]).newbyteorder("<")
    if len(data) % dtype.itemsize:
        raise InvalidInputsError(f'Input "{name}" has {len(data):,} bytes, which are no whole number of {datatype}.')
    array = np.frombuffer(data, dtype)
    if datatype == _BF16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    if datatype == "BOOL" and array.view(np.uint8).max(initial=0) > 1:
        raise InvalidInputsError(f'Input "{name}" has a BOOL that is neither 0 nor 1.')
    return array.astype(dtype.newbyteorder("="))  # a copy: it is aligned, and the model may write into it


def _elements(data: memoryview, name: str) -> Array:
    values, offset = [], 0
    while offset < len(data):
        start = offset + _LENGTH.size
        if start > len(data):
            raise InvalidInputsError(f'Input "{name}" ends within the length of an element.')
        (length,) = _LENGTH.unpack_from(data, offset)
        offset = start + length
        if offset > len(data):
            raise InvalidInputsError(f'Input "{name}" ends within an element of {length:,} bytes.')
        values.append(bytes(data[start:offset]))
    return _objects(values)


def _from_json(data: Any, name: str, datatype: str) -> Array:
    if type(data) is not list:
        raise InvalidInputsError(f'The data of input "{name}" must be a list.')
    if datatype == _BYTES:
        return _objects([_element(value, name) for value in _flat(data)])
    dtype = np.dtype(_DTYPES.get(datatype, "float32"))
    try:
        raw = np.array(data if data else np.empty(0, dtype))
    except ValueError:  # lists of different lengths, or nested too deeply
        raise InvalidInputsError(f'The data of input "{name}" has lists of different lengths.') from None
    if raw.dtype.kind == "f" and dtype == np.uint64:
        raw = _naturals(data, raw)
    if raw.dtype.kind not in ("b" if dtype.kind == "b" else "biuf"):
        raise InvalidInputsError(f'The data of input "{name}" has values that are not {datatype}.')
    return cast(raw.reshape(-1), dtype, name)


def _naturals(data: list[Any], raw: Array) -> Array:
    """Whole numbers beyond 63 bits beside smaller ones, which NumPy alone would make floats."""
    values = _flat(data)
    try:
        return np.array(values, np.uint64) if all(type(value) is int for value in values) else raw
    except OverflowError:  # a negative one
        return raw


def _flat(values: list[Any]) -> list[Any]:
    """The items of nested lists, in order."""
    while any(type(value) is list for value in values):
        values = [item for value in values for item in (value if type(value) is list else [value])]
    return values


def _element(value: Any, name: str) -> bytes:
    if type(value) is not str:
        raise InvalidInputsError(f'The data of input "{name}" has values that are not strings.')
    return value.encode()


def _objects(values: list[Any]) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def fitted(array: Array, alias: str, tensor: Tensor) -> Array:
    """The array for an input of a model. Numbers become the model's type if it has them all.

    Raises `InvalidInputsError` if type or shape do not match.
    """
    if (tensor.dtype == STRING) != (array.dtype.kind == "O"):
        given = "BYTES" if array.dtype.kind == "O" else array.dtype.name
        raise InvalidInputsError(f'Input mismatch: input "{alias}" takes {tensor.dtype}, but {given} came.')
    if not matches_shape(array.shape, tensor.shape):
        raise InvalidInputsError(
            f'Input mismatch: input "{alias}" takes shape {format_shape(tensor.shape or ())}, '
            f"but {format_shape(array.shape)} came."
        )
    if tensor.dtype == STRING:
        return array
    if tensor.dtype.startswith("complex") or (tensor.dtype == "bool" and array.dtype.kind != "b"):
        raise InvalidInputsError(f'Input mismatch: input "{alias}" takes {tensor.dtype}, but {array.dtype.name} came.')
    dtype = np.dtype("float32" if tensor.dtype == "bfloat16" else tensor.dtype)
    return array if array.dtype == dtype else cast(array, dtype, alias)


def written(array: Array, name: str, *, binary: bool) -> tuple[dict[str, Any], bytes]:
    """The fields of an output, and its bytes if it is binary. Raises `BadOutputsError` if it has no form."""
    fields: dict[str, Any] = {"name": name, "datatype": _datatype(array, name), "shape": list(array.shape)}
    if binary:
        data = _to_binary(array)
        return fields | {"parameters": {BINARY_SIZE: len(data)}}, data
    if fields["datatype"] == _BYTES:
        return fields | {"data": [_text(value, name) for value in array.reshape(-1).tolist()]}, b""
    numbers = array.astype(np.float32) if fields["datatype"] == _BF16 else array
    return fields | {"data": numbers.reshape(-1).tolist()}, b""


def _datatype(array: Array, name: str) -> str:
    if array.dtype.kind in "OSU":
        return _BYTES
    if array.dtype.name == "bfloat16":
        return _BF16
    if array.dtype.name not in _DATATYPES:
        raise BadOutputsError(f'Output "{name}" is of {array.dtype.name}, which the protocol has no datatype for.')
    return _DATATYPES[array.dtype.name]


def _to_binary(array: Array) -> bytes:
    if array.dtype.kind not in "OSU":
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    values = map(_as_bytes, array.reshape(-1).tolist())
    return b"".join(part for value in values for part in (_LENGTH.pack(len(value)), value))


def _as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _text(value: Any, name: str) -> str:
    try:
        return _as_bytes(value).decode()
    except UnicodeDecodeError:
        raise BadOutputsError(f'Output "{name}" is not UTF-8 text. Ask for it as binary data.') from None
