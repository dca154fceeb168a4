"""A bucket that is kept in a cloud: the same objects to clients of this server, on what a cloud can promise.

Bytes come in as staged files here and are sent on when they are complete, so an object appears whole or not at all
there too. What is known of an object beside its bytes travels with it, as its metadata there.
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
from trainshed.buckets.listing import nameable
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
from trainshed.errors import (
    CannotProceedError,
    ConditionNotMetError,
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
)

STRIPES = 64
AHEAD = 8 << 20  #: bytes asked for at once where an object is read from one end to the other
AT_ONCE = 16  #: requests for the metadata of listed objects
_LAST = "\U0010ffff"  #: no name goes on with this, or hardly any


@dataclass(frozen=True, slots=True)
class CloudObject:
    """An object that a cloud holds, and the cloud's own word for these very bytes."""

    info: ObjectInfo
    version: str


class CloudListItem(NamedTuple):
    """A line of a cloud's listing: an object, or what several have in common up to the delimiter."""

    name: str
    info: ObjectInfo | None


class CloudClient(Protocol):
    """One place in a cloud. Names are those below it. Whatever it raises is a `TrainshedError`."""

    url: str

    def head(self, name: str) -> CloudObject | None:
        """What is known of an object without reading it; None if there is none."""

    def rows(self, *, prefix: str, delimiter: str, after: str, most: int) -> Iterator[Sequence[CloudListItem]]:
        """Everything from `after` on, in order, so many at a time. An object comes with what a listing tells of it."""

    def read(self, held: CloudObject, offset: int, size: int) -> bytes:
        """Bytes of just this version. `DataLossError` if it was replaced or removed."""

    def put(self, path: Path, info: ObjectInfo, *, over: int | None) -> None:
        """Store a file, all at once. `ConditionNotMetError` if it must be `over` this generation and is not; 0 is
        that of an absent object, which every cloud looks at. Others are looked at by a cloud that can.
        """

    def delete(self, name: str, *, generation: int | None) -> None:
        """Remove an object, if it is there.

        `ConditionNotMetError` if it is another generation, where a cloud can tell.
        """


class CloudBackend:
    """The objects of the one bucket that is kept in `cloud`. One process at a time may write through it.

    Others may write to the cloud meanwhile. Conditions of a request are checked before it is done: they hold among all
    that this server does, and against others as far as the cloud itself checks them.
    """

    def __init__(self, cloud: CloudClient) -> None:
        self.url = cloud.url
        self._cloud = cloud
        self._stripes = tuple(threading.Lock() for _ in range(STRIPES))

    def info(self, bucket: str, name: str, *, checksums: bool = True) -> ObjectInfo:
        """Checksums are known of what came through this server; nothing is read for them."""
        return self._held(bucket, name).info

    def open(self, bucket: str, name: str, *, checksums: bool = False) -> ObjectReader:
        return CloudReader(self._cloud, self._held(bucket, name))

    def list(self, bucket: str, query: ListQuery) -> ObjectPage:
        page = _Listing(self._cloud, query).page()
        if not query.checksums or all(item.crc32c for item in page.items):
            return page
        with ThreadPoolExecutor(min(AT_ONCE, len(page.items))) as pool:
            found = list(pool.map(self._cloud.head, (item.name for item in page.items)))
        return replace(page, items=tuple(held.info for held in found if held is not None))

    def commit(self, staged: StagedObject, draft: ObjectDraft) -> ObjectInfo:
        """The cloud may have taken it although no answer came. Whoever sends it again as the same upload is told so."""
        components(draft.name)
        if is_folder(draft.name) and staged.size:
            raise InvalidArgumentError(
                f"{draft.name} is the mark of a folder, as it ends in a slash, and can't hold bytes."
            )
        md5, crc32c = staged.seal(draft)
        info = _new(draft, staged.size, md5, crc32c)
        with self._writing(draft.name):
            if draft.conditions != Preconditions():
                found = self._cloud.head(draft.name)
                if found is not None and found.info.upload == info.upload:
                    return found.info
                draft.conditions.check_write(found.info if found else None)
            stored = self._put(staged.path, info, over=draft.conditions.generation)
        if (stored.size, stored.crc32c, stored.upload) != (info.size, info.crc32c, info.upload):
            raise UnavailableError(
                f"{self.url} holds other bytes of {draft.name} than those that were sent: they were not kept, or "
                f"someone else wrote it at the same time. Send them again."
            )
        return stored

    def _put(self, path: Path, info: ObjectInfo, *, over: int | None) -> ObjectInfo:
        """What the cloud has afterwards. It is asked again where an answer is lost, and then finds its own object."""
        try:
            self._cloud.put(path, info, over=over)
        except ConditionNotMetError:
            found = self._cloud.head(info.name)
            if found is None or found.info.upload != info.upload:
                raise
            return found.info
        return self._held(info.bucket, info.name).info

    def delete(self, bucket: str, name: str, conditions: Preconditions, *, generation: int | None = None) -> None:
        with self._writing(name):
            found = self._held(bucket, name).info
            if generation not in (None, found.generation):
                raise object_not_found(bucket, name)
            conditions.check_write(found)
            self._cloud.delete(name, generation=conditions.generation if generation is None else generation)

    def patch(self, bucket: str, name: str, change: Callable[[ObjectInfo], ObjectMetadata]) -> ObjectInfo:
        """Never done: S3 would make another generation of it, and no one could tell from its metageneration."""
        raise FailedPreconditionError(
            f"gs://{bucket} is kept in {self.url}, where the metadata of an object can't be changed from here "
            f"without writing it anew. Upload it again with other metadata, or copy it onto itself."
        )

    def check_plain(self, bucket: str, name: str) -> None:
        """There is nothing but objects in a cloud."""

    def _held(self, bucket: str, name: str) -> CloudObject:
        """Dots that others take for folders lead nowhere: an address must not be put together of them."""
        lost = not name or {".", ".."} & set(name.split("/"))
        held = None if lost else self._cloud.head(name)
        if held is None:
            raise object_not_found(bucket, name)
        return held

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """One writer of an object at a time."""
        with self._stripes[hash(name) % STRIPES]:
            yield


