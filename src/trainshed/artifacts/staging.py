"""The packages of an attempt whose replicas run on other machines: copies in the attempt's folder, by content.

A replica may be started again days later, on a machine that has none of it. By then the object may have been replaced;
the copy was not.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path

from trainshed.errors import FailedPreconditionError, NotFoundError

FOLDER = "artifacts"  #: in the attempt's own
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PIECE = 1 << 20
#: models can reach their folders; a link there is not followed, and a FIFO in the place of a file does not stop us
SAFE_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK


def stage_package(attempt: Path, package: Package) -> Path:
    """Copy a package into the attempt's folder, unless it is there. It appears whole and unchanged, or not at all."""
    kept = attempt / FOLDER / package.sha256
    if kept.is_file():
        return kept
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = kept.with_name(f".{kept.name}-{os.getpid()}-{threading.get_ident()}")
    try:
        if _copy(package.path, draft) != package.sha256:
            raise FailedPreconditionError(
                f"The package {package.uri} was replaced while the job was being started. Submit the job again under a "
                f"new name."
            )
        draft.rename(kept)
    finally:
        draft.unlink(missing_ok=True)
    return kept


def _copy(source: Path, target: Path) -> str:
    """The digest of what was copied."""
    digest = hashlib.sha256()
    with source.open("rb") as file, target.open("wb") as copy:
        while piece := file.read(_PIECE):
            digest.update(piece)
            copy.write(piece)
        copy.flush()
        os.fsync(copy.fileno())
    return digest.hexdigest()


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
    """A copy of a package."""

    def __init__(self, attempt: Path, sha256: str) -> None:
        """The one with this content. `NotFoundError` if the attempt has none."""
        missing = NotFoundError(f"There is no package with the SHA-256 {sha256[:64]!r} here.")
        if not _SHA256.fullmatch(sha256):
            raise missing
        try:
            super().__init__(attempt / FOLDER / sha256)
        except FileNotFoundError:
            raise missing from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A file that the job's environment is made of."""

    uri: str  #: as the user wrote it, for the log
    path: Path
    sha256: str  #: of its content; `site` is named by it, so nothing else may be installed there
