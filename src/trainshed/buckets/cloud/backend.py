"""A backend for one cloud bucket, with the same objects for clients, within what a cloud guarantees.

Uploads are staged as local files and sent when they are complete. An object therefore appears in the cloud whole or not
at all. An object's metadata is stored as its metadata in the cloud.
"""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from trainshed.buckets import xattrs
from trainshed.buckets.listing import is_valid_name
from trainshed.buckets.names import components, is_folder
from trainshed.buckets.staging import ObjectReader, StagedObject
from trainshed.domain.objects import (
    ListQuery,
    ObjectDraft,
    ObjectInfo,
    ObjectMetadata,
    ObjectPage,
    Preconditions,
    object_not_found,
)
from trainshed.domain.times import now_us
from trainshed.domain.work_budget import WorkBudget
from trainshed.errors import (
    CannotProceedError,
    ConditionNotMetError,
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
)

STRIPES = 64
READ_AHEAD_BYTES = 8 << 20  #: per request while an object is read sequentially
MAX_CONCURRENT_HEADS = 16  #: requests for the metadata of listed objects
_MAX_CHARACTER = "\U0010ffff"  #: sorts after practically every name


@dataclass(frozen=True, slots=True)
class CloudObject:
    """An object in a cloud, with the cloud's own version of its bytes."""

    info: ObjectInfo
    version: str


class CloudListItem(NamedTuple):
    """One item of a cloud's listing: an object, or a common prefix."""

    name: str
    info: ObjectInfo | None


class CloudClient(Protocol):
    """A client for one folder of a cloud bucket; names are relative to it. Raises only `TrainshedError`."""

    url: str

    def head(self, name: str) -> CloudObject | None:
        """The metadata of an object. Returns None if it does not exist."""

    def rows(self, *, prefix: str, delimiter: str, after: str, page_size: int) -> Iterator[Sequence[CloudListItem]]:
        """All items after `after`, in order, in batches of `page_size`.

        Objects have the metadata that a listing includes.
        """

    def read(self, cloud_object: CloudObject, offset: int, size: int) -> bytes:
        """Read bytes of exactly this version. Raises `DataLossError` if the object was replaced or deleted."""

    def put(self, path: Path, info: ObjectInfo, *, if_generation: int | None) -> None:
        """Store a file atomically.

        Raises `ConditionNotMetError` if the object has another generation than `if_generation`.

        Generation 0 is that of an absent object; every cloud checks it. Other generations are checked only if the cloud
        supports that.
        """

    def delete(self, name: str, *, generation: int | None) -> None:
        """Delete an object if it exists.

        Raises `ConditionNotMetError` if it has another generation and the cloud checks it.
        """


