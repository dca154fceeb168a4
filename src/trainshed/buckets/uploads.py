"""Resumable uploads: two files a session beside the buckets, so that a session outlives the server that began it."""

from __future__ import annotations

import fcntl
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
from trainshed.buckets.folders import disk_errors
from trainshed.buckets.staging import Staged
from trainshed.domain.objects import Conditions, Draft, Traits
from trainshed.domain.times import now_us
from trainshed.errors import NotFound, Unavailable

KEPT_US = 7 * 24 * 3600 * 1_000_000  #: a session not written to for this long is given up
_ID = re.compile(r"[0-9a-f]{32}")
_REMEMBERED = 256  #: sessions whose checksums are kept in memory between requests


class Session(Staged):
    """One session, held by this request alone until it is closed. `draft` is what was said when it began."""

    def __init__(self, path: Path, fd: int, draft: Draft, sums: Checksums | None) -> None:
        super().__init__(path, fd, sums)
        self.draft = draft

    def restart(self) -> None:
        """Forget the bytes received so far."""
        os.ftruncate(self.fd, 0)
        self.size, self.sums, self.known = 0, Checksums(), None

    def sync(self) -> None:
        with disk_errors():
            os.fdatasync(self.fd)


class Sessions:
    """The resumable uploads of one server. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._sums: OrderedDict[str, Checksums] = OrderedDict()

    def begin(self, draft: Draft) -> str:
        """A new session's id. It is on the disk when this returns."""
        upload = secrets.token_hex(16)
        record = {**asdict(draft), "upload": upload}
        path, data = self._record(upload), self._data(upload)
        with disk_errors():
            data.touch(mode=0o600, exist_ok=False)
            fresh = path.with_suffix(".new")
            fresh.write_bytes(orjson.dumps(record))
            fresh.rename(path)
        return upload

    def open(self, bucket: str, upload: str) -> Session:
        """The session, with what it has received. `NotFound` once it has ended; `Unavailable` while another uses it."""
        try:
            draft = _draft(orjson.loads(self._record(upload).read_bytes()))
            fd = os.open(self._data(upload), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise _gone() from None
        try:
            if draft.bucket != bucket:
                raise _gone()
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Session(self._data(upload), fd, draft, self._remembered(upload, os.fstat(fd).st_size))
        except BlockingIOError:
            os.close(fd)
            raise Unavailable("Another request is still sending to this upload. Try again in a moment.") from None
        except BaseException:
            os.close(fd)
            raise

    def keep(self, session: Session) -> None:
        """Let go of a session that is to go on, in this process or the next."""
        if session.sums is not None:
            with self._lock:
                self._sums[session.draft.upload] = session.sums
                if len(self._sums) > _REMEMBERED:
                    self._sums.popitem(last=False)
        session.close()

    def end(self, session: Session) -> None:
        """Remove what is left of a session: it has become an object, or was given up."""
        with self._lock:
            self._sums.pop(session.draft.upload, None)
        session.discard()
        self._record(session.draft.upload).unlink(missing_ok=True)

    def sweep(self, *, now: Callable[[], int] = now_us) -> None:
        """Remove sessions that nobody has gone on with for a week, and halves of sessions."""
        for path in self._folder.glob("session-*"):
            upload = path.name.removeprefix("session-").partition(".")[0]
            data = self._data(upload)
            whole = data.exists() and self._record(upload).exists()
            if not whole or data.stat().st_mtime_ns // 1000 < now() - KEPT_US:
                path.unlink(missing_ok=True)

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


def _gone() -> NotFound:
    return NotFound("There is no such upload: it was finished, cancelled or given up. Begin a new one.")


def _draft(record: dict[str, Any]) -> Draft:
    values = dict(record)
    conditions = dict(values["conditions"])
    conditions |= {key: tuple(conditions[key]) for key in ("etags", "etags_not")}
    values |= {"traits": Traits(**values["traits"]), "conditions": Conditions(**conditions)}
    return Draft(**values)
