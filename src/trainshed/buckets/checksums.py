"""The two checksums of Cloud Storage, computed incrementally."""

from __future__ import annotations

import base64
import hashlib
import os

import google_crc32c

PIECE = 1 << 20  #: per read or write


class Checksums:
    """MD5 and CRC32C of the bytes added so far, in base64 as the API writes them."""

    def __init__(self) -> None:
        self.size = 0
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._crc = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self._md5.update(data)
        self._crc = google_crc32c.extend(self._crc, data)

    @property
    def md5(self) -> str:
        return base64.b64encode(self._md5.digest()).decode()

    @property
    def crc32c(self) -> str:
        return crc_text(self._crc)


def crc_text(crc: int) -> str:
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def crc_add(crc: int, data: bytes) -> int:
    return int(google_crc32c.extend(crc, data))


def checksums_of(fd: int, *, size: int | None = None) -> Checksums:
    """Checksums of a file: all of it, or its first `size` bytes."""
    sums = Checksums()
    while size is None or sums.size < size:
        chunk = os.pread(fd, PIECE if size is None else min(PIECE, size - sums.size), sums.size)
        if not chunk:
            break
        sums.add(chunk)
    return sums
