"""JSON to arrays and back: the forms of instances and predictions that AI Platform had.

Rows of numbers for a model with one input are the ones to be quick with: `NumericInput` has them from the parser as
they are. All other requests, and those that are no good, go the long way, which says what is wrong with them.
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
from .numeric_rows import rows, rows_of_lines, takes

if TYPE_CHECKING:
    from ..loaders.base import Array

INSTANCES = "instances"
SIGNATURE_NAME = "signature_name"

_CODES = {  #: of `struct`, which refuses what does not fit, each number in a few nanoseconds
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

_EXACT = 2.0**53  #: beyond it not every whole number is a float, and so not what was written


@dataclass(slots=True, kw_only=True)
class TensorRequest:
    """A request in arrays. `key` is equal for requests that may be put together."""

    signature: str
    inputs: dict[str, Array]
    count: int  #: of instances
    key: object


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericInput:
    """The only input of a signature. It takes numbers."""

    signature: str
    alias: str
    tensor: Tensor
    batched: bool

    def read(self, body: bytes) -> TensorRequest | None:
        """As `tensor_request`, for bodies with rows of numbers and nothing else; None: it is another body."""
        return self._request(rows(body, self.alias, self.tensor))

    def read_lines(self, lines: Sequence[bytes]) -> TensorRequest | None:
        """As `read`, of lines that are an instance each."""
        return self._request(rows_of_lines(lines, self.tensor))

    def _request(self, array: Array | None) -> TensorRequest | None:
        if array is None:
            return None
        key = (self.signature, array.shape[1:]) if self.batched else object()
        return TensorRequest(signature=self.signature, inputs={self.alias: array}, count=len(array), key=key)


def plain_input(signatures: Mapping[str, Signature], wanted: str = "") -> NumericInput | None:
    """The input of the signature of that name, or of the one that is meant by none; None if it takes something else."""
    name = wanted or (next(iter(signatures)) if len(signatures) == 1 else DEFAULT)
    if name not in signatures or len(signatures[name].inputs) != 1:
        return None
    ((alias, tensor),) = signatures[name].inputs.items()
    if not takes(tensor):
        return None
    return NumericInput(signature=name, alias=alias, tensor=tensor, batched=signatures[name].batched)


def instances_of(document: Mapping[str, Any]) -> list[Any]:
    instances = document.get(INSTANCES)
    if type(instances) is not list:
        raise InvalidInputsError(
            f'The field "{INSTANCES}" must be a list with one value for each instance, '
            f"not {_kind(instances) if INSTANCES in document else 'left out'}."
        )
    return instances


def tensor_request(body: bytes, signatures: Mapping[str, Signature]) -> TensorRequest:
    """A predict body for a model with signatures. `InvalidInputsError` for whatever does not fit them."""
    document = read_object(body)
    return tensors_of(instances_of(document), document.get(SIGNATURE_NAME), signatures)


def tensors_of(instances: list[Any], wanted: object, signatures: Mapping[str, Signature]) -> TensorRequest:
    """Instances for the signature of the wanted name; nothing wanted: the default one.

    `InvalidInputsError` as above.
    """
    name = _choose(wanted, signatures)
    signature = signatures[name]
    inputs = {
        alias: _array(column, alias, signature.inputs[alias])
        for alias, column in _columns(instances, signature.inputs).items()
    }
    key = (name, *(array.shape[1:] for array in inputs.values())) if signature.batched else object()
    return TensorRequest(signature=name, inputs=inputs, count=len(instances), key=key)


def takes_text(wanted: object, signatures: Mapping[str, Signature]) -> bool:
    """Whether the signature has one input, and that takes strings: then a line of text is an instance as it stands."""
    inputs = signatures[_choose(wanted, signatures)].inputs
    return [tensor.dtype for tensor in inputs.values()] == [STRING]


def _choose(name: object, signatures: Mapping[str, Signature]) -> str:
    if name is None or name == "":
        return next(iter(signatures)) if len(signatures) == 1 else _known(DEFAULT, signatures)
    if not isinstance(name, str):
        raise InvalidInputsError(f'The field "{SIGNATURE_NAME}" must be a string, not {_kind(name)}.')
    return _known(name, signatures)


def _known(name: str, signatures: Mapping[str, Signature]) -> str:
    if name not in signatures:
        raise InvalidInputsError(
            f"No signature found for signature key {name}. The model has: {', '.join(signatures)}."
        )
    return name


def _columns(instances: list[Any], inputs: Mapping[str, Tensor]) -> dict[str, list[Any]]:
    """The values of each input, one for each instance."""
    if len(inputs) == 1:
        (alias,) = inputs
        if not any(type(instance) is dict for instance in instances):
            return {alias: instances}
        return {alias: [_only(instance, alias, inputs[alias]) for instance in instances]}
    columns: dict[str, list[Any]] = {alias: [] for alias in inputs}
    for at, instance in enumerate(instances):
        if type(instance) is not dict:
            raise InvalidInputsError(
                f"Instance {at} must be an object with a value for each of the inputs {', '.join(inputs)}, "
                f"not {_kind(instance)}."
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


def _only(instance: Any, alias: str, tensor: Tensor) -> Any:
    """The value that an instance has for the only input: a bare one, or one under the input's name."""
    if type(instance) is not dict or (tensor.dtype == STRING and instance.keys() == {"b64"}):
        return instance
    if instance.keys() != {alias}:
        raise InvalidInputsError(f"Expected tensor name: {alias}, got tensor name: {list(instance)}.")
    return instance[alias]


