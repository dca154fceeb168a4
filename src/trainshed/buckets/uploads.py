"""Resumable uploads: two files per session beside the buckets. A session survives a restart of the server.

An upload in parts, of the XML API, has one more file for each part. The name of that file has the part's number and its
MD5, so a part is complete when its file is there.
"""

from __future__ import annotations

import base64
import fcntl
import logging
import os
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from trainshed.buckets.checksums import PIECE, Checksums
from trainshed.buckets.dirfd import disk_errors
from trainshed.buckets.staging import StagedObject
from trainshed.domain.objects import ObjectDraft, ObjectMetadata, Preconditions
from trainshed.domain.times import now_us
from trainshed.domain.work_budget import WorkBudget
from trainshed.errors import InvalidArgumentError, NotFoundError, UnavailableError
from trainshed.node.crashpoints import crashpoint
from trainshed.node.files import DRAFT_PREFIX, sync_folder, write_file

SESSION_RETENTION_US = 7 * 24 * 3600 * 1_000_000  #: without a write
SWEEP_INTERVAL_US = 3600 * 1_000_000  #: between two sweeps; also the minimum age of an orphan
_ID = re.compile(r"[0-9a-f]{32}")
LOG = logging.getLogger("trainshed.buckets")
MAX_PARTS = 10_000  #: of an upload in parts
MIN_PART_BYTES = 5 << 20  #: of all parts but the last
_PART = re.compile(r"session-([0-9a-f]{32})\.part-(\d{5})-([0-9a-f]{32})")
_MAX_CACHED_CHECKSUMS = 256  #: sessions whose checksums stay in memory between requests


class Starter(NamedTuple):
    """Who began a session."""

    user: str
    project: str  #: of the bucket at that time


class UploadSession(StagedObject):
    """One upload session, locked by this request until it is closed. `draft` is from its creation."""

    def __init__(self, path: Path, fd: int, draft: ObjectDraft, sums: Checksums | None) -> None:
        super().__init__(path, fd, sums)
        self.draft = draft

    def restart(self) -> None:
        """Discard the bytes received so far."""
        os.ftruncate(self.fd, 0)
        self.size, self.sums, self.known = 0, Checksums(), None

    def sync(self) -> None:
        with disk_errors():
            os.fdatasync(self.fd)


