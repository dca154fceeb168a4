"""Uploads in parts: begin, parts in any order, complete, cancel. Callers check authorization before."""

from __future__ import annotations

from collections.abc import Sequence

from trainshed.buckets.names import components
from trainshed.buckets.staging import StagedObject
from trainshed.buckets.uploads import MIN_PART_BYTES, PartSessions, PartUpload, UploadPart
from trainshed.domain.objects import ObjectDraft, ObjectInfo
from trainshed.domain.work_budget import WorkBudget
from trainshed.errors import InvalidArgumentError, NotFoundError
from trainshed.services.storage.objects import Objects, ObjectSource

__all__ = ["PartUpload", "PartUploads", "UploadPart"]


class PartUploads:
    """The uploads in parts of all buckets. Thread-safe."""

    def __init__(self, objects: Objects, sessions: PartSessions) -> None:
        self._objects = objects
        self._sessions = sessions

    def sweep(self) -> None:
        """Remove what was given up. Call it only before the first request."""
        self._sessions.sweep()

    def begin(self, draft: ObjectDraft, *, user: str) -> str:
        """Begin an upload. Returns its id."""
        components(draft.name)
        return self._sessions.begin(draft, user=user, project=self._objects.owner(draft.bucket))

    def add(
        self, bucket: str, upload: str, number: int, *, staged: StagedObject | None, rest: bytes, draft: ObjectDraft
    ) -> UploadPart:
        """Append the last bytes to a part and keep it. The staged file is gone or the part's in every case."""
        with staged or self._objects.stage(draft) as file:
            self._check(ObjectSource(bucket=bucket, name=draft.name), upload)
            file.write(rest)
            return self._sessions.add(bucket, upload, number, file, draft)

    def parts(self, source: ObjectSource, upload: str) -> list[UploadPart]:
        """Return the parts of an upload by number. Raises `NotFoundError` if it is not one of this object."""
        self._check(source, upload)
        return self._sessions.parts(source.bucket, upload)

    def uploads(self, bucket: str, *, prefix: str) -> list[PartUpload]:
        """Return the uploads of a bucket by name."""
        there = self._sessions.uploads(bucket, project=self._objects.owner(bucket))
        found = [each for each in there if each.name.startswith(prefix)]
        return sorted(found, key=lambda each: (each.name, each.begun_us))

    def complete(
        self, source: ObjectSource, upload: str, wanted: Sequence[tuple[int, str]], budget: WorkBudget
    ) -> ObjectInfo:
        """Make the parts an object. `wanted` has their numbers and etags. A completed upload is the object again."""
        try:
            chosen = self._chosen(source, upload, wanted)
            session = self._sessions.open(source.bucket, upload)
        except NotFoundError:
            if self._objects.exists(source.bucket, source.name):
                info = self._objects.get(ObjectSource(bucket=source.bucket, name=source.name))
                if info.upload == upload:
                    return info
            raise
        try:
            session.check_size = self._objects.room(source.bucket)
            self._sessions.join(session, chosen, budget)
        except BaseException:
            self._sessions.keep(session)
            raise
        return self._objects.finish(session, budget, sessions=self._sessions)

    def _chosen(self, source: ObjectSource, upload: str, wanted: Sequence[tuple[int, str]]) -> list[UploadPart]:
        there = {(part.number, part.etag): part for part in self.parts(source, upload)}
        numbers = [number for number, _ in wanted]
        if not numbers or numbers != sorted(set(numbers)):
            raise InvalidArgumentError("A completed upload lists its parts once each, by number, and at least one.")
        if missing := [number for number, etag in wanted if (number, etag) not in there]:
            raise InvalidArgumentError(
                f"Part {missing[0]} was not received, or has another ETag. List the parts of the upload."
            )
        chosen = [there[each] for each in wanted]
        if small := [part.number for part in chosen[:-1] if part.size < MIN_PART_BYTES]:
            raise InvalidArgumentError(
                f"Part {small[0]} has fewer than {MIN_PART_BYTES >> 20} MiB, which only the last part may."
            )
        return chosen

    def cancel(self, source: ObjectSource, upload: str) -> None:
        self._check(source, upload)
        self._sessions.end(self._sessions.open(source.bucket, upload))

    def _check(self, source: ObjectSource, upload: str) -> None:
        self._sessions.check(source.bucket, upload, source.name, project=self._objects.owner(source.bucket))
