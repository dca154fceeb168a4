"""Backups of a state folder and their way back: whole, checked, and old or new after an interruption."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from trainshed.backup import restore as restore_module
from trainshed.backup.archive import write_backup
from trainshed.backup.restore import finish_restore, refuse_empty_database, refuse_lost_database, restore
from trainshed.buckets.file_backend import FileBackend
from trainshed.config import Home
from trainshed.domain.objects import ObjectDraft, ObjectInfo, ObjectMetadata
from trainshed.errors import CannotProceedError, DiskFullError
from trainshed.services.access.secret_key import SecretKey
from trainshed.services.access.secrets import Secrets
from trainshed.state_lock import hold_lock
from trainshed.store.access.secrets import SecretStore
from trainshed.store.database import Database
from trainshed.store.projects import ProjectStore
from trainshed.store.sqlite import back_up

OBJECTS = ("a", "deep/" * 70 + "b", "back\\slash", "é" * 100, "folder/")


def fill(home: Home, project: str) -> Home:
    """A state folder with rows, secrets, a snapshot, objects and a log."""
    home.create()
    with closing(Database(home.database)) as database:
        database.migrate()
        ProjectStore(database).ensure(project, now_us=1)
    for name in ("token", "config.toml", "certificates/ca-key.pem", f"models/{project}/abc/saved", "proxy-port"):
        path = home.path / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(f"{name} of {project}")
        path.chmod(0o600)
    backend = FileBackend(home.buckets, home.uploads)
    backend.make_bucket("bucket")
    for name in OBJECTS:
        with backend.stage() as staged:
            staged.write(b"" if name.endswith("/") else name.encode())
            traits = ObjectMetadata(content_type="text/x-odd", metadata={"of": project})
            backend.commit(staged, ObjectDraft(bucket="bucket", name=name, traits=traits))
    attempt = home.jobs / project / "job" / "1"
    attempt.mkdir(parents=True)
    (attempt / "log.jsonl").write_text("a line\n")
    (attempt / "spec.json").write_text("not a log")
    return home


def projects(home: Home) -> list[str]:
    with closing(sqlite3.connect(home.database)) as connection:
        return [name for (name,) in connection.execute("select id from projects")]


def objects(home: Home) -> list[ObjectInfo]:
    backend = FileBackend(home.buckets, home.uploads)
    return [backend.info("bucket", name) for name in OBJECTS]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return fill(Home(tmp_path / "home"), "first")


@pytest.fixture
def archive(home: Home, tmp_path: Path) -> Path:
    path = tmp_path / "backup.tar"
    write_backup(home, path, buckets=True, logs=True)
    return path


def test_a_backup_may_leave_out_the_key_of_secrets_and_restore_says_so(tmp_path: Path) -> None:
    home = fill(Home(tmp_path / "from"), "p-one")
    with closing(Database(home.database)) as database:
        secrets = Secrets(SecretStore(database), SecretKey(home.secret_key))
        for name in ("one", "two"):
            secrets.set("p-one", name, "the-planted-value", user="ada")
    key = home.secret_key.read_bytes()
    for secret_key, missing in ((True, 0), (False, 2)):
        target = tmp_path / f"{secret_key}.tar"
        assert write_backup(home, target, secret_key=secret_key).secret_key is secret_key
        assert (b"the-planted-value" in target.read_bytes(), key in target.read_bytes()) == (False, secret_key)
        assert restore(Home(tmp_path / f"to-{secret_key}"), target).unreadable_secrets == missing
    back = Home(tmp_path / "to-False")
    back.secret_key.write_bytes(key)
    with closing(Database(back.database)) as database:
        values = Secrets(SecretStore(database), SecretKey(back.secret_key)).values("p-one", ["one", "two"])
    assert values == {"one": "the-planted-value", "two": "the-planted-value"}


def test_everything_comes_back_as_it_was(home: Home, archive: Path) -> None:
    before = objects(home)
    (home.path / "certificates").chmod(0o700)
    shutil.rmtree(home.path)
    report = restore(home, archive)
    assert report.replaced == ""
    assert projects(home) == ["first"]
    assert objects(home) == before, "bytes, times, generations and metadata"
    assert home.token.read_text() == "token of first"
    assert (home.jobs / "first" / "job" / "1" / "log.jsonl").read_text() == "a line\n"
    assert not (home.jobs / "first" / "job" / "1" / "spec.json").exists()
    assert not home.proxy.exists()
    assert not (home.path / "restore").exists()
    for path, mode in ((home.path, 0o700), (home.certificates, 0o700), (home.token, 0o600), (home.database, 0o600)):
        assert path.stat().st_mode & 0o777 == mode
    assert archive.stat().st_mode & 0o777 == 0o600


def test_a_backup_without_buckets_leaves_them_alone(home: Home, tmp_path: Path) -> None:
    report = write_backup(home, tmp_path / "rows.tar")
    assert (report.buckets, report.logs, report.skipped) == (False, False, ())
    before = objects(home)
    restore(home, tmp_path / "rows.tar", replace=True)
    assert objects(home) == before


def test_existing_state_is_replaced_only_if_asked_and_kept_aside(home: Home, archive: Path, tmp_path: Path) -> None:
    other = fill(Home(tmp_path / "other"), "second")
    with pytest.raises(CannotProceedError, match="--replace"):
        restore(other, archive)
    assert projects(other) == ["second"]
    report = restore(other, archive, replace=True)
    assert projects(other) == ["first"]
    aside = Home(Path(report.replaced))
    assert projects(aside) == ["second"]
    assert aside.token.read_text() == "token of second"
    assert other.proxy.read_text() == "proxy-port of second", "what the backup does not have stays"
    assert (other.jobs / "second" / "job" / "1" / "log.jsonl").exists()


def test_a_running_server_keeps_a_restore_out(home: Home, archive: Path) -> None:
    with hold_lock(home), pytest.raises(CannotProceedError, match="trainshed down"):
        restore(home, archive, replace=True)


@pytest.mark.parametrize("moves", range(12))
def test_an_interrupted_restore_leaves_old_or_new(
    home: Home, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    """The process dies after some moves; the next one finishes what was committed."""
    other, real, left = fill(Home(tmp_path / "other"), "second"), restore_module._move, iter(range(moves))

    def move(source: Path, target: Path) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(restore_module, "_move", move)
        restore(other, archive, replace=True)
    assert finish_restore(other)
    assert not finish_restore(other)
    assert projects(other) == ["first"]
    assert other.token.read_text() == "token of first"
    assert (other.models / "first" / "abc" / "saved").exists()
    assert not (other.models / "second").exists()
    assert objects(other) == objects(home)


def test_a_restore_that_ends_before_its_commit_changes_nothing(
    home: Home, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = fill(Home(tmp_path / "other"), "second")

    def end(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(restore_module, "write_file", end)
    with pytest.raises(DiskFullError, match="is full, so nothing was restored"):
        restore(other, archive, replace=True)
    assert projects(other) == ["second"]
    assert not (other.path / "restore").exists()


def _rewrite(archive: Path, change: Callable[[str, bytes], bytes]) -> None:
    """Write the archive anew with other members."""
    draft = archive.with_suffix(".new")
    with tarfile.open(archive) as old, tarfile.open(draft, "w") as new:
        for member in old:
            file = old.extractfile(member)
            data = change(member.name, file.read() if file else b"")
            member.size = len(data)
            new.addfile(member, io.BytesIO(data))
    draft.rename(archive)


def _cut(archive: Path) -> None:
    os.truncate(archive, archive.stat().st_size // 2)


def _change(archive: Path, member: str, old: bytes, new: bytes) -> None:
    _rewrite(archive, lambda name, data: data.replace(old, new) if name == member else data)


def _flip(archive: Path) -> None:
    _change(archive, "files/2", b"token of first", b"token of firsT")


def _newer_format(archive: Path) -> None:
    _change(archive, "backup.json", b'"format": 1', b'"format": 2')


def _lead_out(archive: Path) -> None:
    _change(archive, "manifest.jsonl", b'"token"', b'"token/../../x"')


def _other_part(archive: Path) -> None:
    _change(archive, "manifest.jsonl", b'"token"', b'"server.json"')


def _link(archive: Path) -> None:
    with tarfile.open(archive, "a") as tar:
        member = tarfile.TarInfo("files/link")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)


DAMAGES: dict[Callable[[Path], Any], str] = {
    _cut: "cut short",
    _flip: "are not those that were stored",
    _newer_format: "of format 2",
    _lead_out: "the path 'token/../../x'",
    _other_part: "the path 'server.json'",
    _link: "is a symbolic link",
    lambda archive: archive.write_bytes(b"hello " * 200): "is not a tar or zip archive",
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.items())
def test_a_damaged_backup_is_refused_whole(
    home: Home, archive: Path, damage: Callable[[Path], Any], message: str
) -> None:
    damage(archive)
    before = sorted(path.name for path in home.path.iterdir())
    with pytest.raises(CannotProceedError) as caught:
        restore(home, archive, replace=True)
    assert message in str(caught.value)
    assert sorted({path.name for path in home.path.iterdir()} - {"server.lock"}) == before


def test_a_copy_of_the_server_is_restored_alone(home: Home) -> None:
    copy = back_up(home.database)
    home.database.unlink()
    with pytest.raises(CannotProceedError, match=rf"is missing.*trainshed restore {copy} "):
        refuse_lost_database(home)
    assert restore(home, copy).restored == ("state.db",)
    refuse_lost_database(home)
    assert projects(home) == ["first"]


def test_the_copy_of_a_newer_program_is_refused(home: Home) -> None:
    copy = back_up(home.database)
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("insert into trainshed_schema (version) values (999)")
        connection.commit()
    with pytest.raises(CannotProceedError, match="newer Trainshed"):
        restore(home, copy, replace=True)


def test_an_empty_database_is_refused_beside_state_and_not_in_a_new_folder(home: Home, tmp_path: Path) -> None:
    with pytest.raises(CannotProceedError, match="has buckets and jobs and models of an earlier one"):
        refuse_empty_database(home, "It is empty")
    new = Home(tmp_path / "new")
    new.create()
    new.buckets.mkdir()
    refuse_lost_database(new)


def test_a_file_that_is_written_meanwhile_is_said(home: Home, tmp_path: Path) -> None:
    growing = home.buckets / "bucket" / "growing"
    growing.write_bytes(b"x" * 100)

    def progress(done: int, total: int) -> None:
        with open(growing, "ab") as file:
            file.write(b"y")

    report = write_backup(home, tmp_path / "b.tar", buckets=True, progress=progress)
    assert report.changed == ("buckets/bucket/growing",)
    shutil.rmtree(home.path)
    restore(home, tmp_path / "b.tar")
    assert growing.read_bytes().startswith(b"x" * 100)


def test_no_file_is_overwritten_and_a_failure_leaves_none(home: Home, tmp_path: Path) -> None:
    target = tmp_path / "there"
    target.write_text("mine")
    with pytest.raises(CannotProceedError, match="exists already"):
        write_backup(home, target)
    assert target.read_text() == "mine"
    with pytest.raises(CannotProceedError, match="can't be written"):
        write_backup(home, tmp_path / "missing" / "b.tar")
    assert list(home.backups.iterdir()) == []


def test_copies_of_a_backup_that_was_killed_are_removed_by_the_next(home: Home, tmp_path: Path) -> None:
    left = home.backups / "draft-killed"
    left.mkdir(parents=True)
    (left / "state.db").write_bytes(b"rows")
    holder = os.open(home.backups, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_SH)  # as another backup does that runs
        write_backup(home, tmp_path / "first.tar")
        assert left.exists()
    finally:
        os.close(holder)
    write_backup(home, tmp_path / "second.tar")
    assert list(home.backups.iterdir()) == []


def test_the_manifest_has_a_checksum_for_each_file(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        manifest = tar.extractfile("manifest.jsonl")
        assert manifest is not None
        lines = [json.loads(line) for line in manifest.read().splitlines()]
    assert names[0] == "backup.json"
    assert names[-1] == "manifest.jsonl"
    assert [line["member"] for line in lines if "member" in line] == names[1:-1]
    assert all(len(line["sha256"]) == 64 for line in lines if "member" in line)
