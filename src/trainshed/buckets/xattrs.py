"""What is kept of an object besides its bytes: one extended attribute, JSON, on the file itself.

The attribute names the size and the modification time it was written for. A program that rewrites the file in place
changes one of them, and from then on the attribute says nothing about it.
"""

from __future__ import annotations

import errno
import mimetypes
import os
import re
from dataclasses import asdict, fields
from typing import Any

import orjson

from trainshed.domain.objects import ObjectInfo, ObjectMetadata
from trainshed.errors import FailedPreconditionError, InvalidArgumentError

ATTRIBUTE = "user.trainshed"
LATEST_US = 13_569_465_600_000_000  #: the year 2400; file systems end soon after. Times from 1970 to here are kept
MAX_BYTES = 3500  #: ext4 keeps the attributes of a file in one block of 4096 bytes

_PLAIN = ObjectMetadata()
_TRAITS = tuple(f.name for f in fields(ObjectMetadata))
_MANY = (1 << 63) - 1
_NUMBERS = {  # and the most that each may be
    "generation": LATEST_US,
    "size": _MANY,
    "metageneration": _MANY,
    "created_us": LATEST_US,
    "updated_us": LATEST_US,
}
_TEXTS = {
    "md5": re.compile(r"[A-Za-z0-9+/]{22}=="),
    "crc32c": re.compile(r"[A-Za-z0-9+/]{6}=="),
    "upload": re.compile(r"[0-9a-f]{32}"),
}
_HEADER = re.compile(r"[ -~]*")
_ANY_LINE = re.compile(r"[^\x00-\x1f\x7f]*")
_CHECKSUMS = len(',"md5":"","crc32c":""') + 24 + 8  #: bytes that come in when the checksums of a file are noted


def encode(info: ObjectInfo) -> bytes:
    """The attribute's bytes. `InvalidArgumentError` if they're more than a file can hold."""
    if not 0 <= info.generation <= LATEST_US:
        raise FailedPreconditionError(
            f"The file behind {info.name} has a modification time before 1970 or after 2400, so nothing can be noted "
            f"about it. Change it with `touch`, or write the object anew."
        )
    values: dict[str, Any] = {name: getattr(info, name) for name in _NUMBERS}
    values |= {name: getattr(info, name) for name in _TEXTS if getattr(info, name)}
    if info.components:
        values["components"] = info.components
    values |= {name: value for name, value in asdict(info.traits).items() if value != getattr(_PLAIN, name)}
    data = orjson.dumps(values)
    if len(data) > MAX_BYTES - (0 if info.crc32c else _CHECKSUMS):
        raise InvalidArgumentError(
            f"The metadata of {info.name} takes {len(data):,} bytes; an object can keep {MAX_BYTES:,} of them. "
            f"Shorten its custom metadata."
        )
    return data


def read(target: int | str, status: os.stat_result, *, bucket: str, name: str) -> ObjectInfo:
    """What is known about a file, by its descriptor or its path, without reading it."""
    info = _read(target, bucket=bucket, name=name)
    if info is None or (info.size, info.generation) != (status.st_size, status.st_mtime_ns // 1000):
        return plain_file_info(status, bucket=bucket, name=name)
    return info


def read_mark(target: int | str, *, bucket: str, name: str) -> ObjectInfo | None:
    """What is known about a folder's mark; None if the folder has none. Its time changes with what lies in it."""
    return _read(target, bucket=bucket, name=name)


def has_mark(folder: int) -> bool:
    return _read(folder, bucket="", name="") is not None


def _read(target: int | str, *, bucket: str, name: str) -> ObjectInfo | None:
    """What the attribute says; None if there is none, or one that was not written here."""
    try:
        data = os.getxattr(target, ATTRIBUTE, follow_symlinks=isinstance(target, int))
    except OSError as exc:
        if exc.errno != errno.ENODATA:
            raise
        return None
    try:
        return decode(data, bucket=bucket, name=name)
    except ValueError:
        return None  # any program may write to the attribute; what makes no sense says nothing


def plain_file_info(status: os.stat_result, *, bucket: str, name: str) -> ObjectInfo:
    """An object that some program wrote as a file: what its file says, and a type guessed from its name."""
    generation = status.st_mtime_ns // 1000
    shown = min(max(generation, 0), LATEST_US)
    return ObjectInfo(
        bucket=bucket,
        name=name,
        size=status.st_size,
        generation=generation,
        metageneration=1,
        created_us=shown,
        updated_us=shown,
        traits=ObjectMetadata(content_type=guess_type(name)),
    )


def guess_type(name: str) -> str:
    """A media type from a name's ending."""
    return mimetypes.guess_type(name, strict=False)[0] or "application/octet-stream"


def decode(data: bytes, *, bucket: str, name: str) -> ObjectInfo:
    """`ValueError` unless every value is one that `encode` could have been given."""
    values = orjson.loads(data) if len(data) <= MAX_BYTES else None
    if not isinstance(values, dict):
        raise ValueError("not an object's attribute")
    traits = ObjectMetadata(**{key: _trait(key, values[key]) for key in _TRAITS if key in values})
    rest: dict[str, Any] = {key: _number(values.get(key), most=most) for key, most in _NUMBERS.items()}
    rest["components"] = _number(values.get("components", 0), most=_MANY)
    rest |= {key: _text(values[key], pattern) for key, pattern in _TEXTS.items() if key in values}
    return ObjectInfo(bucket=bucket, name=name, traits=traits, **rest)


def _number(value: object, *, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("not a number in its range")
    return value


def _text(value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError("not a text of its form")
    return value


def _trait(key: str, value: object) -> Any:
    if key != "metadata":
        return _text(value, _ANY_LINE if key == "content_disposition" else _HEADER)
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError("not a map of texts")
    return value
