"""Reading JSON as Google's parser does: camelCase or snake_case, 64-bit numbers as text, unknown names refused.

A reader takes a value and the place it was found at, and returns the value in one form: names in camelCase, int64 as
text. Readers are put together to describe a message; nothing else in the program walks a request body by hand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from trainshed.errors import InvalidArgumentError

FieldReader = Callable[[object, str], Any]

_DURATION = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?s")
_SHOWN = 80  #: characters of a wrong value that its error repeats


def string(value: object, at: str) -> str:
    if not isinstance(value, str):
        raise wrong_value(at, "TYPE_STRING", value, "a string")
    return value


def boolean(value: object, at: str) -> bool:
    if not isinstance(value, bool):
        raise wrong_value(at, "TYPE_BOOL", value, "true or false")
    return value


def int32(value: object, at: str) -> int:
    return _integer(value, at, 32)


def int64(value: object, at: str) -> str:
    """A number or its text; the answer is text, because JSON numbers are not that wide everywhere."""
    return str(_integer(value, at, 64))


def _integer(value: object, at: str, bits: int) -> int:
    number = value
    if isinstance(number, str) and re.fullmatch(r"-?[0-9]{1,20}", number):
        number = int(number)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise wrong_value(at, f"TYPE_INT{bits}", value, "a whole number")
    return number


def double(value: object, at: str) -> float:
    """A number, or the text of one. What is no number, or infinite, is refused: nothing here wants one."""
    number = value
    if isinstance(number, str) and re.fullmatch(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?", number):
        number = float(number)
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise wrong_value(at, "TYPE_DOUBLE", value, "a number")
    return float(number)


def duration(value: object, at: str) -> str:
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise wrong_value(at, "type.googleapis.com/google.protobuf.Duration", value, 'a text such as "3600s"')
    return value


def duration_s(text: str) -> float:
    """The seconds of what `duration` let through."""
    return float(text.removesuffix("s"))


def anything(value: object, at: str) -> object:
    return value


def enum(name: str, *words: str) -> FieldReader:
    def read(value: object, at: str) -> str:
        if value not in words:
            raise wrong_value(at, f"type.googleapis.com/google.cloud.ml.v1.{name}", value, f"one of {', '.join(words)}")
        return str(value)

    return read


def repeated(reader: FieldReader) -> FieldReader:
    def read(value: object, at: str) -> list[Any]:
        if not isinstance(value, list):
            raise wrong_value(at, "repeated", value, "a list")
        return [reader(item, f"{at}[{number}]") for number, item in enumerate(value)]

    return read


def message(fields: Mapping[str, FieldReader]) -> FieldReader:
    """A reader of objects with just these fields, named in camelCase. A null counts as not given."""
    known = {name: name for name in fields} | {snake(name): name for name in fields}

    def read(value: object, at: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong_value(at, "message", value, "an object")
        if unknown := [key for key in value if key not in known]:
            raise unknown_names(unknown, at)
        found: dict[str, Any] = {}
        for key, item in value.items():
            name = known[key]
            if name in found:
                raise InvalidArgumentError(
                    f"Invalid value at '{at}': {name} is given twice, as {name} and as {snake(name)}.", field=at
                )
            if item is not None:
                found[name] = fields[name](item, f"{at}.{snake(name)}" if at else snake(name))
        return found

    return read


def unknown_names(names: list[str], at: str) -> InvalidArgumentError:
    """Google's own words for a name that no field has."""
    place = f" at '{at}'" if at else ""
    lines = [f'Invalid JSON payload received. Unknown name "{_cut(name)}"{place}: Cannot find field.' for name in names]
    return InvalidArgumentError("\n".join(lines[:20]), field=at)


def wrong_value(at: str, kind: str, value: object, wanted: str) -> InvalidArgumentError:
    """Google's own words for a value of the wrong type, and what would be right."""
    shown = _cut(orjson.dumps(value).decode())
    return InvalidArgumentError(f"Invalid value at '{at}' ({kind}), {shown}. Wanted here: {wanted}.", field=at)


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
    """The paths of a field mask, in snake_case and in order. `InvalidArgumentError` if there are none."""
    paths = [snake(path.strip()) for path in text.split(",") if path.strip()]
    if not paths:
        raise InvalidArgumentError(
            "The mask of the fields to change is missing. Example: updateMask=labels.", field=field
        )
    return paths


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
