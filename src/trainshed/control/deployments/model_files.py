"""The files of versions: copied out of a bucket once, named by their content, and never changed again."""

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

LOG = logging.getLogger("trainshed.control.deployments.model_files")

MAX_FILES = 1000  #: of one version, as on AI Platform
_TRIES = 3  #: at copying files that are written to meanwhile
_DRAFT = "draft-"
#: for whoever can get there: the state folder is closed, and containers that see the files have users of their own
_FOLDER, _FILE = 0o755, 0o444


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSnapshot:
    """The copied files of a version."""

    digest: str  #: of all names and contents
    folder: Path
    size: int  #: bytes
    names: tuple[str, ...]  #: with `/` between folders, sorted


NO_FILES = ModelSnapshot(digest="", folder=Path(), size=0, names=())


class ModelFileStore:
    """`root/PROJECT/DIGEST/`: one folder for each content in each project. Safe to use from many threads.

    `used` tells whether a version of a project has the files of a digest.
    """

    def __init__(self, root: Path, tree: BucketBackend, *, used: Callable[[str, str], bool]) -> None:
        self._root = root
        self._tree = tree
        self._used = used
        self._guard = threading.Lock()
        self._held: Counter[tuple[str, str]] = Counter()

    def folder(self, project: str, digest: str) -> Path:
        return self._root / project / digest

    @contextmanager
    def snapshot(self, project: str, uri: str, *, check: Callable[[], None]) -> Iterator[ModelSnapshot]:
        """Copy what lies below a gs:// address. At the end of the block it stays only if a version has it by then.

        Blocks; `check` is called now and then, and what it raises ends it. `FailedPreconditionError` or
        `NotFoundError` if there
        is nothing that could be copied, `DiskFullError` if the disk is full; nothing is left then.
        """
        bucket, name = split_uri(uri)
        with disk_errors():
            pinned = self._copy(project, bucket, name.rstrip("/"), check)
        try:
            yield pinned
        finally:
            with self._guard:
                self._held[project, pinned.digest] -= 1
            self.release(project, pinned.digest)

    def release(self, project: str, digest: str) -> None:
        """Remove the files unless a version has them, or is about to."""
        with self._guard:
            if not digest or self._held[project, digest] > 0 or self._used(project, digest):
                return
            _remove(self.folder(project, digest))
            with contextlib.suppress(OSError):  # others are there, or none ever was
                (self._root / project).rmdir()

    def sweep(self) -> None:
        """Remove what creations left that did not come to an end. Only before the first one."""
        for folder in self._root.glob("*/*"):
            if folder.name.startswith(_DRAFT) or not self._used(folder.parent.name, folder.name):
                _remove(folder)

    def _copy(self, project: str, bucket: str, name: str, check: Callable[[], None]) -> ModelSnapshot:
        draft = self._root / project / f"{_DRAFT}{secrets.token_hex(8)}"
        try:
            for left in reversed(range(_TRIES)):
                try:
                    return self._settle(project, draft, self._fill(draft, bucket, name, check))
                except _FilesChangedError:
                    _remove(draft)
                    if left == 0:
                        raise FailedPreconditionError(
                            f"The files in gs://{bucket}/{name} are being written to. Create the version when they "
                            f"are complete."
                        ) from None
            raise AssertionError
        finally:
            _remove(draft)

    def _fill(self, draft: Path, bucket: str, name: str, check: Callable[[], None]) -> dict[str, tuple[int, str]]:
        """Copy everything; for each file its size and hash."""
        found = self._list(bucket, name)
        self._refuse_links(bucket, name)
        with self._guard:
            draft.mkdir(mode=0o700, parents=True)
        copied = {}
        for info in found:
            check()
            relative = info.name.removeprefix(f"{name}/" if name else "")
            copied[relative] = self._copy_one(info, draft.joinpath(*components(relative)))
        before = [(info.name, info.generation, info.size) for info in found]
        if before != [(info.name, info.generation, info.size) for info in self._list(bucket, name)]:
            raise _FilesChangedError
        for folder, _, _ in os.walk(draft):
            os.chmod(folder, _FOLDER)  # noqa: PTH101 - what os.walk gives
            _sync(Path(folder))
        return copied

    def _list(self, bucket: str, name: str) -> list[ObjectInfo]:
        prefix = f"{name}/" if name else ""
        page = self._tree.list(bucket, ListQuery(prefix=prefix, checksums=False, limit=MAX_FILES))
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
            with self._tree.open(info.bucket, info.name) as reader, open(target, "xb") as copy:
                size = reader.info.size
                for offset in range(0, size, 1 << 20):
                    piece = reader.read(offset)
                    digest.update(piece)
                    copy.write(piece)
                copy.flush()
                os.fchmod(copy.fileno(), _FILE)
                os.fsync(copy.fileno())
        except (NotFoundError, DataLossError) as exc:
            raise _FilesChangedError from exc
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as exc:
            raise FailedPreconditionError(
                f"gs://{info.bucket}/{info.name}, or a part of it, is both a file and a folder. Give a folder "
                f"with plain files."
            ) from exc
        return size, digest.hexdigest()

    def _refuse_links(self, bucket: str, name: str) -> None:
        """What is no plain file is no object either. A model that lacks a file must not come out of that."""
        try:
            self._tree.check_plain(bucket, name)
        except NotFoundError as exc:
            raise _FilesChangedError from exc

    def _settle(self, project: str, draft: Path, copied: dict[str, tuple[int, str]]) -> ModelSnapshot:
        """Give the draft the name of its content, or drop it for a folder that has the same."""
        names = tuple(sorted(copied))
        total = hashlib.sha256()
        for name in names:
            size, digest = copied[name]
            total.update(f"{len(name.encode())} {name} {size} {digest}\n".encode())
        digest = total.hexdigest()[:32]
        folder = self.folder(project, digest)
        with self._guard:
            if not folder.is_dir():
                draft.rename(folder)
                _sync(folder.parent)
            self._held[project, digest] += 1
        return ModelSnapshot(digest=digest, folder=folder, size=sum(size for size, _ in copied.values()), names=names)


class _FilesChangedError(Exception):
    """The files are not those that were listed."""


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove(folder: Path) -> None:
    """What can't be removed is logged, and tried again by the next server."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as exc:
        LOG.warning("files.left folder=%s reason=%s", folder, exc)
