"""Restore: unpack and check beside the state, commit a plan, then move everything into its place.

The plan is the commit: before it is on disk, a crash leaves the old state; after it, the next server or restore goes on
from it. What is replaced is moved to `replaced`, not removed.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from trainshed.backup.archive import ATTRIBUTE, FILES_FOLDER, FORMAT, HEADER, MANIFEST, Progress
from trainshed.backup.contents import REPLACED_FOLDER, RESTORE_FOLDER, plan_path, restorable
from trainshed.config import Home
from trainshed.errors import CannotProceedError, DiskFullError
from trainshed.node.archives.extract import BadArchiveError, Limits, extract
from trainshed.node.crashpoints import crashpoint
from trainshed.node.files import sync_folder, write_file
from trainshed.state_lock import hold_lock
from trainshed.store.database import LATEST_SCHEMA
from trainshed.store.sqlite import check_sqlite, copy_sqlite, is_sqlite, read_schema

_CHUNK_BYTES = 1 << 20
_UNLIMITED = 1 << 62
_DATABASE_FILES = ("state.db", "state.db-wal", "state.db-shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """What a restore did."""

    home: str
    restored: tuple[str, ...]  #: parts of the state folder
    replaced: str  #: the folder with what was there before; empty if there was nothing
    unreadable_secrets: int  #: secrets whose key is not in the state folder


def restore(
    home: Home, backup: Path, *, replace: bool = False, progress: Progress = lambda done, total: None
) -> RestoreReport:
    """Restore an archive of `write_backup`, or a copy of the database that the server made. No server may run.

    Raises `CannotProceedError` if the backup is damaged or of a newer version, or if it would replace something and
    `replace` is false; `DiskFullError` if the disk is full. Nothing has changed then.
    """
    if not backup.is_file():
        raise CannotProceedError(f"There is no file {backup}.")
    home.create()
    with hold_lock(home):
        finish_restore(home)
        try:
            with _disk_errors(home, backup):
                (home.path / RESTORE_FOLDER).mkdir(mode=0o700)
                paths = _stage(home, backup, progress)
                _refuse_replacing(home, paths, replace=replace)
                crashpoint("restore.staged")
                moved_to = home.path / REPLACED_FOLDER / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
                plan = {"paths": paths, "replaced": str(moved_to.relative_to(home.path))}
                write_file(plan_path(home), json.dumps(plan).encode(), durable=True)
                crashpoint("restore.planned")
        except BaseException:
            if not plan_path(home).exists():
                shutil.rmtree(home.path / RESTORE_FOLDER, ignore_errors=True)
            raise
        finish_restore(home)
    tops = tuple(sorted({path.partition("/")[0] for path in paths}))
    return RestoreReport(
        home=str(home.path),
        restored=tops,
        replaced=str(moved_to) if moved_to.exists() else "",
        unreadable_secrets=_unreadable_secrets(home),
    )


def _unreadable_secrets(home: Home) -> int:
    """Count the secrets whose key is not in the state folder."""
    with closing(sqlite3.connect(home.database)) as connection:
        tables = connection.execute("select name from sqlite_master where name = 'secrets'").fetchall()
        used = [key_id for (key_id,) in connection.execute("select key_id from secrets")] if tables else []
    try:
        known = set(json.loads(home.secret_key.read_bytes())["keys"])
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        known = set()  # such a file opens nothing either
    return sum(key_id not in known for key_id in used)


def finish_restore(home: Home) -> bool:
    """Go on with a restore that was committed and interrupted, and remove one that was not. Needs the folder's lock.

    Returns whether there was a committed one. Idempotent.
    """
    try:
        plan = json.loads(plan_path(home).read_bytes())
    except FileNotFoundError:
        shutil.rmtree(home.path / RESTORE_FOLDER, ignore_errors=True)
        return False
    for path in plan["paths"]:
        staged, target = home.path / RESTORE_FOLDER / "new" / path, home.path / path
        if not staged.exists():
            continue  # moved before the interruption
        for old in _replaced_by(path):
            if (home.path / old).exists():
                _move(home.path / old, home.path / plan["replaced"] / old)
        _move(staged, target)
    plan_path(home).unlink()
    crashpoint("restore.finished")
    sync_folder(home.path / RESTORE_FOLDER)
    shutil.rmtree(home.path / RESTORE_FOLDER)
    return True


def _replaced_by(path: str) -> tuple[str, ...]:
    """What a path replaces: the database's own files go together."""
    return _DATABASE_FILES if path == "state.db" else (path,)


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    source.rename(target)
    crashpoint("restore.moved")
    sync_folder(target.parent)
    sync_folder(source.parent)


