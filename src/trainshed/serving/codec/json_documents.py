"""JSON documents: what is taken for one, and how answers are written.

Numbers may be `NaN`, `Infinity` and `-Infinity`, in requests and in answers, as TensorFlow Serving has it. Refused are:
what is not JSON, more than 64 lists and objects in each other, a key twice in one object, numbers beyond what 64 bits
hold, and halves of characters.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

from ..errors import BadOutputsError, InvalidInputsError

MAX_DEPTH = 64

_PLAIN = b'"instances"'
_MARKS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_STATUS = {400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a body is. `InvalidInputsError`, and no other error, if it is none."""
    try:
        document = orjson.loads(body)  # which itself goes no deeper than 1024
    except orjson.JSONDecodeError as exc:
        if b"NaN" not in body and b"Infinity" not in body:
            raise InvalidInputsError(f"The body is not JSON: {exc}.") from None
        _check_depth(body)
        document = _read_strictly(body)
    else:
        # Most bodies have one key and no other string: in those nothing can be there twice.
        quote = body.find(b'"')
        plain = body.startswith(_PLAIN, quote) and body.rfind(b'"') == quote + len(_PLAIN) - 1
        if not plain or body.rfind(b"[") >= MAX_DEPTH:
            _check_depth(body)
        if not plain and body.count(b":") != _count_keys(document):
            _read_strictly(body)
    if type(document) is not dict:
        raise InvalidInputsError('The body must be a JSON object with the field "instances".')
    return document


def write(document: Any) -> bytes:
    """A document as JSON. `BadOutputsError` if it holds what JSON has no form for."""
    try:
        text: bytes = orjson.dumps(document)
        if b"null" not in text:  # which NaN and the infinities would be, too
            return text
    except TypeError:  # long integers, keys that are no strings
        pass
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise BadOutputsError(f"They can't be written as JSON: {exc}") from exc


def error_body(status: int, message: str) -> bytes:
    """An error as Google's APIs answer it."""
    error = {"code": status, "message": message, "status": _STATUS.get(status, "INTERNAL")}
    return json.dumps({"error": error}).encode()


def _check_depth(body: bytes) -> None:
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    import numpy as np  # late: there is none where nothing is looked into this far

    folded = np.frombuffer(body, np.uint8) & 0xDF  # square brackets and braces look the same now
    marks = folded[(folded == 0x5B) | (folded == 0x5D)]
    if np.cumsum(np.where(marks == 0x5B, 1, -1)).max(initial=0) > MAX_DEPTH and _depth(body) > MAX_DEPTH:
        raise InvalidInputsError(f"The body has more than {MAX_DEPTH} lists and objects in each other.")


def _depth(body: bytes) -> int:
    """How deep lists and objects are in each other; brackets in strings do not count."""
    deepest = depth = 0
    for mark in _MARKS.finditer(body):
        if body[mark.start()] in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif body[mark.start()] in b"]}":
            depth -= 1
    return deepest


def _count_keys(value: Any) -> int:
    """How many keys there are, or fewer where it would take long to look."""
    if type(value) is dict:
        return len(value) + sum(_count_keys(item) for item in value.values() if type(item) in (dict, list))
    if type(value) is list and value and type(value[0]) is dict:
        return sum(map(_count_keys, value))
    return 0


def _read_strictly(body: bytes) -> Any:
    """What the parser of the standard library makes of a body, slowly: it is told of every key and every number."""
    try:
        document = json.loads(
            body.decode(),
            parse_int=_integer,
            parse_float=_float,
            parse_constant=float,
            object_pairs_hook=_without_twins,
        )
        json.dumps(document, ensure_ascii=False).encode()  # fails for halves of characters
    except UnicodeError:
        raise InvalidInputsError("The body is not JSON in UTF-8.") from None
    except (json.JSONDecodeError, RecursionError) as exc:
        raise InvalidInputsError(f"The body is not JSON: {exc}.") from None
    return document


def _integer(digits: str) -> int | float:
    if len(digits) <= 20 and -(1 << 63) <= (number := int(digits)) < 1 << 64:
        return number
    return _float(digits)


def _float(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise InvalidInputsError("The body holds a number that is too large.")
    return number


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise InvalidInputsError(f"The body has an object with two values for {json.dumps(twin)[:100]}.")
    return found
