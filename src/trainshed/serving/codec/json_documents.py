"""JSON documents: strict parsing of requests and writing of responses.

Numbers may be `NaN`, `Infinity` and `-Infinity` in requests and responses, as in TensorFlow Serving. Rejected are
malformed JSON, more than 64 nested lists and objects, duplicate keys in an object, numbers beyond 64 bits, and lone
surrogates.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

from ..errors import BadOutputsError, InvalidInputsError

MAX_DEPTH = 64

_INSTANCES_KEY = b'"instances"'
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_STATUS = {400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}


def read_object(body: bytes) -> dict[str, Any]:
    """Parse a body that is a JSON object. Raises only `InvalidInputsError`."""
    try:
        document = orjson.loads(body)  # limits the depth to 1024
    except orjson.JSONDecodeError as exc:
        if b"NaN" not in body and b"Infinity" not in body:
            raise InvalidInputsError(f"The body is not JSON: {exc}.") from None
        _check_depth(body)
        document = _read_strictly(body)
    else:
        # Most bodies have one key and no other string, so they cannot have duplicate keys.
        quote = body.find(b'"')
        plain = body.startswith(_INSTANCES_KEY, quote) and body.rfind(b'"') == quote + len(_INSTANCES_KEY) - 1
        if not plain or body.rfind(b"[") >= MAX_DEPTH:
            _check_depth(body)
        if not plain and body.count(b":") != _count_keys(document):
            _read_strictly(body)
    if type(document) is not dict:
        raise InvalidInputsError('The body must be a JSON object with the field "instances".')
    return document


def write(document: Any) -> bytes:
    """Write a document as JSON. Raises `BadOutputsError` if a value has no JSON form."""
    try:
        text: bytes = orjson.dumps(document)
        if b"null" not in text:  # NaN and infinities would become null too
            return text
    except TypeError:  # long integers, keys that are not strings
        pass
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise BadOutputsError(f"They can't be written as JSON: {exc}") from exc


def error_body(status: int, message: str) -> bytes:
    """An error in the form of Google's APIs."""
    error = {"code": status, "message": message, "status": _STATUS.get(status, "INTERNAL")}
    return json.dumps({"error": error}).encode()


def _check_depth(body: bytes) -> None:
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    import numpy as np  # imported late: containers' hosts have no NumPy and never get here

    folded = np.frombuffer(body, np.uint8) & 0xDF  # maps braces to square brackets
    brackets = folded[(folded == 0x5B) | (folded == 0x5D)]
    if np.cumsum(np.where(brackets == 0x5B, 1, -1)).max(initial=0) > MAX_DEPTH and _depth(body) > MAX_DEPTH:
        raise InvalidInputsError(f"The body has more than {MAX_DEPTH} lists and objects in each other.")


def _depth(body: bytes) -> int:
    """The nesting depth of lists and objects. Brackets in strings do not count."""
    deepest = depth = 0
    for match in _STRING_OR_BRACKET.finditer(body):
        if body[match.start()] in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif body[match.start()] in b"]}":
            depth -= 1
    return deepest


def _count_keys(value: Any) -> int:
    """The number of keys, or fewer where counting would take long."""
    if type(value) is dict:
        return len(value) + sum(_count_keys(item) for item in value.values() if type(item) in (dict, list))
    if type(value) is list and value and type(value[0]) is dict:
        return sum(map(_count_keys, value))
    return 0


def _read_strictly(body: bytes) -> Any:
    """Parse a body with the standard library, slowly, with checks of every key and every number."""
    try:
        document = json.loads(
            body.decode(),
            parse_int=_integer,
            parse_float=_float,
            parse_constant=float,
            object_pairs_hook=_unique_object,
        )
        json.dumps(document, ensure_ascii=False).encode()  # fails for lone surrogates
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


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise InvalidInputsError(f"The body has an object with two values for {json.dumps(duplicate)[:100]}.")
    return result
