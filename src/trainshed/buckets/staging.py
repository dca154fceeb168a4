"""Staged objects during upload and readers of objects: open files with their metadata."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from trainshed.buckets.checksums import PIECE, Checksums, checksums_of, crc_add, crc_text
from trainshed.buckets.dirfd import disk_errors
from trainshed.domain.objects import ObjectDraft, ObjectInfo
from trainshed.domain.work_budget import WorkBudget, unlimited
from trainshed.errors import DataLossError, InvalidArgumentError

LOG = logging.getLogger("trainshed.buckets")

COPY_PIECE = 64 << 20  #: that the kernel copies in one call


class StagedObject:
    """A file beside the buckets that becomes an object when it is complete. Invisible to readers. Not thread-safe."""

    def __init__(self, path: Path, fd: int, sums: Checksums | None) -> None:
        """`sums` has the checksums of the bytes already in the file. None: unknown."""
        self.path = path
        self.fd = fd
        self.size = os.fstat(fd).st_size if sums is None else sums.size
        self.sums = sums
        self.check_size: Callable[[int], None] | None = None  #: called before a write with the size after it
        self.known: tuple[str, str] | None = None  #: MD5 and CRC32C of the whole, if they came with the bytes

    def write(self, data: bytes) -> None:
        """Append bytes. Raises `DiskFullError` if the disk is full, and what `check_size` raises."""
        if self.check_size is not None:
            self.check_size(self.size + len(data))
        with disk_errors():
            view = memoryview(data)
            while view:
                view = view[os.pwrite(self.fd, view, self.size + len(data) - len(view)) :]
        self.size += len(data)
        self.known = None
        if self.sums is not None:
            self.sums.add(data)

    def seal(self, draft: ObjectDraft, budget: WorkBudget | None = None) -> tuple[str, str]:
        """The MD5 and CRC32C of the whole. Raises `InvalidArgumentError` if the sender announced others.

        Raises what `WorkBudget.check` raises while the file is read for them.
        """
        if self.known is None:
            sums = self.sums or checksums_of(self.fd, on_read=(budget or unlimited()).check)
            self.known = sums.md5, sums.crc32c
        _compare("md5Hash", draft.md5, self.known[0])
        _compare("crc32c", draft.crc32c, self.known[1])
        return self.known

    def discard(self) -> None:
        """Close and delete the file. Idempotent. Has no effect on a file that became an object."""
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


def _compare(field: str, expected: str, actual: str) -> None:
    if expected and expected != actual:
        raise InvalidArgumentError(
            f"The {field} of the request is {expected!r}, but the bytes received amount to {actual!r}. "
            f"Nothing was stored; send them again."
        )


class ObjectReader(ABC):
    """The bytes of an object as of its opening, regardless of later writes to its name."""

    def __init__(self, info: ObjectInfo) -> None:
        self.info = info
        self._crc = 0
        self._checked = 0  #: number of leading bytes that `_crc` covers

    @abstractmethod
    def _bytes(self, offset: int, size: int) -> bytes:
        """Read `size` bytes at `offset`, or fewer at the end."""

    @abstractmethod
    def _unchanged(self) -> bool:
        """Whether the object was not written since it was opened."""

    @abstractmethod
    def close(self) -> None:
        """Release the object. Idempotent."""

    def read(self, offset: int, size: int = PIECE) -> bytes:
        """Read bytes at an offset. Raises `DataLossError` if a complete sequential read has the wrong checksum."""
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

    def copy_to(self, staged: StagedObject, budget: WorkBudget | None = None) -> None:
        """Append the whole object. Raises what `WorkBudget.check` raises."""
        budget = budget or unlimited()
        for offset in range(0, self.info.size, PIECE):
            budget.check(PIECE)
            staged.write(self.read(offset))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class FileReader(ObjectReader):
    """A reader of an open file."""

    def __init__(self, fd: int, info: ObjectInfo) -> None:
        super().__init__(info)
        self._fd = fd

    def _bytes(self, offset: int, size: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def _unchanged(self) -> bool:
        return os.fstat(self._fd).st_mtime_ns // 1000 == self.info.generation

    def copy_to(self, staged: StagedObject, budget: WorkBudget | None = None) -> None:
        """Append the whole object. Its known checksums are kept if `staged` was empty."""
        budget = budget or unlimited()
        if staged.size or not self.info.crc32c:
            super().copy_to(staged, budget)
            return
        with disk_errors():
            while staged.size < self.info.size:
                remaining = min(self.info.size - staged.size, COPY_PIECE)
                budget.check(remaining)
                copied = os.copy_file_range(
                    self._fd, staged.fd, remaining, offset_src=staged.size, offset_dst=staged.size
                )
                if copied == 0:
                    raise DataLossError(
                        f"The file behind {self.info.bucket}/{self.info.name} was cut off while it was copied."
                    )
                staged.size += copied
        staged.sums = None
        staged.known = (self.info.md5, self.info.crc32c) if self._unchanged() else None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
