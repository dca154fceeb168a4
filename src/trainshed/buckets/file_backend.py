"""Buckets as folders and objects as files. Acknowledged writes are durable; partial writes are invisible."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from trainshed.buckets import xattrs
from trainshed.buckets.background_checksums import BackgroundChecksums, Sums
from trainshed.buckets.checksums import PIECE, Checksums, checksums_of
from trainshed.buckets.dirfd import (
    clear_empty,
    disk_errors,
    make_directories,
    open_directory,
    open_folder,
    prune,
    remove_tree,
)
from trainshed.buckets.empty_buckets import clear_empty_folders, refuse_objects
from trainshed.buckets.listing import list_page
from trainshed.buckets.names import bucket_name, components, is_folder
from trainshed.buckets.noncurrent import NONCURRENT_FOLDER, NoncurrentVersions
from trainshed.buckets.object_files import (
    check_plain,
    find_object,
    open_found,
    open_mark,
    open_with_info,
    read_info,
    read_mark,
)
from trainshed.buckets.staging import FileReader, ObjectReader, StagedObject
from trainshed.buckets.version_listing import VERSION_SEPARATOR, list_versions
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
from trainshed.domain.storage.rules import BucketRules
from trainshed.domain.times import now_us
from trainshed.domain.work_budget import WorkBudget, unlimited
from trainshed.errors import (
    ConflictError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from trainshed.node.crashpoints import crashpoint

LOG = logging.getLogger("trainshed.buckets")

STRIPES = 64
STABLE_AFTER_US = 1_000_000  #: files unchanged for this long get their checksums stored
MAX_INLINE_CHECKSUM_BYTES = 64 << 20  #: of files without checksums that one request reads; others get them later

Clock = Callable[[], int]


class FileBackend:
    """All objects below one folder. Thread-safe; only one process may write through it.

    Other programs may read and write the files directly. Symbolic links are never followed.
    """

    def __init__(
        self, root: Path, uploads: Path, *, clock: Clock = now_us, rules: Callable[[str], BucketRules] | None = None
    ) -> None:
        """`uploads` must be on the same file system as `root`. Creates both if necessary.

        `rules` returns those of a bucket. Noncurrent versions are in `noncurrent` beside `root`.
        """
        self._root = root
        self._uploads = uploads
        self._clock = clock
        self._rules = rules or (lambda bucket: BucketRules())
        self._noncurrent = NoncurrentVersions(root.with_name(NONCURRENT_FOLDER))
        self._stripes = tuple(threading.Lock() for _ in range(STRIPES))
        self._folder_lock = threading.Lock()  #: held to remove a folder and to mark one
        self._background = BackgroundChecksums(partial(open_with_info, root), self._store_checksums)
        for path in (root, uploads):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def cloud_of(self, bucket: str) -> str:
        """Empty: no bucket is in a cloud here."""
        return ""

    def make_bucket(self, bucket: str) -> None:
        """Create the folder durably. One that is there without an object becomes the bucket's; nothing is removed.

        Raises `ConflictError` if it holds objects: their bucket's row is lost, and with it the project they belong to.
        """
        with disk_errors():
            with make_directories(self._root, (bucket_name(bucket),)):
                pass
            if self.list(bucket, ListQuery(limit=1, checksums=False, versions=True)).items:
                raise ConflictError(
                    f"The server has no bucket {bucket}, but objects of an earlier one of this name, which are kept. "
                    f"Their project is unknown, as after the return to an older database. Choose another name, or ask "
                    f"the operator to move the folder {bucket} out of `buckets` in the state folder first."
                )

    def clear_bucket(self, bucket: str, budget: WorkBudget | None = None) -> None:
        """Remove the empty folders of a bucket without objects. Raises `ConflictError` if it has objects."""
        with disk_errors():
            clear_empty_folders(self._root, bucket, budget or unlimited(), lock=self._folder_lock)

    def remove_bucket(self, bucket: str, *, forget: Callable[[], None], budget: WorkBudget | None = None) -> None:
        """Call `forget`, then remove an empty bucket. Raises `ConflictError`, without any change, if it has objects."""
        trash = self._uploads / f"gone-{secrets.token_hex(8)}"
        with ExitStack() as stack:
            for lock in self._stripes:  # blocks all writes to all buckets
                stack.enter_context(lock)
            refuse_objects(self._root, bucket, budget or unlimited())
            if next(self._noncurrent.walk(bucket, ""), None) is not None:
                raise ConflictError("The bucket you tried to delete is not empty: it has noncurrent versions.")
            crashpoint("bucket.delete.before")
            forget()
            crashpoint("bucket.delete.forgotten")
            try:
                (self._root / bucket).rename(trash)
            except FileNotFoundError:
                return
            crashpoint("bucket.delete.moved")
        self._remove(trash)  # a remainder is removed at the next start

    def info(self, bucket: str, name: str, *, checksums: bool = True, generation: int | None = None) -> ObjectInfo:
        """The object as it is now. A file that another program wrote gets checksums as `with_checksums` says."""
        if is_folder(name):
            info = read_mark(self._root, bucket, name)
            if info is None or generation not in (None, info.generation):
                raise object_not_found(bucket, name, generation)
            return info
        with self.open(bucket, name, generation=generation) as reader:
            return self.with_checksums([reader.info])[0] if checksums else reader.info

    def open(self, bucket: str, name: str, *, generation: int | None = None) -> ObjectReader:
        """Open the object's bytes. The caller closes the reader. A folder's mark is empty."""
        if is_folder(name):
            info = self.info(bucket, name, generation=generation)
            return FileReader(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), info)
        fd, info = self._open_generation(bucket, name, generation)
        return FileReader(fd, info)

    def _open_generation(self, bucket: str, name: str, generation: int | None) -> tuple[int, ObjectInfo]:
        if generation is None:
            return open_with_info(self._root, bucket, name)
        with suppress(NotFoundError):
            fd, info = open_with_info(self._root, bucket, name)
            if info.generation == generation:
                return fd, info
            os.close(fd)
        version = self._noncurrent.find(bucket, name, generation)
        if version is not None:
            with suppress(FileNotFoundError), disk_errors():
                return self._noncurrent.open(version, bucket=bucket, name=name)
        raise object_not_found(bucket, name, generation)

    def list(self, bucket: str, query: ListQuery, budget: WorkBudget | None = None) -> ObjectPage:
        """One page of the bucket's objects. `with_checksums` adds those of files that other programs wrote."""
        with disk_errors():
            if not query.versions:
                return list_page(self._root, bucket, query, budget)
            start = max(query.start, query.after.partition(VERSION_SEPARATOR)[0])
            noncurrent = self._noncurrent.walk(bucket, query.prefix, start=start)
            return list_versions(lambda live: list_page(self._root, bucket, live, budget), noncurrent, query, budget)

    def lacks_checksums(self, info: ObjectInfo) -> bool:
        """Whether `with_checksums` may add some."""
        return not info.crc32c and not is_folder(info.name) and not info.deleted_us

    def with_checksums(self, items: Sequence[ObjectInfo], budget: WorkBudget | None = None) -> tuple[ObjectInfo, ...]:
        """The objects with the checksums of files that other programs wrote.

        Small files are read now, within a limit for all of them. The rest is read in the background, and has none
        until then.
        """
        budget = budget or unlimited()
        remaining = MAX_INLINE_CHECKSUM_BYTES
        filled = []
        for item in items:
            if self.lacks_checksums(item):
                if item.size <= remaining and not budget.exhausted:
                    remaining -= item.size
                    with suppress(OSError):
                        item = self._find_with_checksums(item, budget) or item
                elif (sums := self._background.request(item)) is not None:
                    item = replace(item, md5=sums[0], crc32c=sums[1])
            filled.append(item)
        return tuple(filled)

    def stage(self) -> StagedObject:
        """A new empty file for an upload. The caller passes it to `commit` or discards it."""
        path = self._uploads / f"put-{secrets.token_hex(12)}"
        with disk_errors():
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        return StagedObject(path, fd, Checksums())

    def commit(self, staged: StagedObject, draft: ObjectDraft, budget: WorkBudget | None = None) -> ObjectInfo:
        """Turn the staged bytes into the object, durably and atomically, if its preconditions and checksums hold.

        On any error the object is unchanged, and the caller still owns the staged file.
        """
        parts = components(draft.name)
        md5, crc32c = staged.seal(draft, budget)
        with disk_errors():
            crashpoint("object.put.staged")
            if staged.size > PIECE:
                os.fdatasync(staged.fd)  # the slow part, outside of the lock
        with disk_errors(), self._write_lock(draft.bucket, draft.name):
            if is_folder(draft.name):
                return self._write_mark(staged, draft, parts, (md5, crc32c))
            current = find_object(self._root, draft.bucket, draft.name)
            draft.conditions.check_write(current)
            rules = self._checked_rules(draft.bucket, current)
            info = self._new_info(draft, current, staged.size, (md5, crc32c), rules)
            os.setxattr(staged.fd, xattrs.ATTRIBUTE, xattrs.encode(info))
            os.utime(staged.fd, ns=(info.generation * 1000, info.generation * 1000))
            os.fsync(staged.fd)
            crashpoint("object.put.synced")
            if current is not None and rules.versioned:
                with open_directory(self._root, (draft.bucket, *parts[:-1])) as folder:
                    self._noncurrent.keep(current, folder=folder, deleted_us=info.generation)
            self._move_into_place(staged.path, draft.bucket, parts)
            crashpoint("object.put.done")
        return info

    def delete(self, bucket: str, name: str, conditions: Preconditions, *, generation: int | None = None) -> None:
        """Delete the object durably, with the folders that become empty. A version of a generation goes for ever.

        Raises `NotFoundError` if there is none, and `PermissionDeniedError` if a hold or its retention protects it.
        """
        parts = components(name)
        with disk_errors(), self._write_lock(bucket, name):
            current = find_object(self._root, bucket, name)
            if current is None or generation not in (None, current.generation):
                self._delete_noncurrent(bucket, name, conditions, generation)
                return
            conditions.check_write(current)
            rules = self._rules(bucket)
            keeps = rules.versioned and generation is None and not is_folder(name)
            (rules.check_replacement if keeps else rules.check_removal)(current, self._clock())
            if not keeps and (left := self._noncurrent.find(bucket, name, current.generation)) is not None:
                self._noncurrent.remove(left, bucket=bucket, name=name)  # of a write that was interrupted
            if is_folder(name):
                with open_directory(self._root, (bucket, *parts)) as folder:
                    os.removexattr(folder, xattrs.ATTRIBUTE)
                    os.fsync(folder)
            else:
                with open_directory(self._root, (bucket, *parts[:-1])) as folder:
                    crashpoint("object.delete.before")
                    if keeps:
                        deleted_us = max(self._clock(), current.generation)
                        self._noncurrent.keep(current, folder=folder, deleted_us=deleted_us)
                    os.unlink(parts[-1], dir_fd=folder)
                    crashpoint("object.delete.unlinked")
                    os.fsync(folder)
                crashpoint("object.delete.synced")
                parts = parts[:-1]
            with self._folder_lock:
                prune(self._root, (bucket, *parts), keep=1)

    def _delete_noncurrent(self, bucket: str, name: str, conditions: Preconditions, generation: int | None) -> None:
        version = self._noncurrent.find(bucket, name, generation) if generation and not is_folder(name) else None
        if version is None:
            raise object_not_found(bucket, name, generation)
        fd, info = self._noncurrent.open(version, bucket=bucket, name=name)
        os.close(fd)
        conditions.check_write(info)
        self._rules(bucket).check_removal(info, self._clock())
        self._noncurrent.remove(version, bucket=bucket, name=name)

    def patch(
        self,
        bucket: str,
        name: str,
        change: Callable[[ObjectInfo], ObjectMetadata],
        *,
        generation: int | None = None,
    ) -> ObjectInfo:
        """Write new metadata to an object, durably. `change` gets the object and may raise."""
        components(name)
        with disk_errors(), self._write_lock(bucket, name):
            if is_folder(name):
                info, fd = self.info(bucket, name, generation=generation), open_mark(self._root, bucket, name)
            else:
                fd, info = self._open_generation(bucket, name, generation)
            try:
                traits = change(info)
                now = max(self._clock(), info.updated_us)
                info = replace(info, traits=traits, metageneration=info.metageneration + 1, updated_us=now)
                crashpoint("object.patch.before")
                os.setxattr(fd, xattrs.ATTRIBUTE, xattrs.encode(info))
                crashpoint("object.patch.written")
                os.fsync(fd)
            finally:
                os.close(fd)
        return info

    def check_plain(self, bucket: str, name: str) -> None:
        """Raises `FailedPreconditionError` if a folder has an entry that is neither a file nor a folder.

        Raises `NotFoundError` if the folder does not exist.
        """
        check_plain(self._root, bucket, name)

    def sweep(self) -> None:
        """Remove what interrupted writes left.

        Call it only before the first write: it removes all staged files. What cannot be removed is logged and stays.
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
    def _write_lock(self, bucket: str, name: str) -> Iterator[None]:
        """Serializes the writers of an object."""
        with self._stripes[hash((bucket, name)) % STRIPES]:
            yield

    def _checked_rules(self, bucket: str, current: ObjectInfo | None) -> BucketRules:
        """The rules of a bucket, which let the current object be replaced."""
        rules = self._rules(bucket)
        if current is not None:
            rules.check_replacement(current, self._clock())
        return rules

    def _new_info(
        self,
        draft: ObjectDraft,
        current: ObjectInfo | None,
        size: int,
        sums: tuple[str, str],
        rules: BucketRules,
    ) -> ObjectInfo:
        previous = current.generation if current else 0
        if rules.versioned:
            previous = max(previous, self._noncurrent.latest_generation(draft.bucket, draft.name))
        generation = max(self._clock(), previous + 1 if previous < xattrs.MAX_TIME_US else 0)
        return xattrs.new_info(draft, size, sums, generation=generation, hold=rules.default_hold)

    def _move_into_place(self, staged: Path, bucket: str, parts: tuple[str, ...]) -> None:
        for _ in range(100):  # the writer that deletes a folder's last object removes the folder
            try:
                with self._make_folder(bucket, parts[:-1]) as folder:
                    self._rename(staged, parts, folder)
                    crashpoint("object.put.renamed")
                    os.fsync(folder)
                return
            except FileNotFoundError:
                if not staged.exists():
                    raise
        raise UnavailableError("The folder of this object is deleted concurrently. Try again.")

    def _rename(self, staged: Path, parts: tuple[str, ...], folder: int) -> None:
        try:
            os.rename(staged, parts[-1], dst_dir_fd=folder)
        except IsADirectoryError:
            with self._folder_lock:
                removed = clear_empty(parts[-1], folder=folder)
            if not removed:
                name = "/".join(parts)
                raise FailedPreconditionError(
                    f"There are objects below {name}/, so {name} can't be an object itself: objects are files here, "
                    f"and a file can't have the name of a folder. Delete those first, or choose another name."
                ) from None
            os.rename(staged, parts[-1], dst_dir_fd=folder)

    def _write_mark(
        self, staged: StagedObject, draft: ObjectDraft, parts: tuple[str, ...], sums: tuple[str, str]
    ) -> ObjectInfo:
        if staged.size:
            raise InvalidArgumentError(f"{draft.name} ends in a slash and so is a folder, which can't have content.")
        current = read_mark(self._root, draft.bucket, draft.name)
        draft.conditions.check_write(current)
        info = self._new_info(draft, current, 0, sums, self._checked_rules(draft.bucket, current))
        with self._folder_lock, self._make_folder(draft.bucket, parts) as folder:
            os.setxattr(folder, xattrs.ATTRIBUTE, xattrs.encode(info))
            os.fsync(folder)
        return info

    @contextmanager
    def _make_folder(self, bucket: str, parts: tuple[str, ...]) -> Iterator[int]:
        with open_directory(self._root, ()) as root:
            try:
                os.close(open_folder(bucket_name(bucket), folder=root))
            except FileNotFoundError:
                raise bucket_not_found(bucket) from None
        with make_directories(self._root, (bucket, *parts)) as folder:
            yield folder

    def _find_with_checksums(self, item: ObjectInfo, budget: WorkBudget) -> ObjectInfo | None:
        """The object as it is now, with checksums. Returns None if it is gone."""
        try:
            fd = open_found(self._root, item.bucket, item.name)
        except PermissionError:
            return item  # without checksums: its size and time are known without reading it
        if fd is None:
            return None
        try:
            info = read_info(fd, item.bucket, item.name)
            if info.crc32c or info.size > MAX_INLINE_CHECKSUM_BYTES:  # somebody else wrote it meanwhile
                return info
            sums = checksums_of(fd, size=info.size, on_read=budget.check)
            self._store_checksums(fd, info, (sums.md5, sums.crc32c))
            return replace(info, md5=sums.md5, crc32c=sums.crc32c)
        finally:
            os.close(fd)

    def _store_checksums(self, fd: int, info: ObjectInfo, sums: Sums) -> bool:
        """Store checksums on the file unless it is still being written. Returns whether they were stored."""
        if not 0 <= info.generation < self._clock() - STABLE_AFTER_US:
            return False
        with self._write_lock(info.bucket, info.name):
            if read_info(fd, info.bucket, info.name) != info:
                return False  # it changed during the read; its new attribute wins
            try:
                os.setxattr(fd, xattrs.ATTRIBUTE, xattrs.encode(replace(info, md5=sums[0], crc32c=sums[1])))
            except OSError as exc:
                if exc.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM):
                    raise
                return False  # the file is read again next time
        return True
