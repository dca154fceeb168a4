"""JSON with protobuf's rules: camelCase or snake_case, int64 as strings, unknown names rejected.

A reader takes a value and its path, and returns the value in normal form: camelCase names, int64 as strings. Readers
compose to describe a message. No other code traverses a request body by hand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from trainshed.errors import InvalidArgumentError

FieldReader = Callable[[object, str], Any]

_DURATION = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?s")
_MAX_SHOWN_CHARACTERS = 80  #: of an invalid value, in its error


def string(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise wrong_value(path, "TYPE_STRING", value, "a string")
    return value


def boolean(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise wrong_value(path, "TYPE_BOOL", value, "true or false")
    return value


def int32(value: object, path: str) -> int:
    return _integer(value, path, 32)


def int64(value: object, path: str) -> str:
    """Read a number or its string. Returns a string, because not all JSON parsers keep 64 bits."""
    return str(_integer(value, path, 64))


def _integer(value: object, path: str, bits: int) -> int:
    number = value
    if isinstance(number, str) and re.fullmatch(r"-?[0-9]{1,20}", number):
        number = int(number)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise wrong_value(path, f"TYPE_INT{bits}", value, "a whole number")
    return number


def double(value: object, path: str) -> float:
    """Read a number or its string. NaN and infinity are rejected."""
    number = value
    if isinstance(number, str) and re.fullmatch(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,3})?", number):
        number = float(number)
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise wrong_value(path, "TYPE_DOUBLE", value, "a number")
    return float(number)


def duration(value: object, path: str) -> str:
    """Read `3600s`, or an object of seconds and nanos as some clients send. Returns the text."""
    if isinstance(value, dict):
        parts = message({"seconds": int64, "nanos": int32})(value, path)
        value = f"{parts.get('seconds', 0)}.{parts.get('nanos', 0):09d}s"
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise wrong_value(path, "type.googleapis.com/google.protobuf.Duration", value, 'a text such as "3600s"')
    return value


def duration_s(text: str) -> float:
    """The seconds of a valid `duration`."""
    return float(text.removesuffix("s"))


def anything(value: object, path: str) -> object:
    return value


def upper_case(value: object, path: str) -> str:
    """Read the name of an enum value. Case does not matter."""
    return string(value, path).upper()


@dataclass(frozen=True, slots=True)
class EnumReader:
    """Reads one of these words, which are in upper case. Case does not matter: clients write `custom` too."""

    name: str
    words: tuple[str, ...]

    def __call__(self, value: object, path: str) -> str:
        word = value.upper() if isinstance(value, str) else value
        if word not in self.words:
            kind = f"type.googleapis.com/google.cloud.ml.v1.{self.name}"
            raise wrong_value(path, kind, value, f"one of {', '.join(self.words)}")
        return str(word)


def enum(name: str, *words: str) -> EnumReader:
    return EnumReader(name, words)


@dataclass(frozen=True, slots=True)
class RepeatedReader:
    """Reads a list, each item with `item`."""

    item: FieldReader

    def __call__(self, value: object, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise wrong_value(path, "repeated", value, "a list")
        return [self.item(item, f"{path}[{number}]") for number, item in enumerate(value)]


def repeated(reader: FieldReader) -> RepeatedReader:
    return RepeatedReader(reader)


class MessageReader:
    """Reads objects with exactly these fields, named in camelCase. Null counts as missing."""

    def __init__(self, fields: Mapping[str, FieldReader]) -> None:
        self.fields = fields
        self._names = {name: name for name in fields} | {snake(name): name for name in fields}

    def __call__(self, value: object, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong_value(path, "message", value, "an object")
        if unknown := [key for key in value if key not in self._names]:
            raise unknown_names(unknown, path)
        result: dict[str, Any] = {}
        for key, item in value.items():
            name = self._names[key]
            if name in result:
                raise InvalidArgumentError(
                    f"Invalid value at '{path}': {name} is given twice, as {name} and as {snake(name)}.", field=path
                )
            if item is not None:
                result[name] = self.fields[name](item, f"{path}.{snake(name)}" if path else snake(name))
        return result


def message(fields: Mapping[str, FieldReader]) -> MessageReader:
    return MessageReader(fields)


def unknown_names(names: list[str], path: str) -> InvalidArgumentError:
    """Google's error for an unknown field name."""
    location = f" at '{path}'" if path else ""
    lines = [
        f'Invalid JSON payload received. Unknown name "{_truncate(name)}"{location}: Cannot find field.'
        for name in names
    ]
    return InvalidArgumentError("\n".join(lines[:20]), field=path)


def wrong_value(path: str, kind: str, value: object, expected: str) -> InvalidArgumentError:
    """Google's error for a value of the wrong type, plus the expected type."""
    excerpt = _truncate(orjson.dumps(value).decode())
    return InvalidArgumentError(f"Invalid value at '{path}' ({kind}), {excerpt}. Wanted here: {expected}.", field=path)


def snake(name: str) -> str:
    """`packageUris` -> `package_uris`."""
    return re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", name)


def snake_keys(value: object) -> object:
    """The same JSON with every name in snake_case."""
    if isinstance(value, dict):
        return {snake(key): snake_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [snake_keys(item) for item in value]
    return value


def mask_paths(text: str, *, field: str) -> list[str]:
    """The paths of a field mask, in snake_case and in order. Raises `InvalidArgumentError` if there are none."""
    paths = [snake(path.strip()) for path in text.split(",") if path.strip()]
    if not paths:
        raise InvalidArgumentError(
            "The mask of the fields to change is missing. Example: updateMask=labels.", field=field
        )
    return paths


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
