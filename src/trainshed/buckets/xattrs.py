"""Object metadata in one extended attribute of the file, as JSON.

The attribute includes the size and the modification time that it was written for. A program that rewrites the file in
place changes one of them, which invalidates the attribute.
"""

from __future__ import annotations

import errno
import mimetypes
import os
import re
from dataclasses import asdict, fields, replace
from typing import Any

import orjson

from trainshed.domain.objects import ObjectDraft, ObjectInfo, ObjectMetadata
from trainshed.domain.times import parse_rfc3339
from trainshed.errors import FailedPreconditionError, InvalidArgumentError

ATTRIBUTE = "user.trainshed"
#: the year 2400, near the limit of file systems; times from 1970 to here are supported
MAX_TIME_US = 13_569_465_600_000_000
MAX_ATTRIBUTE_BYTES = 3500  #: ext4 stores the attributes of a file in one block of 4096 bytes

_DEFAULTS = ObjectMetadata()
_METADATA_FIELDS = tuple(f.name for f in fields(ObjectMetadata))
_MAX_INT64 = (1 << 63) - 1
_NUMBERS = {  # name -> maximum
    "generation": MAX_TIME_US,
    "size": _MAX_INT64,
    "metageneration": _MAX_INT64,
    "created_us": MAX_TIME_US,
    "updated_us": MAX_TIME_US,
}
_TEXTS = {
    "md5": re.compile(r"[A-Za-z0-9+/]{22}=="),
    "crc32c": re.compile(r"[A-Za-z0-9+/]{6}=="),
    "upload": re.compile(r"[0-9a-f]{32}"),
}
_FLAGS = frozenset({"temporary_hold", "event_based_hold"})
_HEADER = re.compile(r"[ -~]*")
_ANY_LINE = re.compile(r"[^\x00-\x1f\x7f]*")
_CHECKSUM_BYTES = len(',"md5":"","crc32c":""') + 24 + 8  #: reserved for checksums that are added later


def encode(info: ObjectInfo) -> bytes:
    """The attribute's bytes. Raises `InvalidArgumentError` if they exceed what a file can hold."""
    if not 0 <= info.generation <= MAX_TIME_US:
        raise FailedPreconditionError(
            f"The file behind {info.name} has a modification time before 1970 or after 2400, so nothing can be noted "
            f"about it. Change it with `touch`, or write the object anew."
        )
    values: dict[str, Any] = {name: getattr(info, name) for name in _NUMBERS}
    values |= {name: getattr(info, name) for name in _TEXTS if getattr(info, name)}
    if info.components:
        values["components"] = info.components
    values |= {name: value for name, value in asdict(info.traits).items() if value != getattr(_DEFAULTS, name)}
    data = orjson.dumps(values)
    if len(data) > MAX_ATTRIBUTE_BYTES - (0 if info.crc32c else _CHECKSUM_BYTES):
        raise InvalidArgumentError(
            f"The metadata of {info.name} takes {len(data):,} bytes; an object can keep "
            f"{MAX_ATTRIBUTE_BYTES:,} of them. Shorten its custom metadata."
        )
    return data


def read(target: int | str, status: os.stat_result, *, bucket: str, name: str) -> ObjectInfo:
    """The metadata of a file, by descriptor or path. Does not read its bytes."""
    info = _read(target, bucket=bucket, name=name)
    if info is None or (info.size, info.generation) != (status.st_size, status.st_mtime_ns // 1000):
        return plain_file_info(status, bucket=bucket, name=name)
    return info


def read_mark(target: int | str, *, bucket: str, name: str) -> ObjectInfo | None:
    """The metadata of a folder's mark. Returns None if it has none. Its time changes with the folder's content."""
    return _read(target, bucket=bucket, name=name)


def has_mark(folder: int) -> bool:
    return _read(folder, bucket="", name="") is not None


def _read(target: int | str, *, bucket: str, name: str) -> ObjectInfo | None:
    """Decode the attribute. Returns None if there is none, or one from another program."""
    try:
        data = os.getxattr(target, ATTRIBUTE, follow_symlinks=isinstance(target, int))
    except OSError as exc:
        if exc.errno != errno.ENODATA:
            raise
        return None
    try:
        return decode(data, bucket=bucket, name=name)
    except ValueError:
        return None  # any program can write the attribute; malformed values are ignored


def plain_file_info(status: os.stat_result, *, bucket: str, name: str) -> ObjectInfo:
    """The metadata of a file that another program wrote. The content type is guessed from its name."""
    generation = status.st_mtime_ns // 1000
    time_us = min(max(generation, 0), MAX_TIME_US)
    return ObjectInfo(
        bucket=bucket,
        name=name,
        size=status.st_size,
        generation=generation,
        metageneration=1,
        created_us=time_us,
        updated_us=time_us,
        traits=ObjectMetadata(content_type=guess_type(name)),
    )


def new_info(
    draft: ObjectDraft, size: int, sums: tuple[str, str], *, generation: int, hold: bool = False
) -> ObjectInfo:
    """The metadata of an object that is written now. `sums` are MD5 and CRC32C; `hold` gives it an event-based hold."""
    traits = draft.traits
    if not traits.content_type:
        traits = replace(traits, content_type=guess_type(draft.name))
    if hold:
        traits = replace(traits, event_based_hold=True)
    return ObjectInfo(
        bucket=draft.bucket,
        name=draft.name,
        size=size,
        generation=generation,
        metageneration=1,
        created_us=generation,
        updated_us=generation,
        md5=sums[0],
        crc32c=sums[1],
        components=draft.components,
        upload=draft.upload,
        traits=traits,
    )


def guess_type(name: str) -> str:
    """A media type from the suffix of a name."""
    return mimetypes.guess_type(name, strict=False)[0] or "application/octet-stream"


def decode(data: bytes, *, bucket: str, name: str) -> ObjectInfo:
    """Decode the attribute's bytes. Raises `ValueError` unless `encode` could have written every value."""
    values = orjson.loads(data) if len(data) <= MAX_ATTRIBUTE_BYTES else None
    if not isinstance(values, dict):
        raise ValueError("not an object's attribute")
    traits = ObjectMetadata(**{key: _metadata_value(key, values[key]) for key in _METADATA_FIELDS if key in values})
    fields_read: dict[str, Any] = {key: _number(values.get(key), maximum=maximum) for key, maximum in _NUMBERS.items()}
    fields_read["components"] = _number(values.get("components", 0), maximum=_MAX_INT64)
    fields_read |= {key: _text(values[key], pattern) for key, pattern in _TEXTS.items() if key in values}
    return ObjectInfo(bucket=bucket, name=name, traits=traits, **fields_read)


def _number(value: object, *, maximum: int) -> int:
    if type(value) is not int or not 0 <= value <= maximum:
        raise ValueError("not a number in its range")
    return value


def _text(value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError("not a text of its form")
    return value


def _metadata_value(key: str, value: object) -> Any:
    if key == "hold_released_us":
        return _number(value, maximum=MAX_TIME_US)
    if key in _FLAGS:
        if value is not True:
            raise ValueError("not a flag that is set")
        return True
    if key == "custom_time":
        parse_rfc3339(_text(value, _HEADER))  # lifecycle rules compute with it
        return value
    if key != "metadata":
        return _text(value, _ANY_LINE if key == "content_disposition" else _HEADER)
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError("not a map of texts")
    return value
