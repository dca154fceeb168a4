"""JSON to arrays and back, in AI Platform's forms of instances and predictions.

Rows of numbers for a model with one input take the fast path, `NumericInput`. All other requests, and invalid ones,
take the slow path, which explains what is wrong.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadOutputsError, InvalidInputsError
from ..signatures import DEFAULT, STRING, Signature, Tensor
from .json_documents import read_object
from .numeric_rows import is_supported, rows, rows_of_lines

if TYPE_CHECKING:
    from ..loaders.base import Array

INSTANCES = "instances"
SIGNATURE_NAME = "signature_name"

_STRUCT_CODES = {  #: `struct` codes; packing rejects values that do not fit, in a few nanoseconds per number
    "float32": "f",
    "float64": "d",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
}

_MAX_EXACT_FLOAT = 2.0**53  #: larger whole numbers may not be exact as floats


@dataclass(slots=True, kw_only=True)
class TensorRequest:
    """A request as arrays. Requests with equal `key` can share a batch."""

    signature: str
    inputs: dict[str, Array]
    count: int  #: number of instances
    key: object


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericInput:
    """The only input of a signature, if it is numeric."""

    signature: str
    alias: str
    tensor: Tensor
    batched: bool

    def read(self, body: bytes) -> TensorRequest | None:
        """Like `tensor_request`, for bodies with only rows of numbers. Returns None for all others."""
        return self._request(rows(body, self.alias, self.tensor))

    def read_lines(self, lines: Sequence[bytes]) -> TensorRequest | None:
        """Like `read`, for lines that are one instance each."""
        return self._request(rows_of_lines(lines, self.tensor))

    def _request(self, array: Array | None) -> TensorRequest | None:
        if array is None:
            return None
        key = (self.signature, array.shape[1:]) if self.batched else object()
        return TensorRequest(signature=self.signature, inputs={self.alias: array}, count=len(array), key=key)


def numeric_input(signatures: Mapping[str, Signature], signature: str = "") -> NumericInput | None:
    """The only input of a signature, by default the default one. Returns None if it is not numeric."""
    name = signature or (next(iter(signatures)) if len(signatures) == 1 else DEFAULT)
    if name not in signatures or len(signatures[name].inputs) != 1:
        return None
    ((alias, tensor),) = signatures[name].inputs.items()
    if not is_supported(tensor):
        return None
    return NumericInput(signature=name, alias=alias, tensor=tensor, batched=signatures[name].batched)


def instances_of(document: Mapping[str, Any]) -> list[Any]:
    instances = document.get(INSTANCES)
    if type(instances) is not list:
        raise InvalidInputsError(
            f'The field "{INSTANCES}" must be a list with one value for each instance, '
            f"not {_describe(instances) if INSTANCES in document else 'left out'}."
        )
    return instances


def tensor_request(body: bytes, signatures: Mapping[str, Signature]) -> TensorRequest:
    """Parse a predict body for a model with signatures. Raises `InvalidInputsError` if it does not match them."""
    document = read_object(body)
    return tensors_of(instances_of(document), document.get(SIGNATURE_NAME), signatures)


def tensors_of(instances: list[Any], signature_name: object, signatures: Mapping[str, Signature]) -> TensorRequest:
    """Convert instances for a signature; without a name, the default one.

    Raises `InvalidInputsError` if they do not match.
    """
    name = resolve_signature(signature_name, signatures)
    signature = signatures[name]
    inputs = {
        alias: read_array(column, alias, signature.inputs[alias])
        for alias, column in _columns(instances, signature.inputs).items()
    }
    key = (name, *(array.shape[1:] for array in inputs.values())) if signature.batched else object()
    return TensorRequest(signature=name, inputs=inputs, count=len(instances), key=key)


def tensors_of_columns(inputs: Any, signature_name: object, signatures: Mapping[str, Signature]) -> TensorRequest:
    """Convert one value for each input, by name; for the only input of a signature, also without its name.

    Inputs need not have the same first dimension. If they do, it counts the instances. Raises `InvalidInputsError` if
    they do not match.
    """
    name = resolve_signature(signature_name, signatures)
    tensors = signatures[name].inputs
    if len(tensors) == 1:
        (alias,) = tensors
        values = {alias: _single_input_value(inputs, alias, tensors[alias])}
    elif type(inputs) is not dict:
        raise InvalidInputsError(f"The inputs must be an object with a value for each of {', '.join(tensors)}.")
    else:
        values = inputs
    if values.keys() != tensors.keys():
        _explain_names(values, tensors)
    arrays = {alias: _read_tensor(values[alias], alias, tensor) for alias, tensor in tensors.items()}
    return request_of(name, arrays, signatures[name])


def request_of(name: str, arrays: dict[str, Array], signature: Signature) -> TensorRequest:
    """A request of whole tensors that match the signature."""
    counts = {array.shape[:1] for array in arrays.values()}
    if not signature.batched or len(counts) != 1:
        return TensorRequest(signature=name, inputs=arrays, count=1, key=object())
    key = (name, *(array.shape[1:] for array in arrays.values()))
    return TensorRequest(signature=name, inputs=arrays, count=next(iter(counts))[0], key=key)


def _read_tensor(value: Any, alias: str, tensor: Tensor) -> Array:
    if tensor.shape == () or (tensor.shape is None and type(value) is not list):
        return read_array([value], alias, Tensor(dtype=tensor.dtype, shape=(1,))).reshape(())
    if type(value) is not list:
        raise InvalidInputsError(f'Input mismatch: input "{alias}" takes a list, but {_describe(value)} came.')
    return read_array(value, alias, tensor)


def takes_text(signature_name: object, signatures: Mapping[str, Signature]) -> bool:
    """Whether the signature has one input, of strings. Then a line of text is an instance by itself."""
    inputs = signatures[resolve_signature(signature_name, signatures)].inputs
    return [tensor.dtype for tensor in inputs.values()] == [STRING]


def resolve_signature(name: object, signatures: Mapping[str, Signature]) -> str:
    """The name of the signature that a request means. Raises `InvalidInputsError` if the model does not have it."""
    if name is None or name == "":
        return next(iter(signatures)) if len(signatures) == 1 else _check_signature(DEFAULT, signatures)
    if not isinstance(name, str):
        raise InvalidInputsError(f'The field "{SIGNATURE_NAME}" must be a string, not {_describe(name)}.')
    return _check_signature(name, signatures)


def _check_signature(name: str, signatures: Mapping[str, Signature]) -> str:
    if name not in signatures:
        raise InvalidInputsError(
            f"No signature found for signature key {name}. The model has: {', '.join(signatures)}."
        )
    return name


def _columns(instances: list[Any], inputs: Mapping[str, Tensor]) -> dict[str, list[Any]]:
    """The values of each input, one per instance."""
    if len(inputs) == 1:
        (alias,) = inputs
        if not any(type(instance) is dict for instance in instances):
            return {alias: instances}
        return {alias: [_single_input_value(instance, alias, inputs[alias]) for instance in instances]}
    columns: dict[str, list[Any]] = {alias: [] for alias in inputs}
    for index, instance in enumerate(instances):
        if type(instance) is not dict:
            raise InvalidInputsError(
                f"Instance {index} must be an object with a value for each of the inputs {', '.join(inputs)}, "
                f"not {_describe(instance)}."
            )
        if instance.keys() != inputs.keys():
            _explain_names(instance, inputs)
        for alias, column in columns.items():
            column.append(instance[alias])
    return columns


def _explain_names(instance: Mapping[str, Any], inputs: Mapping[str, Tensor]) -> None:
    for name in instance:
        if name not in inputs:
            raise InvalidInputsError(f"Unexpected tensor name: {name}. The inputs are: {', '.join(inputs)}.")
    missing = next(alias for alias in inputs if alias not in instance)
    raise InvalidInputsError(f"Input {missing} was missing in at least one input instance.")


def _single_input_value(instance: Any, alias: str, tensor: Tensor) -> Any:
    """The value of an instance for the only input, bare or by name."""
    if type(instance) is not dict or (tensor.dtype == STRING and instance.keys() == {"b64"}):
        return instance
    if instance.keys() != {alias}:
        raise InvalidInputsError(f"Expected tensor name: {alias}, got tensor name: {list(instance)}.")
    return instance[alias]


def read_array(values: list[Any], alias: str, tensor: Tensor) -> Array:
    """Convert JSON values for an input. Raises `InvalidInputsError` if they do not match it."""
    if tensor.dtype == STRING:
        array = _strings(values, alias)
    else:
        packed = _pack_rows(values, tensor)
        if packed is not None:
            return packed
        array = _numbers(values, alias, tensor)
    if not matches_shape(array.shape, tensor.shape):
        raise InvalidInputsError(_shape_mismatch(values, array.shape, alias, tensor))
    return array


@cache
def _packer(code: str, count: int) -> struct.Struct:
    return struct.Struct(f"={count}{code}")


def _pack_rows(values: list[Any], tensor: Tensor) -> Array | None:
    """The array of bare numbers or rows of equal length. Returns None for anything else."""
    code, shape = _STRUCT_CODES.get(tensor.dtype), tensor.shape
    if code is None or shape is None or not 1 <= len(shape) <= 2 or shape[0] not in (-1, len(values)) or not values:
        return None
    rows = [values] if len(shape) == 1 else values
    try:
        length = shape[1] if len(shape) == 2 and shape[1] >= 0 else len(rows[0])
        row = _packer(code, length) if len(shape) == 2 else struct.Struct(f"={length}{code}")
        data = bytearray(row.size * len(rows))  # writable, so that the model need not copy it
        for index, numbers in enumerate(rows):
            row.pack_into(data, index * row.size, *numbers)
    except (struct.error, TypeError, OverflowError):
        return None
    array = np.frombuffer(data, tensor.dtype)
    return array if len(shape) == 1 else array.reshape(len(values), length)


def _numbers(values: list[Any], alias: str, tensor: Tensor) -> Array:
    try:
        dtype = np.dtype(tensor.dtype if tensor.dtype != "bfloat16" else "float32")
    except TypeError:
        dtype = np.dtype("complex64")  # represents all types without a JSON form
    if dtype.kind == "c":
        raise InvalidInputsError(f'Input "{alias}" takes {tensor.dtype}, which JSON has no form for.')
    if not values:
        return np.empty((0, *(max(size, 0) for size in (tensor.shape or (0,))[1:])), dtype)
    try:
        raw = np.array(values)
    except ValueError:  # lists of different lengths, or nested too deeply
        raise InvalidInputsError(_shape_mismatch(values, None, alias, tensor)) from None
    if raw.dtype.kind not in ("b" if dtype.kind == "b" else "biuf"):
        raise InvalidInputsError(
            f'Input mismatch: input "{alias}" takes {tensor.dtype}, but {_first_mismatch(values, dtype.kind)} came.'
        )
    return cast(raw, dtype, alias)


def cast(raw: Any, dtype: np.dtype[Any], alias: str) -> Array:
    """The same numbers in another dtype. Raises `InvalidInputsError` if that dtype cannot represent them."""
    try:
        with np.errstate(over="raise", invalid="raise"):
            array: Array = raw.astype(dtype)
    except FloatingPointError:
        raise InvalidInputsError(f'Input "{alias}" takes {dtype.name}, and a number is too large for it.') from None
    whole = raw.dtype.kind != "f" or np.all(np.abs(raw) <= _MAX_EXACT_FLOAT)
    if dtype.kind in "iu" and not (whole and np.array_equal(array, raw)):
        raise InvalidInputsError(f'Input "{alias}" takes {dtype.name}, and a number is out of its range or not whole.')
    return array


def _strings(values: list[Any], alias: str) -> Array:
    shape = _shape(values)
    if shape is None:
        raise InvalidInputsError(f'Input mismatch: the lists for input "{alias}" have different lengths.')
    array = np.empty(shape, object)
    flat = values
    for _ in shape[1:]:
        flat = [item for row in flat for item in row]
    array.reshape(-1)[:] = [_bytes(value, alias) for value in flat]
    return array


def _bytes(value: Any, alias: str) -> bytes:
    if type(value) is str:
        return value.encode()
    if type(value) is dict and value.keys() == {"b64"} and type(value["b64"]) is str:
        try:
            return base64.b64decode(value["b64"], validate=True)
        except binascii.Error as exc:
            raise InvalidInputsError(f'The b64 of input "{alias}" is not base64: {exc}.') from None
    raise InvalidInputsError(f'Input mismatch: input "{alias}" takes strings, but {_describe(value)} came.')


def _shape(values: Any) -> tuple[int, ...] | None:
    """The shape of nested lists. Returns None if they are irregular."""
    sizes: list[int] = []
    level = [values]
    while level and all(type(item) is list for item in level):
        if len({len(item) for item in level}) > 1:
            return None
        sizes.append(len(level[0]))
        level = [item for row in level for item in row]
    return None if any(type(item) is list for item in level) else tuple(sizes)


def matches_shape(shape: Sequence[int], expected: Sequence[int] | None) -> bool:
    return expected is None or (
        len(shape) == len(expected) and all(size in (-1, actual) for size, actual in zip(expected, shape, strict=True))
    )


def _shape_mismatch(values: list[Any], shape: Sequence[int] | None, alias: str, tensor: Tensor) -> str:
    """Which instance has the wrong shape, what was expected and what was received."""
    if tensor.shape is not None:
        expected_shape = tensor.shape[1:]
        for index, value in enumerate(values):
            actual = _shape(value)
            if actual is None or not matches_shape(actual, expected_shape):
                problem = (
                    f"has shape {format_shape(actual)}" if actual is not None else "has lists of different lengths"
                )
                expected = f'input "{alias}" takes values of shape {format_shape(expected_shape)}'
                return f"Input mismatch: {expected}, but instance {index} {problem}."
    if shape is None:
        return f'Input mismatch: the values for input "{alias}" have different shapes.'
    return (
        f'Input mismatch: input "{alias}" takes shape {format_shape(tensor.shape or ())}, '
        f"but {format_shape(shape)} came."
    )


def format_shape(shape: Sequence[int]) -> str:
    return "[" + ", ".join("any" if size < 0 else str(size) for size in shape) + "]"


def _first_mismatch(values: Any, kind: str) -> str:
    while type(values) is list:
        values = next((v for v in values if not _is_number(v, kind)), values[0] if values else None)
    return _describe(values)


def _is_number(value: Any, kind: str) -> bool:
    if type(value) is list:
        return all(_is_number(item, kind) for item in value)
    return type(value) is bool or (kind != "b" and type(value) in (int, float))


def _describe(value: Any) -> str:
    """A value's type in JSON terms."""
    match value:
        case None:
            return "null"
        case bool() | int() | float():
            return str(value).lower()[:40]
        case str():
            return "a string"
        case list():
            return "a list"
    return "an object"


