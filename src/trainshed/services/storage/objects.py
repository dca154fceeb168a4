"""What can be done with objects. Who may do it in the bucket of the request was settled before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from trainshed.buckets.backend import BucketBackend
from trainshed.buckets.checksums import PIECE
from trainshed.buckets.glob import glob_objects
from trainshed.buckets.names import components
from trainshed.buckets.staging import ObjectReader, StagedObject
from trainshed.buckets.uploads import UploadSession, UploadSessions
from trainshed.domain.iam import Access, Principal
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
from trainshed.errors import DiskFullError, InvalidArgumentError, NotFoundError, PermissionDeniedError, UnavailableError

__all__ = [
    "PIECE",
    "ObjectReader",
    "ObjectSource",
    "Objects",
    "StagedObject",
    "UploadSession",
]  # what routes hold in their hands

MAX_SOURCES = 32  #: objects that one compose takes


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSource:
    """An object to read: which one, and what must hold of it."""

    bucket: str
    name: str
    generation: int | None = None  #: None: the one that is there now
    conditions: Preconditions = field(default_factory=Preconditions)


class Objects:
    """The objects of all buckets. Threads may share it."""

    def __init__(self, tree: BucketBackend, sessions: UploadSessions, *, owner: Callable[[str], str]) -> None:
        """`owner` gives the project of a bucket, or raises `NotFoundError`."""
        self._tree = tree
        self._sessions = sessions
        self._owner = owner

    def sweep(self) -> None:
        """Remove what interrupted requests left. Call it before the first request, and only then."""
        self._tree.sweep()
        self._sessions.sweep()

    def get(self, source: ObjectSource) -> ObjectInfo:
        return self._checked(source, self._tree.info(source.bucket, source.name))

    def exists(self, bucket: str, name: str) -> bool:
        """Whether there is such an object. False for a name that none can have."""
        try:
            self._tree.info(bucket, name, checksums=False)
        except (NotFoundError, InvalidArgumentError):
            return False
        return True

    def folder_holds_files(self, bucket: str, folder: str) -> bool:
        """Whether any object lies below a folder, or anywhere if that is empty. Marks of folders don't count."""
        prefix = f"{folder.removesuffix('/')}/" if folder else ""
        query = ListQuery(prefix=prefix, checksums=False, limit=100)
        while True:
            page = self._tree.list(bucket, query)
            if any(not item.name.endswith("/") for item in page.items):
                return True
            if not page.next:
                return False
            query = replace(query, after=page.next)

    def matches(self, bucket: str, pattern: str) -> bool:
        """Whether an object matches, as `glob_objects` has it."""
        return any(glob_objects(self._tree, bucket, pattern))

    def open(self, source: ObjectSource) -> ObjectReader:
        """The object's bytes, as they are now; the caller closes it."""
        reader = self._tree.open(source.bucket, source.name)
        try:
            self._checked(source, reader.info)
        except BaseException:
            reader.close()
            raise
        return reader

    def _checked(self, source: ObjectSource, info: ObjectInfo) -> ObjectInfo:
        _check_generation(source, info)
        source.conditions.check_read(info)
        return info

    def list(self, bucket: str, query: ListQuery) -> ObjectPage:
        return self._tree.list(bucket, query)

    def stage(self, draft: ObjectDraft) -> StagedObject:
        """A place for the bytes of an object that may have this name. `store` it, or discard it."""
        components(draft.name)
        return self._tree.stage()

    def store(self, staged: StagedObject | None, rest: bytes, draft: ObjectDraft) -> ObjectInfo:
        """Add the last bytes and make it the object. Whatever happens, the staged file is gone afterwards."""
        with staged or self.stage(draft) as whole:
            whole.write(rest)
            return self._tree.commit(whole, draft)

    def delete(self, source: ObjectSource) -> None:
        self._tree.delete(source.bucket, source.name, source.conditions, generation=source.generation)

    def patch(self, source: ObjectSource, change: Callable[[ObjectMetadata], ObjectMetadata]) -> ObjectInfo:
        """Write other metadata to an object. Its bytes and its generation stay."""

        def checked(info: ObjectInfo) -> ObjectMetadata:
            _check_source(source, info)
            return change(info.traits)

        return self._tree.patch(source.bucket, source.name, checked)

    def copy(self, source: ObjectSource, draft: ObjectDraft, principal: Principal, *, keep_traits: bool) -> ObjectInfo:
        """Make a copy, in any bucket that the principal may write to. `keep_traits`: with the source's metadata."""
        self._check_writable(draft.bucket, principal)
        with self._tree.open(source.bucket, source.name) as reader, self.stage(draft) as staged:
            _check_source(source, reader.info)
            reader.copy_to(staged)
            traits = reader.info.traits if keep_traits else draft.traits
            return self._tree.commit(staged, replace(draft, traits=traits, components=reader.info.components))

    def move(self, source: ObjectSource, draft: ObjectDraft, principal: Principal) -> ObjectInfo:
        """Give an object another name in its bucket. Cut short, it leaves both names, never none."""
        if source.name == draft.name:
            raise InvalidArgumentError("An object can't be moved to the name that it has.")
        info = self._tree.info(source.bucket, source.name, checksums=False)
        _check_generation(source, info)
        moved = self.copy(replace(source, generation=info.generation), draft, principal, keep_traits=True)
        self._tree.delete(source.bucket, source.name, Preconditions(), generation=info.generation)
        return moved

    def compose(self, sources: Sequence[ObjectSource], draft: ObjectDraft) -> ObjectInfo:
        """One object out of several of the same bucket, one behind the other."""
        if not 1 <= len(sources) <= MAX_SOURCES:
            raise InvalidArgumentError(
                f"A compose takes 1 to {MAX_SOURCES} source objects; this one has {len(sources)}."
            )
        count = 0
        with self.stage(draft) as staged:
            for source in sources:
                with self._tree.open(source.bucket, source.name) as reader:
                    _check_source(source, reader.info)
                    reader.copy_to(staged)
                    count += reader.info.components or 1
            return self._tree.commit(staged, replace(draft, components=count))

    def _check_writable(self, bucket: str, principal: Principal) -> None:
        project = self._owner(bucket)
        if not principal.sees(project):
            raise bucket_not_found(bucket)
        if not principal.may(Access.WRITE, project):
            raise PermissionDeniedError(
                f"This token ({principal.role} of project {project}) may not write to {bucket}."
            )

    def begin(self, draft: ObjectDraft) -> str:
        """Begin an upload that may come in pieces and survive a restart. Its id."""
        components(draft.name)
        return self._sessions.begin(draft)

    def resume(self, bucket: str, upload: str, name: str) -> UploadSession | ObjectInfo:
        """An upload that goes on, or the object that it has become already. `NotFoundError` if it is neither."""
        try:
            return self._sessions.open(bucket, upload)
        except NotFoundError:
            if name:
                info = self._tree.info(bucket, name)
                if info.upload == upload:
                    return info
            raise

    def keep(self, session: UploadSession) -> None:
        """Let go of an upload that is not complete. What it has received is on the disk."""
        try:
            session.sync()
        finally:
            self._sessions.keep(session)

    def finish(self, session: UploadSession) -> ObjectInfo:
        """Make a complete upload the object. A condition or checksum that fails ends it.

        A full disk, or a cloud that does not answer, doesn't: it can be finished later.
        """
        try:
            info = self._tree.commit(session, session.draft)
        except (DiskFullError, UnavailableError):
            self._sessions.keep(session)
            raise
        except BaseException:
            self._sessions.end(session)
            raise
        self._sessions.end(session)
        return info

    def cancel(self, bucket: str, upload: str) -> None:
        self._sessions.end(self._sessions.open(bucket, upload))


def _check_generation(source: ObjectSource, info: ObjectInfo) -> None:
    """`NotFoundError` unless it is the generation that was asked for."""
    if source.generation not in (None, info.generation):
        raise object_not_found(source.bucket, f"{source.name}#{source.generation}")


def _check_source(source: ObjectSource, info: ObjectInfo) -> None:
    """The same, and `ConditionNotMetError` unless a write that reads it may go on."""
    _check_generation(source, info)
    source.conditions.check_write(info)