@contextmanager
def _disk_errors(home: Home, backup: Path) -> Iterator[None]:
    try:
        yield
    except BadArchiveError as exc:
        raise CannotProceedError(f"{exc} Nothing was restored. Use another backup.") from exc
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"The disk of {home.path} is full, so nothing was restored. Free some space, as {backup} needs it "
                f"unpacked, and try again."
            ) from exc
        raise CannotProceedError(f"{backup} can't be restored: {exc}. Nothing has changed.") from exc


def _stage(home: Home, backup: Path, progress: Progress) -> list[str]:
    """Fill `restore/new` with the checked content of a backup. Returns the paths that are to be moved."""
    new = home.path / RESTORE_FOLDER / "new"
    new.mkdir(mode=0o700)
    if is_sqlite(backup):
        _check_database(backup, backup)
        copy_sqlite(backup, new / "state.db")
        return ["state.db"]
    unpacked = home.path / RESTORE_FOLDER / "unpacked"
    unpacked.mkdir(mode=0o700)
    extract(str(backup), str(unpacked), Limits(members=_UNLIMITED, size=_UNLIMITED, ratio=_UNLIMITED))
    _check_header(unpacked, backup)
    lines = _read_manifest(unpacked, backup)
    total, done = sum(line.get("size", 0) for line in lines), 0
    for line in lines:
        _place(line, unpacked, new, backup)
        done += line.get("size", 0)
        progress(done, total)
    _check_database(new / "state.db", backup)
    for line in reversed(lines):
        if line.get("folder"):
            (new / line["path"]).chmod(line["mode"] & 0o755 | 0o700)
            sync_folder(new / line["path"])
    sync_folder(new)
    return sorted(_units(home, lines))


def _units(home: Home, lines: list[Mapping[str, Any]]) -> set[str]:
    """What is moved as one: whole parts of the state folder, packages one by one, and attempts that are not there."""
    units = set()
    for line in lines:
        parts = PurePosixPath(line["path"]).parts
        if parts[0] not in ("jobs", "packages"):
            units.add(parts[0])
        elif parts[0] == "packages":
            units.add("/".join(parts[:3]))
        elif not (home.path / "/".join(parts[:4])).exists():
            units.add("/".join(parts[:4]))
    return units


def _check_header(unpacked: Path, backup: Path) -> None:
    header = _json(unpacked / HEADER, backup)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        found = header.get("format") if isinstance(header, dict) else None
        raise CannotProceedError(
            f"{backup} is a backup of format {found!r}, and this Trainshed knows {FORMAT}. Install the version that "
            f"wrote it."
        )


def _json(path: Path, backup: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError) as exc:
        raise CannotProceedError(f"{backup} is no backup of Trainshed: it has no {path.name}.") from exc


def _read_manifest(unpacked: Path, backup: Path) -> list[Mapping[str, Any]]:
    try:
        text = (unpacked / MANIFEST).read_text()
        lines: list[Mapping[str, Any]] = [json.loads(line) for line in text.splitlines()]
        for line in lines:
            _check_line(line)
    except (FileNotFoundError, ValueError, KeyError, TypeError) as exc:
        raise CannotProceedError(f"The backup {backup} is damaged: its {MANIFEST} can't be used ({exc}).") from exc
    return lines


