"""Objects: get, list, upload, copy, compose and delete. Callers check authorization for the request's bucket before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainshed.buckets.backend import BucketBackend
from trainshed.buckets.checksums import PIECE
from trainshed.buckets.glob import glob_objects, match_names
from trainshed.buckets.names import components
from trainshed.buckets.staging import ObjectReader, StagedObject
from trainshed.buckets.uploads import UploadSession, UploadSessions
from trainshed.domain.iam import Access, Principal
from trainshed.domain.objects import (
    MAX_PAGE,
    ListQuery,
    ObjectDraft,
    ObjectInfo,
    ObjectMetadata,
    ObjectPage,
    Preconditions,
    bucket_not_found,
)
from trainshed.domain.storage.rules import BucketRules
from trainshed.domain.times import now_us
from trainshed.domain.work_budget import WorkBudget, unlimited
from trainshed.errors import (
    DeadlineExceededError,
    DiskFullError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    RequestCancelledError,
    UnavailableError,
)
from trainshed.node.crashpoints import crashpoint
from trainshed.services.storage.bucket_bytes import BucketBytes

__all__ = [
    "PIECE",
    "ObjectReader",
    "ObjectSource",
    "Objects",
    "StagedObject",
    "UploadSession",
]  # what routes handle

MAX_SOURCES = 32  #: source objects per compose


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSource:
    """An object to read, with preconditions."""

    bucket: str
    name: str
    generation: int | None = None  #: None for the current one
    conditions: Preconditions = field(default_factory=Preconditions)


class Objects:
    """The objects of all buckets. Thread-safe."""

    def __init__(
        self,
        backend: BucketBackend,
        sessions: UploadSessions,
        *,
        owner: Callable[[str], str],
        rules: Callable[[str], BucketRules] = lambda bucket: BucketRules(),
        note_hold: Callable[[str], None] = lambda bucket: None,
        stored: BucketBytes | None = None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """`owner` returns the project of a bucket, or raises `NotFoundError`.

        `note_hold` is called with a bucket before one of its objects gets a hold. `stored` counts what is written
        against the limits of projects. Beyond one, methods that write raise `QuotaExceededError`.
        """
        self._stored = stored
        self._backend = backend
        self._sessions = sessions
        self._owner = owner
        self._rules = rules
        self._note_hold = note_hold
        self._clock = clock

    def sweep(self) -> None:
        """Remove what interrupted requests left. Call it only before the first request."""
        self._backend.sweep()
        self._sessions.sweep()

    def get(self, source: ObjectSource) -> ObjectInfo:
        """Return the object as it is now. `with_checksums` adds checksums that it lacks."""
        info = self._backend.info(source.bucket, source.name, checksums=False, generation=source.generation)
        source.conditions.check_read(info)
        return self._with_retention([info])[0]

    def _with_retention(self, items: Sequence[ObjectInfo]) -> tuple[ObjectInfo, ...]:
        """Return objects of one bucket with the ends of their retention."""
        rules = self._rules(items[0].bucket) if items else BucketRules()
        if not rules.retention_s:
            return tuple(items)
        return tuple(replace(info, retained_until_us=rules.retained_until_us(info)) for info in items)

    def lack_checksums(self, items: Sequence[ObjectInfo]) -> bool:
        """Return whether `with_checksums` may add some. It reads files then."""
        return any(map(self._backend.lacks_checksums, items))

    def with_checksums(self, items: Sequence[ObjectInfo], budget: WorkBudget) -> tuple[ObjectInfo, ...]:
        """Return the objects, of one bucket, with checksums. Those of large files follow in the background."""
        return self._backend.with_checksums(items, budget)

    def exists(self, bucket: str, name: str) -> bool:
        """Return whether the object exists. Returns False for an invalid name."""
        try:
            self._backend.info(bucket, name, checksums=False)
        except (NotFoundError, InvalidArgumentError):
            return False
        return True

    def folder_holds_files(self, bucket: str, folder: str, budget: WorkBudget | None = None) -> bool:
        """Return whether a folder has any object; "" is the whole bucket. Folder markers do not count.

        Raises what `WorkBudget.check` raises, as `matches` does.
        """
        budget = budget or unlimited()
        prefix = f"{folder.removesuffix('/')}/" if folder else ""
        query = ListQuery(prefix=prefix, checksums=False, limit=100)
        while True:
            page = self._backend.list(bucket, query, budget)
            budget.check(0)
            if any(not item.name.endswith("/") for item in page.items):
                return True
            if not page.next:
                return False
            query = replace(query, after=page.next)

    def matches(self, bucket: str, pattern: str, budget: WorkBudget | None = None) -> bool:
        """Return whether an object matches the pattern. See `glob_objects`."""
        return any(glob_objects(self._backend, bucket, pattern, budget))

    def open(self, source: ObjectSource) -> ObjectReader:
        """Open an object for reading, as it is now; the caller closes it."""
        reader = self._backend.open(source.bucket, source.name, generation=source.generation)
        try:
            source.conditions.check_read(reader.info)
        except BaseException:
            reader.close()
            raise
        return reader

    def owner(self, bucket: str) -> str:
        """Return the project of a bucket. Raises `NotFoundError` if there is no such bucket."""
        return self._owner(bucket)

    def in_cloud(self, bucket: str) -> bool:
        """Return whether a cloud has the objects of the bucket."""
        return bool(self._backend.cloud_of(bucket))

    def list(self, bucket: str, query: ListQuery, budget: WorkBudget | None = None) -> ObjectPage:
        """One page. It ends early, with a `next`, when the budget is used up."""
        if query.glob and query.versions:
            raise InvalidArgumentError("A listing has either matchGlob or versions here. Filter the names yourself.")
        if query.glob:
            page = self._list_matching(bucket, query, budget or unlimited())
        else:
            page = self._backend.list(bucket, query, budget)
        return replace(page, items=self._with_retention(page.items))

    def _list_matching(self, bucket: str, query: ListQuery, budget: WorkBudget) -> ObjectPage:
        """One page of what matches the query's glob."""
        start, matches = match_names(query.glob)
        rest = replace(query, limit=MAX_PAGE)
        if not query.delimiter and start.startswith(query.prefix):
            rest = replace(rest, prefix=start)
        found: dict[str, ObjectInfo | None] = {}  #: the object of a name, or None for a prefix
        while True:
            page = self._backend.list(bucket, rest, budget)
            found |= {item.name: item for item in page.items if matches(item.name)}
            found |= {prefix: None for prefix in page.prefixes if matches(prefix)}
            names = sorted(found)
            if len(names) > query.limit or not page.next or budget.exhausted:
                break
            rest = replace(rest, after=page.next)
        listed = names[: query.limit]
        return ObjectPage(
            items=tuple(item for name in listed if (item := found[name]) is not None),
            prefixes=tuple(name for name in listed if found[name] is None),
            next=listed[-1] if len(names) > query.limit else page.next,
        )

    def stage(self, draft: ObjectDraft) -> StagedObject:
        """Create a staged object for this draft. The caller passes it to `store` or discards it."""
        components(draft.name)
        staged = self._backend.stage()
        staged.check_size = self.room(draft.bucket)
        return staged

    def store(self, staged: StagedObject | None, rest: bytes, draft: ObjectDraft) -> ObjectInfo:
        """Append the last bytes and commit the object. The staged file is removed in every case."""
        with staged or self.stage(draft) as object_:
            object_.write(rest)
            if draft.traits.is_held:
                self._note_hold(draft.bucket)
            return self._with_retention([self._commit(object_, draft)])[0]

    def _commit(self, staged: StagedObject, draft: ObjectDraft, budget: WorkBudget | None = None) -> ObjectInfo:
        if self._stored is None:
            return self._backend.commit(staged, draft, budget)
        with self._stored.taken(draft.bucket, staged.size):
            return self._backend.commit(staged, draft, budget)

    def room(self, bucket: str) -> Callable[[int], None] | None:
        """Return what raises `QuotaExceededError` if an object of this size is too much for a bucket."""
        return None if self._stored is None else self._stored.room(bucket)

    def delete(self, source: ObjectSource) -> None:
        self._backend.delete(source.bucket, source.name, source.conditions, generation=source.generation)

    def patch(self, source: ObjectSource, change: Callable[[ObjectMetadata], ObjectMetadata]) -> ObjectInfo:
        """Replace the metadata of an object. Its bytes and generation stay."""

        def checked_change(info: ObjectInfo) -> ObjectMetadata:
            source.conditions.check_write(info)
            return self._held(info.bucket, info.traits, change(info.traits))

        info = self._backend.patch(source.bucket, source.name, checked_change, generation=source.generation)
        return self._with_retention([info])[0]

    def _held(self, bucket: str, old: ObjectMetadata, new: ObjectMetadata) -> ObjectMetadata:
        """Return the new metadata, with the time at which an event-based hold ends or ended."""
        if new.is_held:
            self._note_hold(bucket)
        ended = old.event_based_hold and not new.event_based_hold
        return replace(new, hold_released_us=self._clock() if ended else old.hold_released_us)

    def copy(
        self,
        source: ObjectSource,
        draft: ObjectDraft,
        principal: Principal,
        budget: WorkBudget,
        *,
        keep_traits: bool,
        storage_class: str = "",
    ) -> ObjectInfo:
        """Copy an object into any bucket that the principal may write to.

        With `keep_traits`, the copy has the source's metadata, with another storage class if one is given.
        """
        self._check_writable(draft.bucket, principal)
        if draft.traits.is_held and not keep_traits:
            self._note_hold(draft.bucket)
        opened = self._backend.open(source.bucket, source.name, generation=source.generation)
        with opened as reader, self.stage(draft) as staged:
            source.conditions.check_write(reader.info)
            reader.copy_to(staged, budget)
            crashpoint("object.rewrite.staged")
            traits = _without_holds(reader.info.traits) if keep_traits else draft.traits
            traits = replace(traits, storage_class=storage_class or traits.storage_class)
            return self._commit(staged, replace(draft, traits=traits, components=reader.info.components), budget)

    def move(self, source: ObjectSource, draft: ObjectDraft, principal: Principal, budget: WorkBudget) -> ObjectInfo:
        """Rename an object in its bucket. An interrupted move leaves both names, never none."""
        if source.name == draft.name:
            raise InvalidArgumentError("An object can't be moved to the name that it has.")
        info = self._backend.info(source.bucket, source.name, checksums=False, generation=source.generation)
        self._rules(source.bucket).check_replacement(info, self._clock())
        moved = self.copy(replace(source, generation=info.generation), draft, principal, budget, keep_traits=True)
        crashpoint("object.move.copied")
        self._backend.delete(source.bucket, source.name, Preconditions(generation=info.generation))
        return moved

    def compose(
        self, sources: Sequence[ObjectSource], draft: ObjectDraft, budget: WorkBudget, *, delete_sources: bool = False
    ) -> ObjectInfo:
        """Concatenate objects of one bucket into a new one.

        With `delete_sources`, the sources are deleted then, as they were read. An interruption leaves some of them.
        """
        if not 1 <= len(sources) <= MAX_SOURCES:
            raise InvalidArgumentError(
                f"A compose takes 1 to {MAX_SOURCES} source objects; this one has {len(sources)}."
            )
        count = 0
        read: dict[tuple[str, int | None], ObjectInfo] = {}
        with self.stage(draft) as staged:
            for source in sources:
                with self._backend.open(source.bucket, source.name, generation=source.generation) as reader:
                    source.conditions.check_write(reader.info)
                    if delete_sources:
                        self._rules(source.bucket).check_replacement(reader.info, self._clock())
                    read[source.name, source.generation] = reader.info
                    reader.copy_to(staged, budget)
                    count += reader.info.components or 1
            crashpoint("object.compose.staged")
            composed = self._commit(staged, replace(draft, components=count), budget)
        if delete_sources:
            self._delete_read({source: info for source, info in read.items() if info.name != draft.name})
        return composed

    def _delete_read(self, read: Mapping[tuple[str, int | None], ObjectInfo]) -> None:
        for (name, generation), info in read.items():
            conditions = Preconditions(generation=info.generation)
            self._backend.delete(info.bucket, name, conditions, generation=generation)

    def _check_writable(self, bucket: str, principal: Principal) -> None:
        project = self._owner(bucket)
        if not principal.sees(project):
            raise bucket_not_found(bucket)
        if not principal.may(Access.WRITE_OBJECTS, project):
            raise PermissionDeniedError(
                f"This token ({principal.role} of project {project}) may not write to {bucket}."
            )

    def begin(self, draft: ObjectDraft, *, user: str = "") -> str:
        """Start a resumable upload, which survives a restart. Returns its id, with which anyone can continue it."""
        components(draft.name)
        return self._sessions.begin(draft, user=user, project=self._owner(draft.bucket))

    def uploader(self, bucket: str, upload: str) -> tuple[str, str]:
        """Return the user who started an upload, and the project of its bucket. Raises `NotFoundError` if it ended."""
        project = self._owner(bucket)
        return self._sessions.user_of(bucket, upload, project=project), project

    def resume(self, bucket: str, upload: str, name: str) -> UploadSession | ObjectInfo:
        """Return an upload in progress, or the object if it is complete. Raises `NotFoundError` if it is neither."""
        try:
            session = self._sessions.open(bucket, upload)
        except NotFoundError:
            if name:
                info = self._backend.info(bucket, name, checksums=False)
                if info.upload == upload:
                    return info
            raise
        session.check_size = self.room(bucket)
        return session

    def keep(self, session: UploadSession) -> None:
        """Suspend an incomplete upload. The received bytes are on disk."""
        try:
            crashpoint("upload.chunk.received")
            session.sync()
            crashpoint("upload.chunk.synced")
        finally:
            self._sessions.keep(session)

    def suspend(self, session: UploadSession) -> None:
        """Like `keep`, but returns immediately. The received bytes may not be on disk yet."""
        self._sessions.keep(session)

    def finish(
        self, session: UploadSession, budget: WorkBudget | None = None, *, sessions: UploadSessions | None = None
    ) -> ObjectInfo:
        """Commit a complete upload, of `sessions` if it is not resumable. A failed precondition or checksum ends it.

        After `DiskFullError`, `UnavailableError` and what `WorkBudget.check` raises, it can be finished later.
        """
        sessions = sessions or self._sessions
        try:
            if session.draft.traits.is_held:
                self._note_hold(session.draft.bucket)
            info = self._commit(session, session.draft, budget)
        except (DiskFullError, UnavailableError, RequestCancelledError, DeadlineExceededError):
            sessions.keep(session)
            raise
        except BaseException:
            sessions.end(session)
            raise
        crashpoint("upload.finish.committed")
        sessions.end(session)
        return self._with_retention([info])[0]

    def cancel(self, bucket: str, upload: str) -> None:
        self._sessions.end(self._sessions.open(bucket, upload))


def _without_holds(traits: ObjectMetadata) -> ObjectMetadata:
    """Return the metadata of a copy: holds are of the object that got them."""
    return replace(traits, temporary_hold=False, event_based_hold=False, hold_released_us=0)