class CloudReader(ObjectReader):
    """One version of an object, read in parts."""

    def __init__(self, cloud: CloudClient, held: CloudObject) -> None:
        super().__init__(held.info)
        self._cloud = cloud
        self._held = held
        self._from = -1  #: where in the object `_kept` begins
        self._kept = b""

    def _bytes(self, offset: int, size: int) -> bytes:
        end = self._from + len(self._kept)
        if not (self._from >= 0 and self._from <= offset and offset + size <= end):
            goes_on = self._from >= 0 and offset == end
            asked = min(max(size, AHEAD) if goes_on else size, self.info.size - offset)
            self._kept, self._from = self._cloud.read(self._held, offset, asked), offset
        at = offset - self._from
        return self._kept[at : at + size]

    def _unchanged(self) -> bool:
        return True  # or reading it had failed

    def close(self) -> None:
        self._kept, self._from = b"", -1


class _Listing:
    """One page of what a query asks for."""

    def __init__(self, cloud: CloudClient, query: ListQuery) -> None:
        self._cloud = cloud
        self._query = query
        told = _group(query.after, query.prefix, query.delimiter)
        self._skip = query.after if told else ""  #: told by a page before

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
        start = _group(query.start, prefix, delimiter) or query.start  # clouds may leave out one that began before
        after = max(_before(start), self._skip + _LAST if self._skip else query.after)
        for rows in self._cloud.rows(prefix=prefix, delimiter=delimiter, after=after, most=query.limit + 1):
            for row in rows:
                if query.end and row.name >= query.end:
                    return
                if self._wanted(row):
                    yield row

    def _wanted(self, row: CloudListItem) -> bool:
        query, name = self._query, row.name
        if not name or not nameable(name) or (self._skip and name.startswith(self._skip)):
            return False
        if row.info is None and any(bound.startswith(name) for bound in (query.start, query.after, query.end)):
            return next(self._rows(name, ""), None) is not None  # the bound falls into what the prefix stands for
        return name >= query.start and (not query.after or name > query.after)


def _group(name: str, prefix: str, delimiter: str) -> str:
    """The common prefix that stands for this name in a listing; empty if none does."""
    at = name.find(delimiter, len(prefix)) if delimiter and name.startswith(prefix) else -1
    return name[: at + len(delimiter)] if at >= 0 else ""


def _before(name: str) -> str:
    """What no name that is less than this one comes behind, but for hardly any. Empty for an empty one."""
    if not name:
        return ""
    last = ord(name[-1])
    if last == 0:
        return name[:-1]
    below = 0xD7FF if last == 0xE000 else last - 1  # between these there are no characters
    return name[:-1] + chr(below) + _LAST


def _new(draft: ObjectDraft, size: int, md5: str, crc32c: str) -> ObjectInfo:
    """What is to be known of an object on its way. Its generation is the cloud's to say."""
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


def replaced(info: ObjectInfo) -> DataLossError:
    return DataLossError(
        f"gs://{info.bucket}/{info.name} was replaced or removed while it was being read. Read it again."
    )


def not_installed(bucket: str, url: str, package: str) -> CannotProceedError:
    return CannotProceedError(
        f"[buckets.{bucket}] in config.toml keeps gs://{bucket} in {url}, and that takes the package {package}, which "
        f"is not installed here. Install it: {sys.executable} -m pip install {package}"
    )