def _check_line(line: Mapping[str, Any]) -> None:
    """Raises ValueError, KeyError or TypeError unless this is a line that a backup can have."""
    parts = str(line["path"]).split("/")
    if not restorable(parts[0]) or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(f"the path {line['path']!r}")
    if line.get("folder"):
        return
    number = str(line["member"]).removeprefix(f"{FILES_FOLDER}/")
    if line["size"] < 0 or not number.isdigit() or line["mtime_ns"] < 0 or line["mode"] & ~0o777:
        raise ValueError(f"the member of {line['path']!r}")


def _place(line: Mapping[str, Any], unpacked: Path, new: Path, backup: Path) -> None:
    """Give a member the path, the bytes and the metadata of its line. Raises `CannotProceedError` if it is damaged."""
    target = new / line["path"]
    if line.get("folder"):
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        _set_attribute(target, line)
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        (unpacked / line["member"]).rename(target)
    except FileNotFoundError as exc:
        raise _damaged(backup, line) from exc
    with open(target, "rb+") as file:
        file.truncate(line["size"])
        digest = hashlib.sha256()
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
        if digest.hexdigest() != line["sha256"]:
            raise _damaged(backup, line)
        _set_attribute(target, line)
        os.fchmod(file.fileno(), line["mode"] & 0o755)
        os.utime(file.fileno(), ns=(line["mtime_ns"], line["mtime_ns"]))
        os.fsync(file.fileno())


def _set_attribute(target: Path, line: Mapping[str, Any]) -> None:
    if line.get("attribute"):
        os.setxattr(target, ATTRIBUTE, base64.b64decode(line["attribute"]))


def _damaged(backup: Path, line: Mapping[str, Any]) -> CannotProceedError:
    return CannotProceedError(
        f"The backup {backup} is damaged: the bytes of {line['path']} are not those that were stored. Nothing was "
        f"restored. Use another backup."
    )


def _check_database(database: Path, backup: Path) -> None:
    """Raises `CannotProceedError` if the database of a backup is damaged, or newer than this program."""
    try:
        check_sqlite(database)
        schema = read_schema(database)
    except (CannotProceedError, sqlite3.Error) as exc:
        raise CannotProceedError(f"The backup {backup} can't be used: its database is damaged. ({exc})") from exc
    if schema > LATEST_SCHEMA:
        raise CannotProceedError(
            f"The backup {backup} was made by a newer Trainshed (schema {schema}; this one knows {LATEST_SCHEMA}). "
            f"Install that version, or a newer one."
        )


def _refuse_replacing(home: Home, paths: list[str], *, replace: bool) -> None:
    there = [path for path in paths if _occupied(home.path / path)]
    if there and not replace:
        shown = ", ".join(there[:5]) + (f" and {len(there) - 5} more" if len(there) > 5 else "")
        raise CannotProceedError(
            f"{home.path} has {shown} already. With --replace the restore moves what is there to "
            f"{home.path / REPLACED_FOLDER}."
        )


def _occupied(path: Path) -> bool:
    if path.is_dir():
        return any(path.iterdir())
    return path.exists()


def restore_command(backup: Path) -> str:
    return f"trainshed restore {backup}"


def refuse_lost_database(home: Home) -> None:
    """Raises `CannotProceedError` if the database is missing and the folder has state that it knew."""
    if home.database.exists():
        return
    refuse_empty_database(home, f"The database {home.database} is missing", newest=_newest(home))


def refuse_empty_database(home: Home, problem: str, *, newest: Path | None = None) -> None:
    """Raises `CannotProceedError` if the folder has state that an empty database does not know."""
    patterns = {"buckets": "*", "jobs": "*/*", "models": "*/*"}
    known = [name for name, pattern in patterns.items() if next((home.path / name).glob(pattern), None) is not None]
    if newest is not None:
        known.append(home.backups.name)
    if not known:
        return
    found = " and ".join(known)
    command = restore_command(newest) if newest is not None else "trainshed restore FILE"
    raise CannotProceedError(
        f"{problem}, but {home.path} has {found} of an earlier one, which a new, empty database would not know. "
        f"Restore a backup with: {command} . To begin anew, move {found} out of the folder first."
    )


def _newest(home: Home) -> Path | None:
    return max(home.backups.glob("state-*.db"), default=None)
