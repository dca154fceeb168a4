"""Buckets, objects, preconditions and list queries as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainshed.errors import ConditionNotMetError, NotFoundError, NotModified

MAX_PAGE = 1000  #: objects per page of a listing


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket as the store knows it. Its name is unique across projects."""

    name: str
    project: str
    location: str
    storage_class: str
    labels: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)  #: in the API's form; see `domain.storage.settings`
    created_us: int
    updated_us: int
    metageneration: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMetadata:
    """What a writer may set on an object besides its bytes. Empty strings mean not set."""

    content_type: str = ""
    content_encoding: str = ""
    content_language: str = ""
    content_disposition: str = ""
    cache_control: str = ""
    custom_time: str = ""
    storage_class: str = "STANDARD"
    temporary_hold: bool = False
    event_based_hold: bool = False
    hold_released_us: int = 0  #: when the last event-based hold ended; its retention counts from then
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_held(self) -> bool:
        return self.temporary_hold or self.event_based_hold


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object as it is now. `md5` and `crc32c` are base64, and empty while they are unknown."""

    bucket: str
    name: str
    size: int
    generation: int
    metageneration: int
    created_us: int
    updated_us: int
    md5: str = ""
    crc32c: str = ""
    components: int = 0  #: number of components of a composed object; 0 for all others
    upload: str = ""  #: id of the resumable upload session that wrote it
    deleted_us: int = 0  #: when this version was replaced or deleted; 0 for the live one
    retained_until_us: int = 0  #: when the bucket's retention policy lets it be removed; 0: it has none
    traits: ObjectMetadata = field(default_factory=ObjectMetadata)

    @property
    def etag(self) -> str:
        return f"{self.generation:x}.{self.metageneration:x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """Preconditions of a request. None means no condition. An absent object has generation 0."""

    generation: int | None = None
    generation_not: int | None = None
    metageneration: int | None = None
    metageneration_not: int | None = None
    etags: tuple[str, ...] = ()
    etags_not: tuple[str, ...] = ()

    def check_write(self, current: ObjectInfo | None) -> None:
        """Raises `ConditionNotMetError` unless a write over `current` may proceed."""
        self._check_matches(current)
        if self._matches_exclusion(current):
            raise ConditionNotMetError(_MESSAGE.format(what="a condition that something must not match"))

    def check_read(self, current: ObjectInfo) -> None:
        """Raises `ConditionNotMetError` if a condition fails, and `NotModified` if the caller has this object."""
        self._check_matches(current)
        if self._matches_exclusion(current):
            raise NotModified("The object is the one that the request says it has already.")

    def _check_matches(self, current: ObjectInfo | None) -> None:
        generation = current.generation if current else 0
        if self.generation is not None and self.generation != generation:
            actual = f"the object's generation is {generation}" if current else "there is no such object"
            raise ConditionNotMetError(_MESSAGE.format(what=f"ifGenerationMatch={self.generation}, but {actual}"))
        if self.metageneration is not None and (current is None or self.metageneration != current.metageneration):
            raise ConditionNotMetError(_MESSAGE.format(what=f"ifMetagenerationMatch={self.metageneration}"))
        if self.etags and (current is None or not {current.etag, "*"} & set(self.etags)):
            raise ConditionNotMetError(_MESSAGE.format(what="the etag in If-Match"))

    def _matches_exclusion(self, current: ObjectInfo | None) -> bool:
        if self.generation_not is not None and self.generation_not == (current.generation if current else 0):
            return True
        if current is None:
            return False
        if self.metageneration_not is not None and self.metageneration_not == current.metageneration:
            return True
        return bool({current.etag, "*"} & set(self.etags_not))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectDraft:
    """An object during its upload: everything that is known before its last byte."""

    bucket: str
    name: str
    traits: ObjectMetadata = field(default_factory=ObjectMetadata)
    conditions: Preconditions = field(default_factory=Preconditions)
    md5: str = ""  #: expected digests, if the sender gave any
    crc32c: str = ""
    components: int = 0
    upload: str = ""


_MESSAGE = "At least one of the pre-conditions you specified did not hold: {what}."


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """Which objects of a bucket to list, in the order of the UTF-8 bytes of their names."""

    prefix: str = ""
    delimiter: str = ""
    start: str = ""  #: inclusive lower bound
    end: str = ""  #: exclusive upper bound; empty: unbounded
    after: str = ""  #: continue after this name or prefix, the last of the previous page
    limit: int = MAX_PAGE
    delimiter_objects: bool = False  #: list `a/` as an object too where it is a prefix
    checksums: bool = True  #: False if the caller does not need them
    glob: str = ""  #: only names and prefixes that match it
    versions: bool = False  #: list noncurrent versions too, each name's in the order of their generations


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPage:
    """One page of a listing. `next` is `ListQuery.after` of the following page; empty on the last one."""

    items: tuple[ObjectInfo, ...] = ()
    prefixes: tuple[str, ...] = ()
    next: str = ""


def object_not_found(bucket: str, name: str, generation: int | None = None) -> NotFoundError:
    """The error of an absent object, or of an absent generation of one."""
    return NotFoundError(f"No such object: {bucket}/{name}" + (f"#{generation}" if generation is not None else ""))


def bucket_not_found(name: str) -> NotFoundError:
    return NotFoundError(f"The specified bucket does not exist: {name}")