def columns(outputs: Mapping[str, Array], count: int) -> dict[str, list[Any]]:
    """The values of each output in JSON form, one per instance. Raises `BadOutputsError` if the counts differ."""
    for alias, array in outputs.items():
        check_count(array, alias, count)
    return {alias: json_values(array, alias) for alias, array in outputs.items()}


def check_count(array: Array, alias: str, count: int) -> None:
    """Raises `BadOutputsError` unless the output has one value for each of `count` instances."""
    if array.ndim == 0 or len(array) != count:
        raise BadOutputsError(
            f'Output "{alias}" has shape {format_shape(array.shape)} for {count} instances: every output must have '
            f"one value for each instance."
        )


def empty_outputs(signature: Signature) -> dict[str, Array]:
    """The outputs for no instances."""
    return {alias: _empty(tensor) for alias, tensor in signature.outputs.items()}


def _empty(tensor: Tensor) -> Array:
    names = {STRING: "object", "bfloat16": "float32"}
    return np.empty((0, *(max(size, 0) for size in (tensor.shape or (0,))[1:])), names.get(tensor.dtype, tensor.dtype))


def json_values(array: Array, alias: str) -> Any:
    """The values of an output in JSON form, as nested lists. Raises `BadOutputsError` if they have none."""
    if array.dtype.kind in "OSU":
        return _text(array.tolist(), alias)
    if array.dtype.kind == "c":
        raise BadOutputsError(f'Output "{alias}" is of {array.dtype.name}, which JSON has no form for.')
    if array.dtype.kind not in "biuf":  # bfloat16, which NumPy does not have
        array = array.astype(np.float32)
    return array.tolist()


def _text(value: Any, alias: str) -> Any:
    if isinstance(value, list):
        return [_text(item, alias) for item in value]
    data = value if isinstance(value, bytes) else str(value).encode()
    if alias.endswith("_bytes"):
        return {"b64": base64.b64encode(data).decode()}
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadOutputsError(
            f'Output "{alias}" is not UTF-8 text. Give it a name that ends in _bytes, to have it as base64.'
        ) from None
