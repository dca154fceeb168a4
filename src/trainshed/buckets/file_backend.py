"""Buckets as folders and objects as files. What is acknowledged is on the disk; what is half-written is not seen."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from trainshed.buckets import xattrs
from trainshed.buckets.checksums import PIECE, Checksums, checksums_of
from trainshed.buckets.dirfd import (
    ABSENT,
    clear_empty,
    disk_errors,
    make_directories,
    open_directory,
    open_file,
    open_folder,
    prune,
    remove_tree,
)
from trainshed.buckets.listing import list_page
from trainshed.buckets.names import bucket_name, components, is_folder
from trainshed.buckets.staging import FileReader, ObjectReader, StagedObject
from trainshed.domain.objects import (
    ListQuery,
    ObjectDraft,
    ObjectInfo,
    ObjectMetadata,
    ObjectPage,
    Preconditions,
    bucket_not_found,
    object_not_found,
)
from trainshed.domain.times import now_us
from trainshed.errors import ConflictError, FailedPreconditionError, InvalidArgumentError, UnavailableError

LOG = logging.getLogger("trainshed.buckets")

STRIPES = 64
SETTLED_US = 1_000_000  #: a file unchanged for this long is taken to stay so when its checksums are noted
LISTED_BYTES = 256 << 20  #: how much of files that programs wrote a listing reads for their checksums

Clock = Callable[[], int]


class FileBackend:
    """All objects below one folder. Threads may share it; one process at a time may write through it.

    Programs may read and write the files themselves meanwhile. Nothing here follows a symbolic link.
    """

    def __init__(self, root: Path, uploads: Path, *, clock: Clock = now_us) -> None:
        """`uploads` must be on the same file system as `root`. Both are made if they aren't there."""
        self._root = root
        self._uploads = uploads
        self._clock = clock
        self._stripes = tuple(threading.Lock() for _ in range(STRIPES))
        self._folders = threading.Lock()  #: held to remove a folder, and to mark one
        for path in (root, uploads):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def make_bucket(self, bucket: str) -> None:
        """Make the folder, empty and durably. What a bucket of that name may have left is taken away."""
        with disk_errors():
            self._take_away(bucket_name(bucket))
            with make_directories(self._root, (bucket,)):
                pass

    def remove_bucket(self, bucket: str, *, forget: Callable[[], None]) -> None:
        """`forget` an empty bucket and take it away. `ConflictError` if it holds objects, with all left as it was."""
        with ExitStack() as stack:
            for lock in self._stripes:  # nothing is written to any bucket meanwhile
                stack.enter_context(lock)
            if self.list(bucket, ListQuery(limit=1, checksums=False)).items:
                raise ConflictError("The bucket you tried to delete is not empty.")
            forget()
            self._take_away(bucket)

    def _take_away(self, bucket: str) -> None:
        away = self._uploads / f"gone-{secrets.token_hex(8)}"
        try:
            (self._root / bucket).rename(away)
        except FileNotFoundError:
            return
        self._remove(away)  # what may be left goes at the next start

    def info(self, bucket: str, name: str, *, checksums: bool = True) -> ObjectInfo:
        """The object as it is now. Reads one that a program wrote, once, for its checksums."""
        if is_folder(name):
            return self._mark_of(bucket, name) or _raise(object_not_found(bucket, name))
        with self.open(bucket, name, checksums=checksums) as reader:
            return reader.info

    def open(self, bucket: str, name: str, *, checksums: bool = False) -> ObjectReader:
        """The object's bytes; close it. A folder's mark has none."""
        if is_folder(name):
            return FileReader(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), self.info(bucket, name))
        fd = self._open_file(bucket, name)
        try:
            with disk_errors():
                info = self._told(fd, bucket, name)
                if checksums and not info.crc32c:
                    info = self._checksummed(fd, info)
            return FileReader(fd, info)
        except BaseException:
            os.close(fd)
            raise

    def list(self, bucket: str, query: ListQuery) -> ObjectPage:
        """A page of the bucket's objects. Files that programs wrote get their checksums as far as that is quick."""
        with disk_errors():
            page = list_page(self._root, bucket, query)
        if not query.checksums or all(item.crc32c for item in page.items):
            return page
        left = LISTED_BYTES
        items = []
        for item in page.items:
            if not item.crc32c and item.size <= left:
                left -= item.size
                with suppress(OSError):
                    item = self._find(bucket, item.name, checksums=True) or item
            items.append(item)
        return replace(page, items=tuple(items))

    def stage(self) -> StagedObject:
        """A new empty file for an object to come. Give it to `commit`, or discard it."""
        path = self._uploads / f"put-{secrets.token_hex(12)}"
        with disk_errors():
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        return StagedObject(path, fd, Checksums())

    def commit(self, staged: StagedObject, draft: ObjectDraft) -> ObjectInfo:
        """Make the staged bytes the object, durably and all at once, if the draft's conditions and checksums hold.

        On any error the object is as it was, and the staged file is still the caller's to discard.
        """
        parts = components(draft.name)
        md5, crc32c = staged.seal(draft)
        with disk_errors():
            if staged.size > PIECE:
                os.fdatasync(staged.fd)  # the long part, before others have to wait
        with disk_errors(), self._writing(draft.bucket, draft.name):
            if is_folder(draft.name):
                return self._mark(staged, draft, parts, (md5, crc32c))
            found = self._find(draft.bucket, draft.name)
            draft.conditions.check_write(found)
            info = self._new(draft, found, staged.size, (md5, crc32c))
            os.setxattr(staged.fd, xattrs.ATTRIBUTE, xattrs.encode(info))
            os.utime(staged.fd, ns=(info.generation * 1000, info.generation * 1000))
            os.fsync(staged.fd)
            self._place(staged.path, draft.bucket, parts)
        return info

    def delete(self, bucket: str, name: str, conditions: Preconditions, *, generation: int | None = None) -> None:
        """Remove the object, durably, and the folders that it leaves empty.

        `NotFoundError` if it isn't this generation.
        """
        parts = components(name)
        with disk_errors(), self._writing(bucket, name):
            found = self._find(bucket, name)
            if found is None or generation not in (None, found.generation):
                raise object_not_found(bucket, name)
            conditions.check_write(found)
            if is_folder(name):
                with open_directory(self._root, (bucket, *parts)) as folder:
                    os.removexattr(folder, xattrs.ATTRIBUTE)
                    os.fsync(folder)
            else:
                with open_directory(self._root, (bucket, *parts[:-1])) as folder:
                    os.unlink(parts[-1], dir_fd=folder)
                    os.fsync(folder)
                parts = parts[:-1]
            with self._folders:
                prune(self._root, (bucket, *parts), keep=1)

    def patch(self, bucket: str, name: str, change: Callable[[ObjectInfo], ObjectMetadata]) -> ObjectInfo:
        """Write other traits to an object, durably. `change` may look at it and refuse."""
        components(name)
        with disk_errors(), self._writing(bucket, name):
            fd = self._open_folder(bucket, name) if is_folder(name) else self._open_file(bucket, name)
            try:
                info = self._mark_of(bucket, name) if is_folder(name) else self._told(fd, bucket, name)
                if info is None:
                    raise object_not_found(bucket, name)
                traits = change(info)
                now = max(self._clock(), info.updated_us)
                info = replace(info, traits=traits, metageneration=info.metageneration + 1, updated_us=now)
                os.setxattr(fd, xattrs.ATTRIBUTE, xattrs.encode(info))
                os.fsync(fd)
            finally:
                os.close(fd)
        return info if info.crc32c else self.info(bucket, name)

    def check_plain(self, bucket: str, name: str) -> None:
        """`FailedPreconditionError` if a folder holds what is neither a file nor a folder, and so is no object either.

        `NotFoundError` if the folder is not there.
        """
        try:
            with open_directory(self._root, (bucket, *(components(name) if name else ()))) as folder:
                for path, folders, files, fd in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
                    for entry in (*folders, *files):
                        mode = os.stat(entry, dir_fd=fd, follow_symlinks=False).st_mode
                        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                            where = "/".join(filter(None, (bucket, name, path.removeprefix(".").lstrip("/"), entry)))
                            raise FailedPreconditionError(
                                f"gs://{where} is a link, or no file at all. Links are not followed: put the file "
                                f"itself there."
                            )
        except OSError as exc:
            if exc.errno not in ABSENT:
                raise
            raise object_not_found(bucket, name) from exc

    def sweep(self) -> None:
        """Remove what interrupted writes left. Only before the first write: staged files are taken for orphans.

        What can't be removed is logged and stays.
        """
        for path in self._uploads.iterdir():
            if path.name.startswith(("put-", "gone-")):
                self._remove(path)

    def _remove(self, path: Path) -> None:
        try:
            if path.is_dir() and not path.is_symlink():
                with open_directory(path.parent, ()) as folder:
                    remove_tree(path.name, folder=folder)
            else:
                path.unlink()
        except (OSError, UnavailableError) as exc:
            LOG.warning("buckets.left path=%s reason=%r", path, str(exc))

    @contextmanager
    def _writing(self, bucket: str, name: str) -> Iterator[None]:
        """One writer of an object at a time."""
        with self._stripes[hash((bucket, name)) % STRIPES]:
            yield

    def _new(self, draft: ObjectDraft, found: ObjectInfo | None, size: int, sums: tuple[str, str]) -> ObjectInfo:
        old = found.generation if found else 0
        generation = max(self._clock(), old + 1 if old < xattrs.LATEST_US else 0)
        traits = draft.traits
        if not traits.content_type:
            traits = replace(traits, content_type=xattrs.guess_type(draft.name))
        return ObjectInfo(
            bucket=draft.bucket,
            name=draft.name,
            size=size,
            generation=generation,
            metageneration=1,
            created_us=generation,
            updated_us=generation,
            md5=sums[0],
            crc32c=sums[1],
            components=draft.components,
            upload=draft.upload,
            traits=traits,
        )

    def _place(self, staged: Path, bucket: str, parts: tuple[str, ...]) -> None:
        for _ in range(100):  # whoever deletes the last object of a folder removes the folder
            try:
                with self._made(bucket, parts[:-1]) as folder:
                    self._rename(staged, parts, folder)
                    os.fsync(folder)
                return
            except FileNotFoundError:
                if not staged.exists():
                    raise
        raise UnavailableError("The folder of this object is deleted as fast as it is made. Try again.")

    def _rename(self, staged: Path, parts: tuple[str, ...], folder: int) -> None:
        try:
            os.rename(staged, parts[-1], dst_dir_fd=folder)
        except IsADirectoryError:
            with self._folders:
                cleared = clear_empty(parts[-1], folder=folder)
            if not cleared:
                name = "/".join(parts)
                raise FailedPreconditionError(
                    f"There are objects below {name}/, so {name} can't be an object itself: objects are files here, "
                    f"and a file can't have the name of a folder. Delete those first, or choose another name."
                ) from None
            os.rename(staged, parts[-1], dst_dir_fd=folder)

    def _mark(
        self, staged: StagedObject, draft: ObjectDraft, parts: tuple[str, ...], sums: tuple[str, str]
    ) -> ObjectInfo:
        if staged.size:
            raise InvalidArgumentError(
                f"{draft.name} ends in a slash and so is a folder here, which can hold no bytes of its own."
            )
        found = self._mark_of(draft.bucket, draft.name)
        draft.conditions.check_write(found)
        info = self._new(draft, found, 0, sums)
        with self._folders, self._made(draft.bucket, parts) as folder:
            os.setxattr(folder, xattrs.ATTRIBUTE, xattrs.encode(info))
            os.fsync(folder)
        return info

    @contextmanager
    def _made(self, bucket: str, parts: tuple[str, ...]) -> Iterator[int]:
        with open_directory(self._root, ()) as root:
            try:
                os.close(open_folder(bucket_name(bucket), folder=root))
            except FileNotFoundError:
                raise bucket_not_found(bucket) from None
        with make_directories(self._root, (bucket, *parts)) as folder:
            yield folder

    def _find(self, bucket: str, name: str, *, checksums: bool = False) -> ObjectInfo | None:
        if is_folder(name):
            return self._mark_of(bucket, name)
        try:
            fd = _open_beneath(self._root, bucket, name)
        except OSError as exc:
            if exc.errno in ABSENT:
                return None
            raise
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            info = self._told(fd, bucket, name)
            return self._checksummed(fd, info) if checksums and not info.crc32c else info
        finally:
            os.close(fd)

    def _open_file(self, bucket: str, name: str) -> int:
        try:
            with disk_errors():
                fd = _open_beneath(self._root, bucket, name)
        except OSError as exc:
            if exc.errno in ABSENT:
                raise object_not_found(bucket, name) from None
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise object_not_found(bucket, name)
        return fd

    def _open_folder(self, bucket: str, name: str) -> int:
        try:
            with open_directory(self._root, (bucket, *components(name))) as folder:
                return os.dup(folder)
        except OSError as exc:
            if exc.errno in ABSENT:
                raise object_not_found(bucket, name) from None
            raise

    def _mark_of(self, bucket: str, name: str) -> ObjectInfo | None:
        try:
            with open_directory(self._root, (bucket_name(bucket), *components(name))) as folder:
                return xattrs.read_mark(folder, bucket=bucket, name=name)
        except OSError as exc:
            if exc.errno in ABSENT:
                return None
            raise

    def _told(self, fd: int, bucket: str, name: str) -> ObjectInfo:
        return xattrs.read(fd, os.fstat(fd), bucket=bucket, name=name)

    def _checksummed(self, fd: int, info: ObjectInfo) -> ObjectInfo:
        """The same with checksums, which are noted on the file unless it is still being written to."""
        sums = checksums_of(fd, size=info.size)
        summed = replace(info, md5=sums.md5, crc32c=sums.crc32c)
        if not 0 <= info.generation < self._clock() - SETTLED_US:
            return summed
        with self._writing(info.bucket, info.name):
            if self._told(fd, info.bucket, info.name) != info:
                return summed  # it was changed while it was read, and what was said of it then counts
            try:
                os.setxattr(fd, xattrs.ATTRIBUTE, xattrs.encode(summed))
            except OSError as exc:
                if exc.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM):
                    raise  # of these, it will be read again next time
        return summed


def _open_beneath(root: Path, bucket: str, name: str) -> int:
    parts = components(name)
    with open_directory(root, (bucket_name(bucket), *parts[:-1])) as folder:
        return open_file(parts[-1], folder=folder)


def _raise(exc: Exception) -> ObjectInfo:
    raise exc
