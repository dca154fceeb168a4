"""Backup archives: one tar file of numbered members, and a manifest that names them and has their checksums.

`backup.json` is the first member and says what the archive is. `files/N` are the contents. `manifest.jsonl` is the last
one: a line for each file and folder, with its path in the state folder. Paths are not member names, because objects can
have names that no archive of strangers may have.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import sqlite3
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trainshed import __version__
from trainshed.backup.contents import plan_path
from trainshed.config import Home
from trainshed.domain.times import now_us, rfc3339
from trainshed.errors import CannotProceedError, DiskFullError
from trainshed.node.crashpoints import crashpoint
from trainshed.node.files import atomic_file
from trainshed.store.sqlite import copy_sqlite, read_schema

FORMAT = 1
HEADER, MANIFEST, FILES_FOLDER = "backup.json", "manifest.jsonl", "files"
ATTRIBUTE = "user.trainshed"
_CHUNK_BYTES = 1 << 20
_DRAFT_PREFIX = "draft-"  #: of folders with a copy of the database
_ALWAYS = ("token", "token-for", "config.toml", "certificates", "models", "hosts", "notebooks", "public")
_ATTEMPT_FILES = ("journal.jsonl", "log.jsonl", "samples.jsonl")
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Progress = Callable[[int, int], None]  #: bytes done and bytes in all


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """What a backup holds."""

    path: str
    size: int  #: bytes of the archive
    files: int
    buckets: bool
    logs: bool
    secret_key: bool  #: whether it has the key of secrets; also if there is none
    skipped: tuple[str, ...]  #: files that can't be read, and special files of buckets
    changed: tuple[str, ...]  #: files that were written to while they were copied


def write_backup(
    home: Home,
    target: Path,
    *,
    buckets: bool = False,
    logs: bool = False,
    secret_key: bool = True,
    progress: Progress = lambda done, total: None,
) -> BackupReport:
    """Write the state folder to the new archive `target`, mode 0600, atomically. A server may run.

    Raises `CannotProceedError` if there is nothing to back up or `target` exists or can't be written. Raises
    `DiskFullError` if the disk is full. Then there is no file.
    """
    if not home.database.exists():
        raise CannotProceedError(f"There is no database in {home.path}, so there is nothing to back up.")
    if plan_path(home).exists():
        raise CannotProceedError(f"A restore into {home.path} was interrupted. Finish it first: `trainshed up` does.")
    if target.exists():
        raise CannotProceedError(f"{target} exists already. Choose another name; a backup replaces no file.")
    try:
        home.backups.mkdir(mode=0o700, exist_ok=True)
        with _scratch_folder(home) as scratch:
            rows = scratch / "state.db"
            copy_sqlite(home.database, rows)
            with atomic_file(target, durable=True) as file:
                report = _write(home, rows, file, _Choice(buckets, logs, secret_key), progress)
                crashpoint("backup.written")
    except sqlite3.Error as exc:
        raise CannotProceedError(f"The database {home.database} can't be copied: {exc}. There is no backup.") from exc
    except OSError as exc:
        raise _write_error(exc, target) from exc
    return BackupReport(path=str(target), size=target.stat().st_size, **report)


@contextmanager
def _scratch_folder(home: Home) -> Iterator[Path]:
    """A folder for the copy of the database. Also removes those of backups that were killed."""
    fd = os.open(home.backups, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(BlockingIOError):  # another backup runs
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in home.backups.glob(f"{_DRAFT_PREFIX}*"):
                shutil.rmtree(left, ignore_errors=True)
        fcntl.flock(fd, fcntl.LOCK_SH)
        with tempfile.TemporaryDirectory(dir=home.backups, prefix=_DRAFT_PREFIX) as scratch:
            yield Path(scratch)
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class _Choice:
    buckets: bool
    logs: bool
    secret_key: bool


def _write_error(exc: OSError, target: Path) -> DiskFullError | CannotProceedError:
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(
            f"The disk is full, so there is no backup {target}. Free some space, or write it to another disk."
        )
    return CannotProceedError(f"The backup {target} can't be written: {exc.strerror or exc}.")


def _write(home: Home, rows: Path, file: BinaryIO, choice: _Choice, progress: Progress) -> dict[str, Any]:
    sources = [("state.db", rows), *_sources(home, rows, choice)]
    total = sum(path.lstat().st_size for _, path in sources if path.is_file())
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        header = {
            "format": FORMAT,
            "version": __version__,
            "schema": read_schema(rows),
            "created": rfc3339(now_us()),
            "buckets": choice.buckets,
            "logs": choice.logs,
        }
        _add_bytes(tar, HEADER, json.dumps(header).encode())
        writer = _Writer(tar, lambda done: progress(min(done, total), total))
        for relative, path in sources:
            writer.add(relative, path)
        _add_bytes(tar, MANIFEST, "".join(json.dumps(line) + "\n" for line in writer.lines).encode())
    return {
        "files": writer.files,
        "buckets": choice.buckets,
        "logs": choice.logs,
        "secret_key": choice.secret_key,
        "skipped": tuple(writer.skipped),
        "changed": tuple(writer.changed),
    }


def _add_bytes(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o600
    tar.addfile(member, io.BytesIO(data))


def _sources(home: Home, rows: Path, choice: _Choice) -> Iterator[tuple[str, Path]]:
    """Paths in the state folder, each below the folders that it is in."""
    names = [
        *_ALWAYS,
        *(["buckets", "noncurrent"] if choice.buckets else []),
        *([home.secret_key.name] if choice.secret_key else []),
    ]
    for name in names:
        yield from _tree(home.path, name)
    for site in sorted(_sites(rows)):
        if Path(site).is_relative_to(home.packages):
            yield from _tree(home.path, Path(site).relative_to(home.path).as_posix())
    if choice.logs:
        for attempt in sorted(home.jobs.glob("*/*/*")):
            for name in _ATTEMPT_FILES:
                if (path := attempt / name).is_file():
                    yield path.relative_to(home.path).as_posix(), path


def _tree(root: Path, name: str) -> Iterator[tuple[str, Path]]:
    top = root / name
    if not top.exists() or top.is_symlink():
        return
    yield name, top
    if not top.is_dir():
        return
    for folder, folders, files in os.walk(top):
        folders.sort()
        for entry in (*folders, *sorted(files)):
            path = Path(folder, entry)
            yield path.relative_to(root).as_posix(), path


def _sites(rows: Path) -> set[str]:
    """The folders of installed packages that versions have."""
    with closing(sqlite3.connect(rows)) as connection:
        details = [json.loads(text) for (text,) in connection.execute("select details from versions")]
    return {str(each["site"]) for each in details if isinstance(each, dict) and each.get("site")}


class _Writer:
    """Adds files to the archive, and lines to its manifest."""

    def __init__(self, tar: tarfile.TarFile, progress: Callable[[int], None]) -> None:
        self.lines: list[Mapping[str, Any]] = []
        self.files = 0
        self.skipped: list[str] = []
        self.changed: list[str] = []
        self._tar = tar
        self._progress = progress
        self._done = 0

    def add(self, relative: str, path: Path) -> None:
        """Add a file or a folder. Links, sockets and pipes are no state; those of buckets are reported."""
        try:
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                if relative.startswith("buckets/"):
                    self.skipped.append(f"{relative}: not a file or folder")
                return
            fd = os.open(path, _OPEN_FLAGS)
        except FileNotFoundError:
            return  # removed meanwhile
        except OSError as exc:
            self.skipped.append(f"{relative}: {exc.strerror}")
            return
        try:
            self._add(relative, fd)
        finally:
            os.close(fd)

    def _add(self, relative: str, fd: int) -> None:
        status = os.fstat(fd)
        line = {"path": relative, "mode": stat.S_IMODE(status.st_mode) & 0o777, "attribute": _attribute(fd)}
        if stat.S_ISDIR(status.st_mode):
            self.lines.append(line | {"folder": True})
            return
        with open(fd, "rb", closefd=False) as file:
            self.lines.append(line | {"mtime_ns": status.st_mtime_ns} | self._content(relative, file, status))

    def _content(self, relative: str, file: BinaryIO, status: os.stat_result) -> dict[str, Any]:
        self.files += 1
        member = tarfile.TarInfo(f"{FILES_FOLDER}/{self.files}")
        member.size, member.mode = status.st_size, 0o600
        content = _Content(file, status.st_size, self._advance)
        self._tar.addfile(member, content)  # type: ignore[arg-type]  # it only reads
        after = os.fstat(file.fileno())
        if (after.st_size, after.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
            self.changed.append(relative)
        return {"member": member.name, "size": content.size, "sha256": content.digest.hexdigest()}

    def _advance(self, size: int) -> None:
        self._done += size
        self._progress(self._done)


class _Content:
    """The bytes of a file as its member has them. If the file gets shorter meanwhile, zeros fill the member."""

    def __init__(self, file: BinaryIO, size: int, advance: Callable[[int], None]) -> None:
        self.size = 0  #: bytes of the file that were read
        self.digest = hashlib.sha256()
        self._file = file
        self._rest = size
        self._advance = advance

    def read(self, size: int) -> bytes:
        data = self._file.read(min(size, self._rest))
        self.size += len(data)
        self.digest.update(data)
        self._rest -= len(data)
        self._advance(len(data))
        if len(data) < size and self._rest:
            filler = b"\0" * min(size - len(data), self._rest)
            self._rest -= len(filler)
            return data + filler
        return data


def _attribute(fd: int) -> str | None:
    """The metadata of an object, in base64."""
    try:
        return base64.b64encode(os.getxattr(fd, ATTRIBUTE)).decode()
    except OSError as exc:
        if exc.errno != errno.ENODATA:
            raise
        return None