class UploadSessions:
    """The resumable uploads of one server. Thread-safe."""

    def __init__(self, folder: Path, *, clock: Callable[[], int] = now_us) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._clock = clock
        self._swept_us = clock()
        self._lock = threading.Lock()
        self._sums: OrderedDict[str, Checksums] = OrderedDict()

    def begin(self, draft: ObjectDraft, *, user: str = "", project: str = "") -> str:
        """Create a session and return its id. `project` is that of the bucket. Durable on return."""
        upload = secrets.token_hex(16)
        record = {**asdict(draft), "upload": upload, "user": user, "project": project}
        path, data = self._record_path(upload), self._data_path(upload)
        self._sweep_if_due()
        with disk_errors():
            write_file(data, b"", durable=True)
            crashpoint("upload.begin.data_written")
            write_file(path, orjson.dumps(record), durable=True)
            crashpoint("upload.begin.recorded")
        return upload

    def open(self, bucket: str, upload: str) -> UploadSession:
        """Open a session with the bytes it has received.

        Raises `NotFoundError` if it has ended, and `UnavailableError` while another request uses it.
        """
        try:
            draft, _ = _parse_record(self._record_path(upload).read_bytes())
            fd = os.open(self._data_path(upload), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise _session_not_found() from None
        try:
            if draft.bucket != bucket:
                raise _session_not_found()
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_same_file(fd, self._data_path(upload)):
                raise _session_not_found()  # it became an object or expired before the lock was acquired
            return UploadSession(
                self._data_path(upload), fd, draft, self._cached_checksums(upload, os.fstat(fd).st_size)
            )
        except BlockingIOError:
            os.close(fd)
            raise UnavailableError("Another request is still sending to this upload. Try again in a moment.") from None
        except BaseException:
            os.close(fd)
            raise

    def user_of(self, bucket: str, upload: str, *, project: str) -> str:
        """The user who created a session. Raises `NotFoundError` if it has ended, or is not of this project.

        The bucket of then may be gone, and another project may have one of its name.
        """
        _, starter = self._record(bucket, upload)
        if starter.project != project:
            raise _session_not_found()
        return starter.user

    def _record(self, bucket: str, upload: str) -> tuple[ObjectDraft, Starter]:
        try:
            draft, starter = _parse_record(self._record_path(upload).read_bytes())
        except FileNotFoundError:
            raise _session_not_found() from None
        if draft.bucket != bucket:
            raise _session_not_found()
        return draft, starter

    def keep(self, session: UploadSession) -> None:
        """Release a session that will continue, in this process or the next."""
        if session.sums is not None:
            with self._lock:
                self._sums[session.draft.upload] = session.sums
                if len(self._sums) > _MAX_CACHED_CHECKSUMS:
                    self._sums.popitem(last=False)
        session.close()

    def end(self, session: UploadSession) -> None:
        """Delete the files of a session that became an object or was cancelled."""
        with self._lock:
            self._sums.pop(session.draft.upload, None)
        session.path.unlink(missing_ok=True)  # while it is locked: a request that waits for the lock must find it gone
        self._record_path(session.draft.upload).unlink(missing_ok=True)
        session.close()

    def sweep(self) -> None:
        """Delete sessions that are idle for a week, and incomplete ones that are an hour old.

        What cannot be read or deleted is logged and stays.
        """
        now = self._clock()
        for path in sorted([*self._folder.glob("session-*"), *self._folder.glob(f"{DRAFT_PREFIX}*")]):
            try:
                self._sweep_one(path, now)
            except OSError as exc:
                LOG.warning("upload.kept path=%s reason=%r", path, str(exc))

    def _sweep_if_due(self) -> None:
        with self._lock:
            now = self._clock()
            if now - self._swept_us < SWEEP_INTERVAL_US:
                return
            self._swept_us = now
        self.sweep()

    def _sweep_one(self, path: Path, now: int) -> None:
        upload = path.name.removeprefix("session-").removeprefix(DRAFT_PREFIX).partition(".")[0]
        if not _ID.fullmatch(upload):
            LOG.warning("upload.kept path=%s reason='it is not the name of an upload'", path)
            return
        data, record = self._data_path(upload), self._record_path(upload)
        complete = data.exists() and record.exists()
        try:
            idle = now - (data if complete else path).stat().st_mtime_ns // 1000
            if idle < (SESSION_RETENTION_US if complete else SWEEP_INTERVAL_US):
                return
            if not complete:
                path.unlink()
                return
            with open(data, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                data.unlink()
                record.unlink(missing_ok=True)
        except FileNotFoundError:
            return  # it ended meanwhile
        except BlockingIOError:
            return  # a request continues it now

    def _cached_checksums(self, upload: str, size: int) -> Checksums | None:
        with self._lock:
            sums = self._sums.pop(upload, None)
        if sums is not None and sums.size == size:
            return sums
        return None if size else Checksums()

    def _record_path(self, upload: str) -> Path:
        return self._folder / f"session-{_check_id(upload)}.json"

    def _data_path(self, upload: str) -> Path:
        return self._folder / f"session-{_check_id(upload)}.data"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadPart:
    """A part that was received."""

    number: int
    etag: str  #: its MD5 in hex
    size: int
    modified_us: int
    path: Path
    crc32c: str = ""  #: known when it was received


@dataclass(frozen=True, slots=True, kw_only=True)
class PartUpload:
    """An upload in parts that is not complete."""

    upload: str
    name: str
    begun_us: int


class PartSessions(UploadSessions):
    """The uploads in parts of one server, in a folder of their own. Thread-safe."""

    def add(self, bucket: str, upload: str, number: int, staged: StagedObject, draft: ObjectDraft) -> UploadPart:
        """Make a staged file a part. It replaces an earlier part of that number. Durable on return.

        Raises `InvalidArgumentError` if its checksum is not that of `draft`, and `NotFoundError` if there is no such
        upload.
        """
        md5, crc32c = staged.seal(draft)
        etag = base64.b64decode(md5).hex()
        path = self._part_path(upload, number, etag)
        self._record(bucket, upload)
        earlier = [part for part in self._stored(upload) if part.number == number]
        with disk_errors():
            os.fdatasync(staged.fd)
            staged.path.rename(path)
            sync_folder(path.parent)
            crashpoint("upload.part.recorded")
            for part in earlier:
                if part.path != path:
                    part.path.unlink(missing_ok=True)
            os.utime(self._data_path(upload))  # the upload is not idle
        return replace(_part(path), crc32c=crc32c)

    def check(self, bucket: str, upload: str, name: str, *, project: str) -> None:
        """Raises `NotFoundError` if an upload is not one of this object, for which alone its request is allowed."""
        draft, starter = self._record(bucket, upload)
        if draft.name != name or starter.project != project:
            raise _session_not_found()

    def parts(self, bucket: str, upload: str) -> list[UploadPart]:
        """Return the parts of an upload by number. Raises `NotFoundError` if there is no such upload."""
        self._record(bucket, upload)
        newest = {part.number: part for part in sorted(self._stored(upload), key=lambda part: part.modified_us)}
        return [newest[number] for number in sorted(newest)]

    def uploads(self, bucket: str, *, project: str | None = None) -> Iterator[PartUpload]:
        """Yield the uploads of a bucket that were begun in this project; None: in any."""
        for path in sorted(self._folder.glob("session-*.json")):
            upload = path.stem.removeprefix("session-")
            try:
                draft, starter = self._record(bucket, upload)
                begun_us = path.stat().st_mtime_ns // 1000
            except (NotFoundError, FileNotFoundError):
                continue  # of another bucket, or it has ended
            if project in (None, starter.project):
                yield PartUpload(upload=upload, name=draft.name, begun_us=begun_us)

    def join(self, session: UploadSession, parts: Sequence[UploadPart], budget: WorkBudget) -> None:
        """Write the parts into the session, one after another. Raises what `WorkBudget.check` raises."""
        session.restart()  # an earlier attempt may have been interrupted
        for part in parts:
            with part.path.open("rb") as file:
                while data := file.read(PIECE):
                    budget.check(len(data))
                    session.write(data)

    def end(self, session: UploadSession) -> None:
        super().end(session)
        for path in self._folder.glob(f"{session.path.stem}.part-*"):
            path.unlink(missing_ok=True)

    def _stored(self, upload: str) -> Iterator[UploadPart]:
        """Yield all parts on the disk. A part that was replaced is there until the server has removed it."""
        return map(_part, self._folder.glob(f"{self._data_path(upload).stem}.part-*"))

    def _part_path(self, upload: str, number: int, etag: str) -> Path:
        if not 1 <= number <= MAX_PARTS:
            raise InvalidArgumentError(f"The number of a part is 1 to {MAX_PARTS:,}; this one is {number:,}.")
        return self._data_path(upload).with_suffix(f".part-{number:05d}-{etag}")


def _part(path: Path) -> UploadPart:
    match = _PART.fullmatch(path.name)
    if match is None:
        raise NotFoundError(f"{path.name} is no part of an upload.")
    status = path.stat()
    modified_us = status.st_mtime_ns // 1000
    return UploadPart(number=int(match[2]), etag=match[3], size=status.st_size, modified_us=modified_us, path=path)


def _check_id(upload: str) -> str:
    if not _ID.fullmatch(upload):
        raise _session_not_found()
    return upload


def _is_same_file(fd: int, path: Path) -> bool:
    """Whether the open file is still the one at that path."""
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


def _session_not_found() -> NotFoundError:
    return NotFoundError("There is no such upload: it was finished, cancelled or given up. Begin a new one.")


def _parse_record(record: bytes) -> tuple[ObjectDraft, Starter]:
    """The draft of a session and who began it. An unreadable record counts as a missing session."""
    try:
        values: dict[str, Any] = dict(orjson.loads(record))
        starter = Starter(str(values.pop("user")), str(values.pop("project")))
        conditions = dict(values["conditions"])
        conditions |= {key: tuple(conditions[key]) for key in ("etags", "etags_not")}
        values |= {"traits": ObjectMetadata(**values["traits"]), "conditions": Preconditions(**conditions)}
        return ObjectDraft(**values), starter
    except (ValueError, TypeError, KeyError):
        LOG.warning("upload.unreadable bytes=%d", len(record))  # its id is a credential
        raise _session_not_found() from None
