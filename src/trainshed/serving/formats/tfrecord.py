"""TFRecord files, read without TensorFlow. Each record is a length, its checksum, the data, its checksum."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

import google_crc32c

from .protobuf import BadMessageError

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
HEADER_BYTES = _HEADER.size  #: the length of a record, and its checksum
FOOTER_BYTES = _FOOTER.size  #: the checksum of the record
_MAX_RECORD_BYTES = 1 << 30  #: a greater length is damage that its checksum happens to match


def records(file: BinaryIO) -> Iterator[bytes]:
    """The records of an open file. Raises `BadMessageError` where it is damaged."""
    offset = 0
    while header := file.read(HEADER_BYTES):
        if len(header) < HEADER_BYTES:
            raise BadMessageError(f"A record's header at byte {offset} is cut short.")
        size = record_length(header, offset=offset)
        record, footer = file.read(size), file.read(FOOTER_BYTES)
        if len(record) < size or len(footer) < FOOTER_BYTES:
            raise BadMessageError(f"The record at byte {offset} is cut short.")
        check_record(record, footer, offset=offset)
        yield record
        offset += HEADER_BYTES + size + FOOTER_BYTES


def record_length(header: bytes, *, offset: int) -> int:
    """The length of the record whose header is at byte `offset`. Raises `BadMessageError` if its checksum is wrong."""
    size, checksum = _HEADER.unpack(header)
    if checksum != masked_crc(header[:8]) or size > _MAX_RECORD_BYTES:
        raise BadMessageError(
            f"The checksum of a record's length at byte {offset} is wrong: this is not a TFRecord file."
        )
    return int(size)


def check_record(record: bytes, footer: bytes, *, offset: int) -> None:
    """Raises `BadMessageError` if the checksum of the record at byte `offset` is wrong."""
    if _FOOTER.unpack(footer)[0] != masked_crc(record):
        raise BadMessageError(f"The checksum of the record at byte {offset} is wrong.")


def masked_crc(data: bytes) -> int:
    """The checksum of lengths and records."""
    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
