"""Fast path: rows of numbers from a JSON body, without a Python object for each number.

It accepts only bodies that contain nothing else. Everything unusual or invalid takes the slow path in `tensors`, which
handles every form and explains errors.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import simdjson

from ..signatures import Tensor

if TYPE_CHECKING:
    from ..loaders.base import Array

#: largest body for the reused parser, which keeps several times the memory of its longest body
_MAX_REUSED_PARSER_BYTES = 1 << 20
_MAX_DIMENSIONS = 32
BufferType = Literal["d", "i", "u"]
_FLOATS: tuple[BufferType, str] = ("d", "float64")
_INTEGERS: tuple[BufferType, str] = ("i", "int64")
_NATURALS: tuple[BufferType, str] = ("u", "uint64")
_BUFFER_TYPES = {  #: dtype -> the parser's buffer type and its NumPy name
    "float32": _FLOATS,
    "float64": _FLOATS,
    "int8": _INTEGERS,
    "int16": _INTEGERS,
    "int32": _INTEGERS,
    "int64": _INTEGERS,
    "uint8": _INTEGERS,
    "uint16": _INTEGERS,
    "uint32": _INTEGERS,
    "uint64": _NATURALS,
}


class _NotNumericError(ValueError):
    """The body is not rows of numbers."""


class _Parsers(threading.local):
    """One parser per thread, because its results are invalid after the next parse."""

    def __init__(self) -> None:
        self.parser = simdjson.Parser()


_PARSERS = _Parsers()


def is_supported(tensor: Tensor) -> bool:
    """Whether `rows` supports this input."""
    return tensor.dtype in _BUFFER_TYPES and bool(tensor.shape) and len(tensor.shape or ()) <= _MAX_DIMENSIONS


def rows(body: bytes, alias: str, tensor: Tensor) -> Array | None:
    """The array in `{"instances": [...]}` for the only input of a model, bare or by name.

    Returns None if the body needs the slow path. The array is writable and owned by the caller.
    """
    kind, name = _BUFFER_TYPES[tensor.dtype]
    try:
        flat, sizes = _parse(body, alias, kind)
    except (ValueError, TypeError, LookupError, RuntimeError):  # not JSON, or not only numbers
        return None
    numbers = np.frombuffer(flat, name)
    if (
        not _matches_shape(sizes, tensor.shape or ())
        or np.count_nonzero(np.frombuffer(body, np.uint8) == ord("["))
        != _count_lists(sizes)  # more lists: some are among the numbers
        or numbers.size != math.prod(sizes)
    ):
        return None
    array = _cast(numbers, tensor.dtype)
    return None if array is None else array.reshape(sizes)


def rows_of_lines(lines: Sequence[bytes], tensor: Tensor) -> Array | None:
    """Like `rows`, for lines that are one row each. Returns None if any line is not."""
    if len(tensor.shape or ()) != 2 or not all(line[:1] == b"[" and line[-1:] == b"]" for line in lines):
        return None
    # There is one list per line with only numbers in it, so each line is exactly one row.
    array = rows(b'{"instances":[%b]}' % b",".join(lines), "", tensor)
    return array if array is not None and len(array) == len(lines) else None


def _parse(body: bytes, alias: str, kind: BufferType) -> tuple[bytes, tuple[int, ...]]:
    """All numbers in order, and the sizes of the nested lists."""
    if body[:1] == b"\xef":  # a byte order mark, which this parser would accept
        raise _NotNumericError
    parser = _PARSERS.parser if len(body) <= _MAX_REUSED_PARSER_BYTES else simdjson.Parser()
    document: Any = parser.parse(body)
    if len(document) != 1:  # duplicate keys count twice
        raise _NotNumericError
    instances = document["instances"]
    if not isinstance(instances, simdjson.Array):  # a text has a first item too
        raise _NotNumericError
    if isinstance(instances[0], simdjson.Object):
        return _parse_named(instances, alias, kind)
    sizes = _sizes(instances)
    _check_regular(instances, sizes)
    return instances.as_buffer(of_type=kind), sizes


def _parse_named(instances: Any, alias: str, kind: BufferType) -> tuple[bytes, tuple[int, ...]]:
    """Like `_parse`, for instances that are objects with the input's name."""
    values = []
    for instance in instances:
        if len(instance) != 1:
            raise _NotNumericError
        values.append(instance[alias])
    sizes = (len(values), *_sizes(values[0]))
    if len(sizes) == 1:
        raise _NotNumericError  # bare numbers have no buffer
    for value in values:
        if not isinstance(value, simdjson.Array) or len(value) != sizes[1]:
            raise _NotNumericError
        _check_regular(value, sizes[1:])
    return b"".join([value.as_buffer(of_type=kind) for value in values]), sizes


def _sizes(value: Any) -> tuple[int, ...]:
    """The sizes of a list, its first item, the first item of that, and so on."""
    sizes = []
    while isinstance(value, simdjson.Array):
        sizes.append(len(value))
        value = value[0]
    return tuple(sizes)


def _check_regular(items: Any, sizes: Sequence[int]) -> None:
    """Raises `_NotNumericError` unless all lists of a level have the same length."""
    if len(sizes) < 2:
        return
    for item in items:
        if not isinstance(item, simdjson.Array) or len(item) != sizes[1]:
            raise _NotNumericError
        _check_regular(item, sizes[1:])


def _matches_shape(sizes: Sequence[int], shape: Sequence[int]) -> bool:
    return len(sizes) == len(shape) and all(expected in (-1, size) for expected, size in zip(shape, sizes, strict=True))


def _count_lists(sizes: Sequence[int]) -> int:
    """The number of lists on all levels."""
    count = level = 1
    for size in sizes[:-1]:
        level *= size
        count += level
    return count


def _cast(numbers: Array, dtype: str) -> Array | None:
    """A copy in the requested dtype. Returns None if a number does not fit."""
    if dtype == "float32":
        try:
            with np.errstate(over="raise"):
                return numbers.astype(np.float32)
        except FloatingPointError:
            return None
    if numbers.dtype.kind == "i" and numbers.dtype != dtype:
        limits = np.iinfo(dtype)
        if numbers.min() < limits.min or numbers.max() > limits.max:
            return None
    return numbers.astype(dtype)