def _array(values: list[Any], alias: str, tensor: Tensor) -> Array:
    if tensor.dtype == STRING:
        array = _strings(values, alias)
    else:
        packed = _packed(values, tensor)
        if packed is not None:
            return packed
        array = _numbers(values, alias, tensor)
    if not _fits(array.shape, tensor.shape):
        raise InvalidInputsError(_misfit(values, array.shape, alias, tensor))
    return array


@cache
def _packer(code: str, count: int) -> struct.Struct:
    return struct.Struct(f"={count}{code}")


def _packed(values: list[Any], tensor: Tensor) -> Array | None:
    """The array of rows of one length, or of bare numbers. None if they are anything else."""
    code, shape = _CODES.get(tensor.dtype), tensor.shape
    if code is None or shape is None or not 1 <= len(shape) <= 2 or shape[0] not in (-1, len(values)) or not values:
        return None
    rows = [values] if len(shape) == 1 else values
    try:
        length = shape[1] if len(shape) == 2 and shape[1] >= 0 else len(rows[0])
        row = _packer(code, length) if len(shape) == 2 else struct.Struct(f"={length}{code}")
        data = bytearray(row.size * len(rows))  # which the model may write to, so that it need not be copied again
        for at, numbers in enumerate(rows):
            row.pack_into(data, at * row.size, *numbers)
    except (struct.error, TypeError, OverflowError):
        return None
    array = np.frombuffer(data, tensor.dtype)
    return array if len(shape) == 1 else array.reshape(len(values), length)


def _numbers(values: list[Any], alias: str, tensor: Tensor) -> Array:
    try:
        wanted = np.dtype(tensor.dtype if tensor.dtype != "bfloat16" else "float32")
    except TypeError:
        wanted = np.dtype("complex64")  # stands for all that JSON has no form for
    if wanted.kind == "c":
        raise InvalidInputsError(f'Input "{alias}" takes {tensor.dtype}, which JSON has no form for.')
    if not values:
        return np.empty((0, *(max(size, 0) for size in (tensor.shape or (0,))[1:])), wanted)
    try:
        given = np.array(values)
    except ValueError:  # lists of different lengths, or too many of them in each other
        raise InvalidInputsError(_misfit(values, None, alias, tensor)) from None
    if given.dtype.kind not in ("b" if wanted.kind == "b" else "biuf"):
        raise InvalidInputsError(
            f'Input mismatch: input "{alias}" takes {tensor.dtype}, but {_first_misfit(values, wanted.kind)} came.'
        )
    return _cast(given, wanted, alias)


