"""A state folder on a disk whose power is cut: what was acknowledged is there, and the server starts again."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from trainshed.config import Home
from trainshed.engines.shipping import ship
from trainshed.node.files import sync_folder
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.clients import LoggedClient
from trainshed.testing.reliability.disk.power_cut_disk import PowerCutDisk, power_cut_disk, unavailable_reason
from trainshed.testing.reliability.history import History
from trainshed.testing.reliability.power_cuts import check_database, cut_under_load, disk_with_home, run
from trainshed.testing.reliability.reports import FaultReport, record_report

pytestmark = pytest.mark.skipif(bool(unavailable_reason()), reason=unavailable_reason())

SOAK_CUTS = 200


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[PowerCutDisk]:
    with power_cut_disk(tmp_path / "disk", tmp_path / "image") as disk:
        yield disk


def synced(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def test_a_cut_leaves_what_was_synced_and_nothing_else_with_an_empty_seed(disk: PowerCutDisk) -> None:
    folder = disk.folder
    synced(folder / "synced", b"old")
    synced(folder / "replaced", b"old")
    os.setxattr(folder / "synced", "user.kept", b"1")
    sync_folder(folder)
    synced(folder / "synced", b"new")  # fsync keeps the attributes of that moment, too
    with open(folder / "synced", "ab") as file:
        file.write(b", and more")
    synced(folder / "draft", b"new")
    (folder / "draft").rename(folder / "replaced")
    (folder / "unsynced").write_bytes(b"lost")
    assert (folder / "replaced").read_bytes() == b"new"
    disk.cut("")
    disk.mount()
    assert (folder / "synced").read_bytes() == b"new"
    assert os.getxattr(folder / "synced", "user.kept") == b"1"
    assert (folder / "replaced").read_bytes() == b"old"  # the folder was not synced after the rename
    assert sorted(path.name for path in folder.iterdir()) == ["replaced", "synced"]


def test_a_disk_can_do_what_a_state_folder_needs(disk: PowerCutDisk) -> None:
    path = disk.folder / "file"
    path.write_bytes(b"old")
    with open(path, "r+b") as replaced:
        (disk.folder / "draft").write_bytes(b"new")
        (disk.folder / "draft").rename(path)
        assert (replaced.read(), os.fstat(replaced.fileno()).st_size) == (b"old", 3)
        path.unlink()
        os.ftruncate(replaced.fileno(), 1)
        assert os.fstat(replaced.fileno()).st_size == 1
    assert list(disk.folder.iterdir()) == []
    with (
        closing(sqlite3.connect(disk.folder / "rows.db")) as one,
        closing(sqlite3.connect(disk.folder / "rows.db")) as two,
    ):
        one.execute("pragma journal_mode = wal")
        one.execute("create table rows (number)")
        for number, connection in enumerate((one, two) * 50):
            connection.execute("insert into rows values (?)", (number,))
            connection.commit()
        assert one.execute("select count(*) from rows").fetchall() == [(100,)]


@pytest.mark.fault("F03", "F41")
def test_keys_objects_and_rows_survive_the_loss_of_all_that_was_not_synced(tmp_path: Path) -> None:
    with disk_with_home(tmp_path) as (disk, home):
        server = RunningServer(home).start()
        folders = Home(home)
        kept = [folders.token, *sorted(folders.certificates.glob("*key.pem")), folders.certificates / "ca.pem"]
        before = {path: path.read_bytes() for path in kept}
        client = LoggedClient(0, server.url, server.token, History())
        client.create_bucket("cuts", "cuts-bucket")
        put = client.put_object("cuts-bucket", "folder/object", b"acknowledged")
        client.create_model("cuts", "model", "acknowledged")
        server.kill()
        disk.cut("")
        disk.mount()
        assert {path: path.read_bytes() if path.exists() else None for path in kept} == before
        server.start()
        assert client.read_object("cuts-bucket", "folder/object").value == (put.args["digest"], put.value)
        assert client.read_model("cuts", "model").value == "acknowledged"
        assert check_database(home) == []
        server.kill()


@pytest.mark.fault("F03")
def test_code_for_nodes_is_whole_before_it_has_its_name(disk: PowerCutDisk) -> None:
    def files(folder: Path) -> dict[str, bytes]:
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.py")}

    (disk.folder / "node").mkdir()
    sync_folder(disk.folder)
    folder = ship(disk.folder / "node")
    before = files(folder)
    disk.cut("")
    disk.mount()
    assert "run.py" in before
    assert files(folder) == before


@pytest.mark.fault("F03", "F41")
def test_nothing_acknowledged_is_lost_by_a_power_cut_under_load(tmp_path: Path) -> None:
    with disk_with_home(tmp_path) as (disk, home):
        server = RunningServer(home, {"grace_s": 2}).start()
        report = cut_under_load(disk, server, tmp_path, seed=1, number=1)
        assert [str(each) for each in report.violations] == []
        server.kill()


@pytest.mark.soak  # one cut is in every run
@pytest.mark.timeout(0)
@pytest.mark.fault("F03")
def test_nothing_acknowledged_is_lost_by_two_hundred_power_cuts(tmp_path: Path) -> None:
    reports: list[FaultReport] = []

    def tell(report: FaultReport) -> None:
        record_report("F03", report)
        reports.append(report)

    violations = run(SOAK_CUTS, 1, tmp_path, tell)
    assert [str(each) for each in violations] == []
    assert len(reports) == SOAK_CUTS
