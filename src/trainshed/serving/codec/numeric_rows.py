"""Rows of numbers out of a JSON body, without an object for each number.

Only bodies that hold nothing else are taken. Whatever is unusual or wrong about one is left to the long way in `codec`,
which takes every form and says what does not fit.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import simdjson

from ..signatures import Tensor

if TYPE_CHECKING:
    from ..loaders.base import Array

_KEPT_BYTES = 1 << 20  #: of a body: the parser keeps several times as much memory as its longest one
_MOST_DIMENSIONS = 32
_FLOATS, _INTEGERS, _NATURALS = ("d", "float64"), ("i", "int64"), ("u", "uint64")
_READ_AS = {  #: what the parser is asked for, and what NumPy calls that
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
    """Not rows of numbers."""


class _Parsers(threading.local):
    """One for each thread: what a parser gave is gone with its next document."""

    def __init__(self) -> None:
        self.parser = simdjson.Parser()


_PARSERS = _Parsers()


def takes(tensor: Tensor) -> bool:
    """Whether bodies for this input may be given to `rows`."""
    return tensor.dtype in _READ_AS and bool(tensor.shape) and len(tensor.shape or ()) <= _MOST_DIMENSIONS


def rows(body: bytes, alias: str, tensor: Tensor) -> Array | None:
    """The array in `{"instances": [...]}` for the only input of a model, bare or by its name; None: take the long way.

    The array is the caller's, to write to as well.
    """
    kind, name = _READ_AS[tensor.dtype]
    try:
        flat, sizes = _parsed(body, alias, kind)
    except (ValueError, TypeError, LookupError, RuntimeError):  # no JSON, or other things than numbers in it
        return None
    numbers = np.frombuffer(flat, name)
    if (
        not _fits(sizes, tensor.shape or ())
        or np.count_nonzero(np.frombuffer(body, np.uint8) == ord("["))
        != _lists(sizes)  # more: some are among the numbers
        or numbers.size != math.prod(sizes)
    ):
        return None
    array = _cast(numbers, tensor.dtype)
    return None if array is None else array.reshape(sizes)


def rows_of_lines(lines: Sequence[bytes], tensor: Tensor) -> Array | None:
    """As `rows`, of lines that are each the list of one row; None: at least one of them is not."""
    if len(tensor.shape or ()) != 2 or not all(line[:1] == b"[" and line[-1:] == b"]" for line in lines):
        return None
    # As there is one list for each line, with nothing but numbers in it, no line can be more or less than a row.
    array = rows(b'{"instances":[%b]}' % b",".join(lines), "", tensor)
    return array if array is not None and len(array) == len(lines) else None


def _parsed(body: bytes, alias: str, kind: str) -> tuple[bytes, tuple[int, ...]]:
    """All numbers, one after the other, and the sizes of the lists that they are in."""
    if body[:1] == b"\xef":  # a byte order mark, which this parser would take
        raise _NotNumericError
    parser = _PARSERS.parser if len(body) <= _KEPT_BYTES else simdjson.Parser()
    document: Any = parser.parse(body)
    if len(document) != 1:  # a key that is there twice counts twice
        raise _NotNumericError
    instances = document["instances"]
    if isinstance(instances[0], simdjson.Object):
        return _named(instances, alias, kind)
    sizes = _sizes(instances)
    _check(instances, sizes)
    return instances.as_buffer(of_type=kind), sizes


def _named(instances: Any, alias: str, kind: str) -> tuple[bytes, tuple[int, ...]]:
    """As above, of instances that are objects with the input's name."""
    values = []
    for instance in instances:
        if len(instance) != 1:
            raise _NotNumericError
        values.append(instance[alias])
    sizes = (len(values), *_sizes(values[0]))
    if len(sizes) == 1:
        raise _NotNumericError  # bare numbers, which have no buffer
    for value in values:
        if not isinstance(value, simdjson.Array) or len(value) != sizes[1]:
            raise _NotNumericError
        _check(value, sizes[1:])
    return b"".join([value.as_buffer(of_type=kind) for value in values]), sizes


def _sizes(value: Any) -> tuple[int, ...]:
    """Of a list, its first item, the first item of that, and so on."""
    sizes = []
    while isinstance(value, simdjson.Array):
        sizes.append(len(value))
        value = value[0]
    return tuple(sizes)


def _check(items: Any, sizes: Sequence[int]) -> None:
    """`_NotNumericError` unless the lists within are all as long as the first of their level."""
    if len(sizes) < 2:
        return
    for item in items:
        if not isinstance(item, simdjson.Array) or len(item) != sizes[1]:
            raise _NotNumericError
        _check(item, sizes[1:])


def _fits(sizes: Sequence[int], shape: Sequence[int]) -> bool:
    return len(sizes) == len(shape) and all(want in (-1, size) for want, size in zip(shape, sizes, strict=True))


def _lists(sizes: Sequence[int]) -> int:
    """How many lists there are on all levels."""
    count = level = 1
    for size in sizes[:-1]:
        level *= size
        count += level
    return count


def _cast(numbers: Array, dtype: str) -> Array | None:
    """A copy in the type that is wanted; None if that can't hold one of them."""
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
