"""Snapshots of versions' files: copied from a bucket once, named by content, immutable."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainshed.buckets.backend import BucketBackend
from trainshed.buckets.dirfd import disk_errors
from trainshed.buckets.names import components, split_uri
from trainshed.domain.objects import ListQuery, ObjectInfo
from trainshed.errors import DataLossError, FailedPreconditionError, NotFoundError
from trainshed.node.files import sync_folder

LOG = logging.getLogger("trainshed.control.deployments.model_files")

MAX_FILES = 1000  #: per version, as on AI Platform
_MAX_COPY_ATTEMPTS = 3  #: to copy files that change meanwhile
_DRAFT_PREFIX = "draft-"
#: readable by all: the state folder is closed, and containers that mount the files run as other users
_FOLDER_MODE, _FILE_MODE = 0o755, 0o444


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSnapshot:
    """The snapshot of a version's files."""

    digest: str  #: over all names and contents
    folder: Path
    size: int  #: bytes
    names: tuple[str, ...]  #: with `/` between folders, sorted


NO_FILES = ModelSnapshot(digest="", folder=Path(), size=0, names=())


class ModelFileStore:
    """Snapshots in `root/PROJECT/DIGEST/`, one per content and project. Thread-safe.

    `used` returns whether a version of a project has the files of a digest.
    """

    def __init__(self, root: Path, backend: BucketBackend, *, used: Callable[[str, str], bool]) -> None:
        self._root = root
        self._backend = backend
        self._used = used
        self._lock = threading.Lock()
        self._in_use: Counter[tuple[str, str]] = Counter()

    def folder(self, project: str, digest: str) -> Path:
        return self._root / project / digest

    @contextmanager
    def snapshot(self, project: str, uri: str, *, check: Callable[[], None]) -> Iterator[ModelSnapshot]:
        """Copy the objects below a gs:// URI. After the block, the snapshot stays only if a version uses it.

        Blocks. `check` is called repeatedly, and its exception ends the copy. Raises `FailedPreconditionError` or
        `NotFoundError` if nothing can be copied. Raises `DiskFullError` if the disk is full. A failed copy leaves
        nothing.
        """
        bucket, name = split_uri(uri)
        with disk_errors():
            snapshot = self._copy(project, bucket, name.rstrip("/"), check)
        try:
            yield snapshot
        finally:
            with self._lock:
                self._in_use[project, snapshot.digest] -= 1
            self.release(project, snapshot.digest)

    def release(self, project: str, digest: str, *, used: Callable[[str, str], bool] | None = None) -> None:
        """Remove a snapshot unless a version uses it or is being created from it. Idempotent.

        `used` replaces that of the store, for a version that is about to go.
        """
        with self._lock:
            if not digest or self._in_use[project, digest] > 0 or (used or self._used)(project, digest):
                return
            _remove(self.folder(project, digest))
            with contextlib.suppress(OSError):  # not empty, or missing
                (self._root / project).rmdir()

    def sweep(self) -> None:
        """Remove what interrupted copies left. Call it only before the first `snapshot`.

        A snapshot that no version has is logged and stays: its version may be missing only because the database is an
        older one. A new version of the same content uses it.
        """
        for folder in self._root.glob("*/*"):
            if folder.name.startswith(_DRAFT_PREFIX):
                _remove(folder)
            elif not self._used(folder.parent.name, folder.name):
                LOG.warning("files.unused folder=%s reason=%r", folder, "No version has this snapshot.")

    def _copy(self, project: str, bucket: str, name: str, check: Callable[[], None]) -> ModelSnapshot:
        draft = self._root / project / f"{_DRAFT_PREFIX}{secrets.token_hex(8)}"
        try:
            for attempts_left in reversed(range(_MAX_COPY_ATTEMPTS)):
                try:
                    return self._commit(project, draft, self._fill(draft, bucket, name, check))
                except _FilesChangedError:
                    _remove(draft)
                    if attempts_left == 0:
                        raise FailedPreconditionError(
                            f"The files in gs://{bucket}/{name} are being written to. Create the version when they "
                            f"are complete."
                        ) from None
            raise AssertionError
        finally:
            _remove(draft)

    def _fill(self, draft: Path, bucket: str, name: str, check: Callable[[], None]) -> dict[str, tuple[int, str]]:
        """Copy all files. Returns size and hash of each."""
        objects = self._list(bucket, name)
        self._reject_links(bucket, name)
        with self._lock:
            draft.mkdir(mode=0o700, parents=True)
        files = {}
        for info in objects:
            check()
            relative = info.name.removeprefix(f"{name}/" if name else "")
            files[relative] = self._copy_one(info, draft.joinpath(*components(relative)))
        before = [(info.name, info.generation, info.size) for info in objects]
        if before != [(info.name, info.generation, info.size) for info in self._list(bucket, name)]:
            raise _FilesChangedError
        for folder, _, _ in os.walk(draft):
            os.chmod(folder, _FOLDER_MODE)  # noqa: PTH101 - what os.walk gives
            sync_folder(folder)
        return files

    def _list(self, bucket: str, name: str) -> list[ObjectInfo]:
        prefix = f"{name}/" if name else ""
        page = self._backend.list(bucket, ListQuery(prefix=prefix, checksums=False, limit=MAX_FILES))
        files = [info for info in page.items if not info.name.endswith("/")]
        where = f"gs://{bucket}/{name}".rstrip("/")
        if page.next:
            raise FailedPreconditionError(
                f"There are more than {MAX_FILES:,} files in {where}. A version can't have more."
            )
        if not files:
            raise FailedPreconditionError(f"There are no files in {where}. Give the folder that holds the model.")
        return files

    def _copy_one(self, info: ObjectInfo, target: Path) -> tuple[int, str]:
        digest = hashlib.sha256()
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._backend.open(info.bucket, info.name) as reader, open(target, "xb") as copy:
                size = reader.info.size
                for offset in range(0, size, 1 << 20):
                    chunk = reader.read(offset)
                    digest.update(chunk)
                    copy.write(chunk)
                copy.flush()
                os.fchmod(copy.fileno(), _FILE_MODE)
                os.fsync(copy.fileno())
        except (NotFoundError, DataLossError) as exc:
            raise _FilesChangedError from exc
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as exc:
            raise FailedPreconditionError(
                f"gs://{info.bucket}/{info.name}, or a part of it, is both a file and a folder. Give a folder "
                f"with plain files."
            ) from exc
        return size, digest.hexdigest()

    def _reject_links(self, bucket: str, name: str) -> None:
        """Reject links and other special files: they are no objects, and a model must not lack a file silently."""
        try:
            self._backend.check_plain(bucket, name)
        except NotFoundError as exc:
            raise _FilesChangedError from exc

    def _commit(self, project: str, draft: Path, files: dict[str, tuple[int, str]]) -> ModelSnapshot:
        """Name the draft by its content, or drop it if that snapshot exists."""
        names = tuple(sorted(files))
        total = hashlib.sha256()
        for name in names:
            size, digest = files[name]
            total.update(f"{len(name.encode())} {name} {size} {digest}\n".encode())
        digest = total.hexdigest()[:32]
        folder = self.folder(project, digest)
        with self._lock:
            if not folder.is_dir():
                draft.rename(folder)
                sync_folder(folder.parent)
            self._in_use[project, digest] += 1
        return ModelSnapshot(digest=digest, folder=folder, size=sum(size for size, _ in files.values()), names=names)


class _FilesChangedError(Exception):
    """The files changed after they were listed."""


def _remove(folder: Path) -> None:
    """Remove a folder. A failure is logged, and the next server tries again."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as exc:
        LOG.warning("files.left folder=%s reason=%s", folder, exc)
