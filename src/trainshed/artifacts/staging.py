"""Stages the packages of an attempt for remote nodes: copies in the attempt's folder, named by digest.

A replica may be restarted days later, on a node that has none of them. By then the object may have been
replaced; the copy is unchanged.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from trainshed.errors import FailedPreconditionError, NotFoundError
from trainshed.node.files import atomic_file

STAGING_FOLDER = "artifacts"  #: in the attempt's folder
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 1 << 20
#: Models can write to these folders: a link there is not followed, and a FIFO in place of a file does not block.
SAFE_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK


def stage_package(attempt: Path, package: Package) -> Path:
    """Copy a package into the attempt's folder. Idempotent. The copy appears complete and verified, or not at all."""
    staged = attempt / STAGING_FOLDER / package.sha256
    if staged.is_file():
        return staged
    staged.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with package.path.open("rb") as file, atomic_file(staged, durable=True) as copy:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            copy.write(chunk)
        if digest.hexdigest() != package.sha256:
            raise FailedPreconditionError(
                f"The package {package.uri} was replaced while the job was being started. Submit the job again under a "
                f"new name."
            )
    return staged


class OpenFile:
    """A file, open for reading. The caller closes it."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.size = os.fstat(self._fd).st_size

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def close(self) -> None:
        os.close(self._fd)


class StagedPackage(OpenFile):
    """A staged copy of a package."""

    def __init__(self, attempt: Path, sha256: str) -> None:
        """Open the package with this digest. Raises `NotFoundError` if the attempt has none."""
        missing = NotFoundError(f"There is no package with the SHA-256 {sha256[:64]!r} here.")
        if not _SHA256.fullmatch(sha256):
            raise missing
        try:
            super().__init__(attempt / STAGING_FOLDER / sha256)
        except FileNotFoundError:
            raise missing from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package file of a job or version."""

    uri: str  #: as the user wrote it, for the log
    path: Path
    sha256: str  #: `site` is named by it, so nothing else may be installed there