class CloudBackend:
    """The objects of one bucket in `cloud`. Only one process may write through it.

    Other programs may write to the cloud directly. Preconditions are checked before each operation. They hold among the
    operations of this server; against other writers only if the cloud checks them too.
    """

    def __init__(self, cloud: CloudClient) -> None:
        self.url = cloud.url
        self._cloud = cloud
        self._stripes = tuple(threading.Lock() for _ in range(STRIPES))

    def info(self, bucket: str, name: str, *, checksums: bool = True, generation: int | None = None) -> ObjectInfo:
        """Checksums are known for objects written through this server. No bytes are read to compute them."""
        return self._cloud_object(bucket, name, generation).info

    def lacks_checksums(self, info: ObjectInfo) -> bool:
        return False

    def with_checksums(self, items: Sequence[ObjectInfo], budget: WorkBudget | None = None) -> tuple[ObjectInfo, ...]:
        return tuple(items)

    def open(self, bucket: str, name: str, *, generation: int | None = None) -> ObjectReader:
        return CloudReader(self._cloud, self._cloud_object(bucket, name, generation))

    def list(self, bucket: str, query: ListQuery, budget: WorkBudget | None = None) -> ObjectPage:
        page = _Listing(self._cloud, query).page()
        if not query.checksums or all(item.crc32c for item in page.items):
            return page
        with ThreadPoolExecutor(min(MAX_CONCURRENT_HEADS, len(page.items))) as pool:
            objects = list(pool.map(self._cloud.head, (item.name for item in page.items)))
        return replace(page, items=tuple(entry.info for entry in objects if entry is not None))

    def commit(self, staged: StagedObject, draft: ObjectDraft, budget: WorkBudget | None = None) -> ObjectInfo:
        """The cloud may store the object even if its response is lost. A retry of the same upload succeeds then."""
        components(draft.name)
        if is_folder(draft.name) and staged.size:
            raise InvalidArgumentError(
                f"{draft.name} is the mark of a folder, as it ends in a slash, and can't hold bytes."
            )
        md5, crc32c = staged.seal(draft, budget)
        info = _new_info(draft, staged.size, md5, crc32c)
        with self._write_lock(draft.name):
            if draft.conditions != Preconditions():
                current = self._cloud.head(draft.name)
                if current is not None and current.info.upload == info.upload:
                    return current.info
                draft.conditions.check_write(current.info if current else None)
            stored = self._put(staged.path, info, if_generation=draft.conditions.generation)
        if (stored.size, stored.crc32c, stored.upload) != (info.size, info.crc32c, info.upload):
            raise UnavailableError(
                f"{self.url} holds other bytes of {draft.name} than those that were sent: they were not kept, or "
                f"someone else wrote it at the same time. Send them again."
            )
        return stored

    def _put(self, path: Path, info: ObjectInfo, *, if_generation: int | None) -> ObjectInfo:
        """Returns the stored object. If a response was lost, the retry finds its own object."""
        try:
            self._cloud.put(path, info, if_generation=if_generation)
        except ConditionNotMetError:
            current = self._cloud.head(info.name)
            if current is None or current.info.upload != info.upload:
                raise
            return current.info
        return self._cloud_object(info.bucket, info.name).info

    def delete(self, bucket: str, name: str, conditions: Preconditions, *, generation: int | None = None) -> None:
        with self._write_lock(name):
            current = self._cloud_object(bucket, name, generation).info
            conditions.check_write(current)
            self._cloud.delete(name, generation=conditions.generation if generation is None else generation)

    def patch(
        self,
        bucket: str,
        name: str,
        change: Callable[[ObjectInfo], ObjectMetadata],
        *,
        generation: int | None = None,
    ) -> ObjectInfo:
        """Not supported: S3 would create a new generation, which the metageneration would not show."""
        raise FailedPreconditionError(
            f"gs://{bucket} is kept in {self.url}, where the metadata of an object can't be changed from here "
            f"without writing it anew. Upload it again with other metadata, or copy it onto itself."
        )

    def check_plain(self, bucket: str, name: str) -> None:
        """Nothing to check: a cloud has only objects."""

    def _cloud_object(self, bucket: str, name: str, generation: int | None = None) -> CloudObject:
        """The object. Raises `NotFoundError` if it does not exist or has another generation.

        Names with `.` or `..` never exist: their URL could be normalized to that of another object.
        """
        invalid = not name or {".", ".."} & set(name.split("/"))
        cloud_object = None if invalid else self._cloud.head(name)
        if cloud_object is None or generation not in (None, cloud_object.info.generation):
            raise object_not_found(bucket, name, generation)
        return cloud_object

    @contextmanager
    def _write_lock(self, name: str) -> Iterator[None]:
        """Serializes the writers of an object."""
        with self._stripes[hash(name) % STRIPES]:
            yield


class CloudReader(ObjectReader):
    """One version of an object, read in ranges."""

    def __init__(self, cloud: CloudClient, cloud_object: CloudObject) -> None:
        super().__init__(cloud_object.info)
        self._cloud = cloud
        self._cloud_object = cloud_object
        self._buffer_start = -1  #: offset of `_buffer` in the object
        self._buffer = b""

    def _bytes(self, offset: int, size: int) -> bytes:
        end = self._buffer_start + len(self._buffer)
        if not (self._buffer_start >= 0 and self._buffer_start <= offset and offset + size <= end):
            sequential = self._buffer_start >= 0 and offset == end
            length = min(max(size, READ_AHEAD_BYTES) if sequential else size, self.info.size - offset)
            self._buffer, self._buffer_start = self._cloud.read(self._cloud_object, offset, length), offset
        start = offset - self._buffer_start
        return self._buffer[start : start + size]

    def _unchanged(self) -> bool:
        return True  # a changed object fails to be read

    def close(self) -> None:
        self._buffer, self._buffer_start = b"", -1


