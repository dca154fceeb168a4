"""Resumable uploads: two files a session beside the buckets, so that a session outlives the server that began it."""

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

KEPT_US = 7 * 24 * 3600 * 1_000_000  #: a session not written to for this long is given up
SWEEP_US = 3600 * 1_000_000  #: how often sessions are looked through, and how old a half of one must be to be an orphan
_ID = re.compile(r"[0-9a-f]{32}")
LOG = logging.getLogger("trainshed.buckets")
_REMEMBERED = 256  #: sessions whose checksums are kept in memory between requests


class UploadSession(StagedObject):
    """One session, held by this request alone until it is closed. `draft` is what was said when it began."""

    def __init__(self, path: Path, fd: int, draft: ObjectDraft, sums: Checksums | None) -> None:
        super().__init__(path, fd, sums)
        self.draft = draft

    def restart(self) -> None:
        """Forget the bytes received so far."""
        os.ftruncate(self.fd, 0)
        self.size, self.sums, self.known = 0, Checksums(), None

    def sync(self) -> None:
        with disk_errors():
            os.fdatasync(self.fd)


class UploadSessions:
    """The resumable uploads of one server. Threads may share it."""

    def __init__(self, folder: Path, *, clock: Callable[[], int] = now_us) -> None:
        self._folder = folder
        self._clock = clock
        self._swept_us = clock()
        self._lock = threading.Lock()
        self._sums: OrderedDict[str, Checksums] = OrderedDict()

    def begin(self, draft: ObjectDraft) -> str:
        """A new session's id. It is on the disk when this returns."""
        upload = secrets.token_hex(16)
        record = {**asdict(draft), "upload": upload}
        path, data = self._record(upload), self._data(upload)
        self._sweep_at_times()
        with disk_errors():
            _write_durably(data, b"")
            fresh = path.with_suffix(".new")
            _write_durably(fresh, orjson.dumps(record))
            fresh.rename(path)
            _sync_folder(self._folder)
        return upload

    def open(self, bucket: str, upload: str) -> UploadSession:
        """The session, with what it has received.

        `NotFoundError` once it has ended; `UnavailableError` while another uses it.
        """
        try:
            draft = _draft(self._record(upload).read_bytes())
            fd = os.open(self._data(upload), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise _gone() from None
        try:
            if draft.bucket != bucket:
                raise _gone()
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(fd, self._data(upload)):
                raise _gone()  # it became an object, or was given up, before the lock was ours
            return UploadSession(self._data(upload), fd, draft, self._remembered(upload, os.fstat(fd).st_size))
        except BlockingIOError:
            os.close(fd)
            raise UnavailableError("Another request is still sending to this upload. Try again in a moment.") from None
        except BaseException:
            os.close(fd)
            raise

    def keep(self, session: UploadSession) -> None:
        """Let go of a session that is to go on, in this process or the next."""
        if session.sums is not None:
            with self._lock:
                self._sums[session.draft.upload] = session.sums
                if len(self._sums) > _REMEMBERED:
                    self._sums.popitem(last=False)
        session.close()

    def end(self, session: UploadSession) -> None:
        """Remove what is left of a session: it has become an object, or was given up."""
        with self._lock:
            self._sums.pop(session.draft.upload, None)
        session.path.unlink(missing_ok=True)  # while it is locked: who waits for the lock must find it gone
        self._record(session.draft.upload).unlink(missing_ok=True)
        session.close()

    def sweep(self) -> None:
        """Remove sessions that nobody has gone on with for a week, and halves of sessions that are an hour old.

        What can't be looked at or removed is logged and stays.
        """
        now = self._clock()
        for path in sorted(self._folder.glob("session-*")):
            try:
                self._sweep_one(path, now)
            except OSError as exc:
                LOG.warning("upload.kept path=%s reason=%r", path, str(exc))

    def _sweep_at_times(self) -> None:
        with self._lock:
            now = self._clock()
            if now - self._swept_us < SWEEP_US:
                return
            self._swept_us = now
        self.sweep()

    def _sweep_one(self, path: Path, now: int) -> None:
        upload = path.name.removeprefix("session-").partition(".")[0]
        if not _ID.fullmatch(upload):
            LOG.warning("upload.kept path=%s reason='it is not the name of an upload'", path)
            return
        data, record = self._data(upload), self._record(upload)
        whole = data.exists() and record.exists()
        try:
            idle = now - (data if whole else path).stat().st_mtime_ns // 1000
            if idle < (KEPT_US if whole else SWEEP_US):
                return
            if not whole:
                path.unlink()
                return
            with open(data, "rb") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                data.unlink()
                record.unlink(missing_ok=True)
        except FileNotFoundError:
            return  # it ended by itself
        except BlockingIOError:
            return  # somebody goes on with it now

    def _remembered(self, upload: str, size: int) -> Checksums | None:
        with self._lock:
            sums = self._sums.pop(upload, None)
        if sums is not None and sums.size == size:
            return sums
        return None if size else Checksums()

    def _record(self, upload: str) -> Path:
        return self._folder / f"session-{_checked(upload)}.json"

    def _data(self, upload: str) -> Path:
        return self._folder / f"session-{_checked(upload)}.data"


def _checked(upload: str) -> str:
    if not _ID.fullmatch(upload):
        raise _gone()
    return upload


def _is_at(fd: int, path: Path) -> bool:
    """Whether the open file is still the one at that path."""
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


def _gone() -> NotFoundError:
    return NotFoundError("There is no such upload: it was finished, cancelled or given up. Begin a new one.")


def _write_durably(path: Path, data: bytes) -> None:
    """A new file that is on the disk; its name is once the folder is synced."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _draft(record: bytes) -> ObjectDraft:
    """What was said when a session began. A record that can't be read is as good as none."""
    try:
        values: dict[str, Any] = dict(orjson.loads(record))
        conditions = dict(values["conditions"])
        conditions |= {key: tuple(conditions[key]) for key in ("etags", "etags_not")}
        values |= {"traits": ObjectMetadata(**values["traits"]), "conditions": Preconditions(**conditions)}
        return ObjectDraft(**values)
    except (ValueError, TypeError, KeyError):
        LOG.warning("upload.unreadable record=%r", record[:200])
        raise _gone() from None
