"""Resumable uploads: two files per session beside the buckets. A session survives a restart of the server."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from trainshed.buckets.checksums import Checksums
from trainshed.buckets.dirfd import disk_errors
from trainshed.buckets.staging import StagedObject
from trainshed.domain.objects import ObjectDraft, ObjectMetadata, Preconditions
from trainshed.domain.times import now_us
from trainshed.errors import NotFoundError, UnavailableError
from trainshed.node.crashpoints import crashpoint
from trainshed.node.files import DRAFT_PREFIX, write_file

SESSION_RETENTION_US = 7 * 24 * 3600 * 1_000_000  #: without a write
SWEEP_INTERVAL_US = 3600 * 1_000_000  #: between two sweeps; also the minimum age of an orphan
_ID = re.compile(r"[0-9a-f]{32}")
LOG = logging.getLogger("trainshed.buckets")
_MAX_CACHED_CHECKSUMS = 256  #: sessions whose checksums stay in memory between requests


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
        self._folder = folder
        self._clock = clock
        self._swept_us = clock()
        self._lock = threading.Lock()
        self._sums: OrderedDict[str, Checksums] = OrderedDict()

    def begin(self, draft: ObjectDraft, *, user: str = "") -> str:
        """Create a session and return its id. Durable on return."""
        upload = secrets.token_hex(16)
        record = {**asdict(draft), "upload": upload, "user": user}
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

    def user_of(self, bucket: str, upload: str) -> str:
        """The user who created a session. Raises `NotFoundError` if it has ended."""
        try:
            draft, user = _parse_record(self._record_path(upload).read_bytes())
        except FileNotFoundError:
            raise _session_not_found() from None
        if draft.bucket != bucket:
            raise _session_not_found()
        return user

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


def _parse_record(record: bytes) -> tuple[ObjectDraft, str]:
    """The draft of a session and its user. An unreadable record counts as a missing session."""
    try:
        values: dict[str, Any] = dict(orjson.loads(record))
        user = str(values.pop("user"))
        conditions = dict(values["conditions"])
        conditions |= {key: tuple(conditions[key]) for key in ("etags", "etags_not")}
        values |= {"traits": ObjectMetadata(**values["traits"]), "conditions": Preconditions(**conditions)}
        return ObjectDraft(**values), user
    except (ValueError, TypeError, KeyError):
        LOG.warning("upload.unreadable bytes=%d", len(record))  # its id is a credential
        raise _session_not_found() from None
