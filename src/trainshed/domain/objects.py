"""Buckets and objects as values, the conditions a request may set on them, and what a listing asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainshed.errors import ConditionNotMetError, NotFoundError, NotModified

MAX_PAGE = 1000  #: objects on one page of a listing, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket as the store knows it. Its name is unique over all projects."""

    name: str
    project: str
    location: str
    storage_class: str
    labels: Mapping[str, str] = field(default_factory=dict)
    created_us: int
    updated_us: int
    metageneration: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMetadata:
    """What a writer may say about an object besides its bytes. Empty strings are things not said."""

    content_type: str = ""
    content_encoding: str = ""
    content_language: str = ""
    content_disposition: str = ""
    cache_control: str = ""
    custom_time: str = ""
    storage_class: str = "STANDARD"
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object as it is now. `md5` and `crc32c` are base64; empty where they aren't known yet."""

    bucket: str
    name: str
    size: int
    generation: int
    metageneration: int
    created_us: int
    updated_us: int
    md5: str = ""
    crc32c: str = ""
    components: int = 0  #: how many objects a composed one was made of; 0 for all others
    upload: str = ""  #: the resumable session that wrote it
    traits: ObjectMetadata = field(default_factory=ObjectMetadata)

    @property
    def etag(self) -> str:
        return f"{self.generation:x}.{self.metageneration:x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """What must hold for a request to go on. None asks nothing; generation 0 is that of an absent object."""

    generation: int | None = None
    generation_not: int | None = None
    metageneration: int | None = None
    metageneration_not: int | None = None
    etags: tuple[str, ...] = ()
    etags_not: tuple[str, ...] = ()

    def check_write(self, found: ObjectInfo | None) -> None:
        """`ConditionNotMetError` unless a write over `found` may go on."""
        self._check_matches(found)
        if self._excluded(found):
            raise ConditionNotMetError(_SENTENCE.format(what="a condition that something must not match"))

    def check_read(self, found: ObjectInfo) -> None:
        """`ConditionNotMetError` or `NotModified` unless the caller wants this one."""
        self._check_matches(found)
        if self._excluded(found):
            raise NotModified("The object is the one that the request says it has already.")

    def _check_matches(self, found: ObjectInfo | None) -> None:
        generation = found.generation if found else 0
        if self.generation is not None and self.generation != generation:
            there = f"the object's generation is {generation}" if found else "there is no such object"
            raise ConditionNotMetError(_SENTENCE.format(what=f"ifGenerationMatch={self.generation}, but {there}"))
        if self.metageneration is not None and (found is None or self.metageneration != found.metageneration):
            raise ConditionNotMetError(_SENTENCE.format(what=f"ifMetagenerationMatch={self.metageneration}"))
        if self.etags and (found is None or not {found.etag, "*"} & set(self.etags)):
            raise ConditionNotMetError(_SENTENCE.format(what="the etag in If-Match"))

    def _excluded(self, found: ObjectInfo | None) -> bool:
        if self.generation_not is not None and self.generation_not == (found.generation if found else 0):
            return True
        if found is None:
            return False
        if self.metageneration_not is not None and self.metageneration_not == found.metageneration:
            return True
        return bool({found.etag, "*"} & set(self.etags_not))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectDraft:
    """An object on its way in: all that is known before its last byte has come."""

    bucket: str
    name: str
    traits: ObjectMetadata = field(default_factory=ObjectMetadata)
    conditions: Preconditions = field(default_factory=Preconditions)
    md5: str = ""  #: what the bytes must amount to, if the sender said so
    crc32c: str = ""
    components: int = 0
    upload: str = ""


_SENTENCE = "At least one of the pre-conditions you specified did not hold: {what}."


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """Which objects of a bucket to list. Names are in the order of their UTF-8 bytes."""

    prefix: str = ""
    delimiter: str = ""
    start: str = ""  #: names before this one are left out
    end: str = ""  #: this name and those after it are left out; empty: none are
    after: str = ""  #: go on behind this name or prefix: the end of the page before
    limit: int = MAX_PAGE
    delimiter_objects: bool = False  #: show `a/` as an object too where it is a prefix
    checksums: bool = True  #: False where the caller doesn't look at them


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPage:
    """A part of a listing. `next` is what `ListQuery.after` must be for the part behind it; empty at the end."""

    items: tuple[ObjectInfo, ...] = ()
    prefixes: tuple[str, ...] = ()
    next: str = ""


def object_not_found(bucket: str, name: str) -> NotFoundError:
    return NotFoundError(f"No such object: {bucket}/{name}")


def bucket_not_found(name: str) -> NotFoundError:
    return NotFoundError(f"The specified bucket does not exist: {name}")
