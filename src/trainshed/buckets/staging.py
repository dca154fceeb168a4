"""Objects on their way in and objects being read: open files with what is known of them."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from trainshed.buckets.checksums import PIECE, Checksums, checksums_of, crc_add, crc_text
from trainshed.buckets.dirfd import disk_errors
from trainshed.domain.objects import ObjectDraft, ObjectInfo
from trainshed.errors import DataLossError, InvalidArgumentError

LOG = logging.getLogger("trainshed.buckets")


class StagedObject:
    """A file beside the buckets that becomes an object when it is complete. One user at a time; not seen by readers."""

    def __init__(self, path: Path, fd: int, sums: Checksums | None) -> None:
        """`sums` are the checksums of what the file holds already; None if nobody kept count."""
        self.path = path
        self.fd = fd
        self.size = os.fstat(fd).st_size if sums is None else sums.size
        self.sums = sums
        self.known: tuple[str, str] | None = None  #: MD5 and CRC32C of the whole, where they came with the bytes

    def write(self, data: bytes) -> None:
        """Append. `DiskFullError` if the disk is full."""
        with disk_errors():
            view = memoryview(data)
            while view:
                view = view[os.pwrite(self.fd, view, self.size + len(data) - len(view)) :]
        self.size += len(data)
        self.known = None
        if self.sums is not None:
            self.sums.add(data)

    def seal(self, draft: ObjectDraft) -> tuple[str, str]:
        """The MD5 and CRC32C of the whole. `InvalidArgumentError` if they aren't those that the sender announced."""
        if self.known is None:
            sums = self.sums or checksums_of(self.fd)
            self.known = sums.md5, sums.crc32c
        _compare("md5Hash", draft.md5, self.known[0])
        _compare("crc32c", draft.crc32c, self.known[1])
        return self.known

    def discard(self) -> None:
        """Close it and remove it. May be repeated; does nothing to a file that has become an object."""
        self.close()
        with suppress(FileNotFoundError):
            self.path.unlink()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.discard()


def _compare(field: str, wanted: str, found: str) -> None:
    if wanted and wanted != found:
        raise InvalidArgumentError(
            f"The {field} of the request is {wanted!r}, but the bytes received amount to {found!r}. "
            f"Nothing was stored; send them again."
        )


class ObjectReader(ABC):
    """An object's bytes as they were when it was opened, whatever is written to its name meanwhile."""

    def __init__(self, info: ObjectInfo) -> None:
        self.info = info
        self._crc = 0
        self._checked = 0  #: how many bytes from the beginning are in _crc

    @abstractmethod
    def _bytes(self, offset: int, size: int) -> bytes:
        """Fewer than `size` where there are no more."""

    @abstractmethod
    def _unchanged(self) -> bool:
        """Whether nobody has written to it since it was opened."""

    @abstractmethod
    def close(self) -> None:
        """Nobody reads any more. May be repeated."""

    def read(self, offset: int, size: int = PIECE) -> bytes:
        """Bytes at a place.

        `DataLossError` if the last piece of a read from the beginning to the end shows other bytes.
        """
        size = min(size, self.info.size - offset)
        data = self._bytes(offset, size) if size > 0 else b""
        if len(data) < size:
            raise DataLossError(
                f"The file behind {self.info.bucket}/{self.info.name} was cut off while it was being read."
            )
        if offset == self._checked and self.info.crc32c:
            self._crc = crc_add(self._crc, data)
            self._checked += len(data)
            if self._checked == self.info.size and crc_text(self._crc) != self.info.crc32c and self._unchanged():
                LOG.error("object.damaged bucket=%s name=%r", self.info.bucket, self.info.name)
                raise DataLossError(
                    f"The bytes of {self.info.bucket}/{self.info.name} on the disk aren't those that were stored: "
                    f"their CRC32C is {crc_text(self._crc)}, not {self.info.crc32c}. Restore the object from a copy."
                )
        return data

    def copy_to(self, staged: StagedObject) -> None:
        """Append the whole object."""
        for offset in range(0, self.info.size, PIECE):
            staged.write(self.read(offset))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class FileReader(ObjectReader):
    """An open file."""

    def __init__(self, fd: int, info: ObjectInfo) -> None:
        super().__init__(info)
        self._fd = fd

    def _bytes(self, offset: int, size: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def _unchanged(self) -> bool:
        return os.fstat(self._fd).st_mtime_ns // 1000 == self.info.generation

    def copy_to(self, staged: StagedObject) -> None:
        """Append the whole object. Its known checksums go along where nothing was there before."""
        if staged.size or not self.info.crc32c:
            super().copy_to(staged)
            return
        with disk_errors():
            while staged.size < self.info.size:
                left = self.info.size - staged.size
                done = os.copy_file_range(self._fd, staged.fd, left, offset_src=staged.size, offset_dst=staged.size)
                if done == 0:
                    raise DataLossError(
                        f"The file behind {self.info.bucket}/{self.info.name} was cut off while it was copied."
                    )
                staged.size += done
        staged.sums = None
        staged.known = (self.info.md5, self.info.crc32c) if self._unchanged() else None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
