"""Requests of TensorFlow Serving's warm-up file, read without TensorFlow.

The file is a TFRecord of `PredictionLog` messages. A sample request needs the signature name and the tensors of a
`PredictRequest`, or the examples of a classification or a regression.
"""

from __future__ import annotations

import base64
import io
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..signatures import DTYPES, STRING
from .protobuf import BadMessageError, fields, packed, signed
from .tfrecord import records

#: the field of a TensorProto with its values, unless they are in `tensor_content`, by the number of its type
VALUE_FIELDS = {1: 5, 2: 6, 3: 7, 4: 7, 5: 7, 6: 7, 7: 8, 9: 10, 10: 11, 17: 7, 19: 13, 22: 16, 23: 17}

_MAX_REPEATED = (
    1 << 24
)  #: elements of a tensor that is stored as its first ones: a few bytes could stand for any number
_CLASSIFY, _REGRESS, _PREDICT = 2, 3, 6  # fields of PredictionLog


def requests(data: bytes) -> Iterator[dict[str, Any]]:
    """The predict requests in a warm-up file. Logs of other kinds and tensors without rows are omitted.

    Raises `BadMessageError` where the file is damaged.
    """
    for number, record in enumerate(records(io.BytesIO(data)), 1):
        try:
            body = _request(fields(record))
        except BadMessageError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as exc:
            raise BadMessageError(f"Request {number} of the file makes no sense: {exc}.") from exc
        if body is not None:
            yield body


def tensor(message: bytes) -> np.ndarray[Any, Any]:
    """A TensorProto as an array; strings as `bytes` objects. Raises `BadMessageError` if JSON has no form for it."""
    parts = fields(message)
    number = parts.get(1, [0])[0]
    if number not in VALUE_FIELDS:
        raise BadMessageError(f"A tensor of type number {number} cannot be sent as JSON.")
    dtype = np.dtype(object if DTYPES[number] == STRING else DTYPES[number])
    shape = [signed(fields(d).get(1, [0])[0]) for d in fields(b"".join(parts.get(2, []))).get(2, [])]
    if dtype.kind != "O" and parts.get(4):
        flat = np.frombuffer(parts[4][0], dtype)
    else:
        flat = _values(dtype, parts.get(VALUE_FIELDS[number], []))
    count = int(np.prod(shape, dtype=np.int64))
    if len(flat) == count:
        return flat.reshape(shape)
    if not 0 < len(flat) < count <= _MAX_REPEATED:
        raise BadMessageError(f"A tensor of shape {shape} has {len(flat)} values.")
    return np.append(flat, np.full(count - len(flat), flat[-1], dtype)).reshape(shape)  # the last value is repeated


def _values(dtype: np.dtype[Any], parts: list[Any]) -> np.ndarray[Any, Any]:
    if dtype.kind == "O":
        flat = np.empty(len(parts), object)
        flat[:] = parts
        return flat
    if dtype in (np.float32, np.float64):
        return np.frombuffer(b"".join(parts), dtype)
    numbers = list(itertools.chain.from_iterable(packed(p) if isinstance(p, bytes) else (p,) for p in parts))
    if dtype == np.float16:
        return np.array(numbers, np.uint16).view(np.float16)
    if dtype.kind == "i":
        numbers = [signed(n) for n in numbers]
    return np.array(numbers, dtype)


def _request(log: Mapping[int, list[Any]]) -> dict[str, Any] | None:
    for field in (_PREDICT, _CLASSIFY, _REGRESS):
        if field in log:
            request = fields(fields(log[field][0]).get(1, [b""])[0])
            instances = _rows(request) if field == _PREDICT else _examples(request)
            name = fields(request.get(1, [b""])[0]).get(3, [b""])[0].decode()
            return ({"signature_name": name} if name else {}) | {"instances": instances} if instances else None
    return None


def _rows(request: Mapping[int, list[Any]]) -> list[Any]:
    entries = [fields(entry) for entry in request.get(2, [])]
    inputs = {entry[1][0].decode(): tensor(entry[2][0]) for entry in entries if 1 in entry and 2 in entry}
    if not inputs or any(array.ndim == 0 for array in inputs.values()):
        return []
    if len({len(array) for array in inputs.values()}) != 1:
        return []
    columns = {name: _encode(array.tolist()) for name, array in inputs.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _examples(request: Mapping[int, list[Any]]) -> list[Any]:
    """The serialized examples of a classification or a regression. Lists with a shared context are omitted."""
    example_lists = fields(request.get(2, [b""])[0]).get(1, [])
    return [_encode(example) for examples in example_lists for example in fields(examples).get(1, [])]


def _encode(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return [_encode(item) for item in value] if isinstance(value, list) else value