class _Listing:
    """One page of a listing."""

    def __init__(self, cloud: CloudClient, query: ListQuery) -> None:
        self._cloud = cloud
        self._query = query
        is_prefix = _common_prefix(query.after, query.prefix, query.delimiter)
        self._skip = query.after if is_prefix else ""  #: common prefix that the previous page ended with

    def page(self) -> ObjectPage:
        query = self._query
        items: list[ObjectInfo] = []
        prefixes: list[str] = []
        last = ""
        for row in self._rows(query.prefix, query.delimiter):
            if len(items) + len(prefixes) >= query.limit:
                return ObjectPage(items=tuple(items), prefixes=tuple(prefixes), next=last)
            if row.info is not None:
                items.append(row.info)
            else:
                prefixes.append(row.name)
                if query.delimiter_objects and (mark := self._cloud.head(row.name)) is not None:
                    items.append(mark.info)
            last = row.name
        return ObjectPage(items=tuple(items), prefixes=tuple(prefixes))

    def _rows(self, prefix: str, delimiter: str) -> Iterator[CloudListItem]:
        query = self._query
        # a cloud may leave out a common prefix that sorts before the start
        start = _common_prefix(query.start, prefix, delimiter) or query.start
        after = max(_predecessor(start), self._skip + _MAX_CHARACTER if self._skip else query.after)
        for rows in self._cloud.rows(prefix=prefix, delimiter=delimiter, after=after, page_size=query.limit + 1):
            for row in rows:
                if query.end and row.name >= query.end:
                    return
                if self._selects(row):
                    yield row

    def _selects(self, row: CloudListItem) -> bool:
        query, name = self._query, row.name
        if not name or not is_valid_name(name) or (self._skip and name.startswith(self._skip)):
            return False
        if row.info is None and any(bound.startswith(name) for bound in (query.start, query.after, query.end)):
            return next(self._rows(name, ""), None) is not None  # the bound lies inside the common prefix
        return name >= query.start and (not query.after or name > query.after)


def _common_prefix(name: str, prefix: str, delimiter: str) -> str:
    """The common prefix that represents this name in a listing. Empty if there is none."""
    index = name.find(delimiter, len(prefix)) if delimiter and name.startswith(prefix) else -1
    return name[: index + len(delimiter)] if index >= 0 else ""


def _predecessor(name: str) -> str:
    """A name that sorts just before this one. Empty for an empty name."""
    if not name:
        return ""
    code = ord(name[-1])
    if code == 0:
        return name[:-1]
    previous = 0xD7FF if code == 0xE000 else code - 1  # there are no characters between these
    return name[:-1] + chr(previous) + _MAX_CHARACTER


def _new_info(draft: ObjectDraft, size: int, md5: str, crc32c: str) -> ObjectInfo:
    """The metadata of a new object. The cloud assigns its generation."""
    traits = draft.traits
    if not traits.content_type:
        traits = replace(traits, content_type=xattrs.guess_type(draft.name))
    now = now_us()
    return ObjectInfo(
        bucket=draft.bucket,
        name=draft.name,
        size=size,
        generation=now,
        metageneration=1,
        created_us=now,
        updated_us=now,
        md5=md5,
        crc32c=crc32c,
        components=draft.components,
        upload=draft.upload or secrets.token_hex(16),
        traits=traits,
    )


def object_replaced(info: ObjectInfo) -> DataLossError:
    return DataLossError(
        f"gs://{info.bucket}/{info.name} was replaced or removed while it was being read. Read it again."
    )


def not_installed(bucket: str, url: str, package: str) -> CannotProceedError:
    return CannotProceedError(
        f"[buckets.{bucket}] in config.toml keeps gs://{bucket} in {url}, and that takes the package {package}, which "
        f"is not installed here. Install it: {sys.executable} -m pip install {package}"
    )
