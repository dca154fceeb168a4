"""The two checksums of Cloud Storage, computed incrementally."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from functools import cache

import google_crc32c

from trainshed.node.files import next_data

PIECE = 1 << 20  #: per read or write

_POLYNOMIAL = 0x82F63B78  #: of CRC32C, in the order of bits that the checksum has
_ALL_BITS = 0xFFFFFFFF

Matrix = tuple[int, ...]  #: of bits: the column of each bit


class Checksums:
    """MD5 and CRC32C of the bytes added so far, in base64 as the API writes them."""

    def __init__(self, *, with_md5: bool = True) -> None:
        self.size = 0
        self._md5 = hashlib.md5(usedforsecurity=False) if with_md5 else None
        self._crc = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        if self._md5 is not None:
            self._md5.update(data)
        self._crc = google_crc32c.extend(self._crc, data)

    def add_zeros(self, size: int) -> None:
        """Add zero bytes without reading any. Only for checksums without MD5, which has no shorter way."""
        assert self._md5 is None
        self.size += size
        self._crc = crc_add_zeros(self._crc, size)

    @property
    def md5(self) -> str:
        """Empty if it is not computed."""
        return "" if self._md5 is None else base64.b64encode(self._md5.digest()).decode()

    @property
    def crc32c(self) -> str:
        return crc_text(self._crc)


def crc_text(crc: int) -> str:
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def crc_add(crc: int, data: bytes) -> int:
    return int(google_crc32c.extend(crc, data))


def crc_add_zeros(crc: int, size: int) -> int:
    """The CRC32C after `size` zero bytes more, in steps that grow with the logarithm of the size alone."""
    state, power = crc ^ _ALL_BITS, 0
    while size:
        if size & 1:
            state = _times(_zero_bytes(power), state)
        size >>= 1
        power += 1
    return state ^ _ALL_BITS


@cache
def _zero_bytes(power: int) -> Matrix:
    """What 2**power zero bytes do to the state of the checksum."""
    if power == 0:
        return tuple(_zero_byte(1 << bit) for bit in range(32))
    half = _zero_bytes(power - 1)
    return tuple(_times(half, column) for column in half)


def _zero_byte(state: int) -> int:
    for _ in range(8):
        state = (state >> 1) ^ (_POLYNOMIAL if state & 1 else 0)
    return state


def _times(matrix: Matrix, vector: int) -> int:
    product = 0
    for column in matrix:
        if vector & 1:
            product ^= column
        vector >>= 1
        if not vector:
            break
    return product


def checksums_of(
    fd: int, *, size: int | None = None, with_md5: bool = True, on_read: Callable[[int], None] = lambda size: None
) -> Checksums:
    """Checksums of a file: all of it, or its first `size` bytes. Without MD5, holes of the file are not read.

    `on_read` is called with the size of each piece, and may raise to stop.
    """
    sums = Checksums(with_md5=with_md5)
    size = os.fstat(fd).st_size if size is None else size
    while sums.size < size:
        hole = 0 if with_md5 else min(next_data(fd, sums.size), size) - sums.size
        if hole >= PIECE:  # reading a small one takes less time than the arithmetic
            on_read(0)
            sums.add_zeros(hole)
            continue
        chunk = os.pread(fd, min(PIECE, size - sums.size), sums.size)
        if not chunk:
            break
        on_read(len(chunk))
        sums.add(chunk)
    return sums