def _cast(given: Any, wanted: np.dtype[Any], alias: str) -> Array:
    """The same numbers in another type, or `InvalidInputsError` if that type does not have them."""
    try:
        with np.errstate(over="raise", invalid="raise"):
            array: Array = given.astype(wanted)
    except FloatingPointError:
        raise InvalidInputsError(f'Input "{alias}" takes {wanted.name}, and a number is too large for it.') from None
    whole = given.dtype.kind != "f" or np.all(np.abs(given) <= _EXACT)
    if wanted.kind in "iu" and not (whole and np.array_equal(array, given)):
        raise InvalidInputsError(f'Input "{alias}" takes {wanted.name}, and a number is out of its range or not whole.')
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
    raise InvalidInputsError(f'Input mismatch: input "{alias}" takes strings, but {_kind(value)} came.')


def _shape(values: Any) -> tuple[int, ...] | None:
    """The shape of lists in lists, found level by level. None if they are not all alike."""
    sizes: list[int] = []
    level = [values]
    while level and all(type(item) is list for item in level):
        if len({len(item) for item in level}) > 1:
            return None
        sizes.append(len(level[0]))
        level = [item for row in level for item in row]
    return None if any(type(item) is list for item in level) else tuple(sizes)


def _fits(shape: Sequence[int], wanted: Sequence[int] | None) -> bool:
    return wanted is None or (
        len(shape) == len(wanted) and all(size in (-1, given) for size, given in zip(wanted, shape, strict=True))
    )


def _misfit(values: list[Any], shape: Sequence[int] | None, alias: str, tensor: Tensor) -> str:
    """Which instance has the wrong shape, what was expected and what came."""
    if tensor.shape is not None:
        wanted = tensor.shape[1:]
        for at, value in enumerate(values):
            given = _shape(value)
            if given is None or not _fits(given, wanted):
                what = f"has shape {_brackets(given)}" if given is not None else "has lists of different lengths"
                expected = f'input "{alias}" takes values of shape {_brackets(wanted)}'
                return f"Input mismatch: {expected}, but instance {at} {what}."
    if shape is None:
        return f'Input mismatch: the values for input "{alias}" have different shapes.'
    return f'Input mismatch: input "{alias}" takes shape {_brackets(tensor.shape or ())}, but {_brackets(shape)} came.'


def _brackets(shape: Sequence[int]) -> str:
    return "[" + ", ".join("any" if size < 0 else str(size) for size in shape) + "]"


def _first_misfit(values: Any, kind: str) -> str:
    while type(values) is list:
        values = next((v for v in values if not _is_number(v, kind)), values[0] if values else None)
    return _kind(values)


def _is_number(value: Any, kind: str) -> bool:
    if type(value) is list:
        return all(_is_number(item, kind) for item in value)
    return type(value) is bool or (kind != "b" and type(value) in (int, float))


def _kind(value: Any) -> str:
    """What a value is, in JSON's words."""
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
    """The values of each output as JSON has them, one for each instance.

    `BadOutputsError` if there are more or fewer.
    """
    return {alias: _column(array, alias, count) for alias, array in outputs.items()}


def _column(array: Array, alias: str, count: int) -> list[Any]:
    if array.ndim == 0 or len(array) != count:
        raise BadOutputsError(
            f'Output "{alias}" has shape {_brackets(array.shape)} for {count} instances: every output must have one '
            f"value for each instance."
        )
    if array.dtype.kind in "OSU":
        return [_text(value, alias) for value in array.tolist()]
    if array.dtype.kind == "c":
        raise BadOutputsError(f'Output "{alias}" is of {array.dtype.name}, which JSON has no form for.')
    if array.dtype.kind not in "biuf":  # bfloat16, which NumPy does not have
        array = array.astype(np.float32)
    values: list[Any] = array.tolist()
    return values


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
