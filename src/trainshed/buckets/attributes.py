"""What is kept of an object besides its bytes: one extended attribute, JSON, on the file itself.

The attribute names the size and the modification time it was written for. A program that rewrites the file in place
changes one of them, and from then on the attribute says nothing about it.
"""

from __future__ import annotations

import errno
import mimetypes
import os
from dataclasses import asdict, fields
from typing import Any

import orjson

from trainshed.domain.objects import ObjectInfo, Traits
from trainshed.errors import Invalid

ATTRIBUTE = "user.trainshed"
MAX_BYTES = 3500  #: ext4 keeps the attributes of a file in one block of 4096 bytes

_PLAIN = Traits()
_TRAITS = tuple(f.name for f in fields(Traits))
_NUMBERS = ("generation", "size", "metageneration", "created_us", "updated_us")
_TEXTS = ("md5", "crc32c", "upload")


def encode(info: ObjectInfo) -> bytes:
    """The attribute's bytes. `Invalid` if they're more than a file can hold."""
    values: dict[str, Any] = {name: getattr(info, name) for name in _NUMBERS}
    values |= {name: getattr(info, name) for name in _TEXTS if getattr(info, name)}
    if info.components:
        values["components"] = info.components
    values |= {name: value for name, value in asdict(info.traits).items() if value != getattr(_PLAIN, name)}
    data = orjson.dumps(values)
    if len(data) > MAX_BYTES:
        raise Invalid(
            f"The metadata of {info.name} takes {len(data):,} bytes; an object can keep {MAX_BYTES:,} of them. "
            f"Shorten its custom metadata."
        )
    return data


def read(target: int | str, status: os.stat_result, *, bucket: str, name: str) -> ObjectInfo:
    """What is known about a file, by its descriptor or its path, without reading it."""
    try:
        data = os.getxattr(target, ATTRIBUTE, follow_symlinks=isinstance(target, int))
    except OSError as exc:
        if exc.errno != errno.ENODATA:
            raise
        return untold(status, bucket=bucket, name=name)
    values: dict[str, Any] = orjson.loads(data)
    if values["size"] != status.st_size or values["generation"] != status.st_mtime_ns // 1000:
        return untold(status, bucket=bucket, name=name)
    return _decode(values, bucket=bucket, name=name)


def read_mark(target: int | str, *, bucket: str, name: str) -> ObjectInfo | None:
    """What is known about a folder's mark; None if the folder has none. Its time changes with what lies in it."""
    try:
        data = os.getxattr(target, ATTRIBUTE, follow_symlinks=isinstance(target, int))
    except OSError as exc:
        if exc.errno != errno.ENODATA:
            raise
        return None
    return _decode(orjson.loads(data), bucket=bucket, name=name)


def has_mark(folder: int) -> bool:
    return ATTRIBUTE in os.listxattr(folder)


def untold(status: os.stat_result, *, bucket: str, name: str) -> ObjectInfo:
    """An object that some program wrote as a file: what its file says, and a type guessed from its name."""
    generation = status.st_mtime_ns // 1000
    return ObjectInfo(
        bucket=bucket,
        name=name,
        size=status.st_size,
        generation=generation,
        metageneration=1,
        created_us=generation,
        updated_us=generation,
        traits=Traits(content_type=guess_type(name)),
    )


def guess_type(name: str) -> str:
    """A media type from a name's ending."""
    return mimetypes.guess_type(name, strict=False)[0] or "application/octet-stream"


def _decode(values: dict[str, Any], *, bucket: str, name: str) -> ObjectInfo:
    traits = Traits(**{key: values[key] for key in _TRAITS if key in values})
    rest = {key: values[key] for key in (*_NUMBERS, *_TEXTS, "components") if key in values}
    return ObjectInfo(bucket=bucket, name=name, traits=traits, **rest)
