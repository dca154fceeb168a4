"""Reports of a trial's metric are copied once each, whatever the trainer does to its file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trainshed.node.process import metric_reports
from trainshed.node.process.metric_reports import HYPERTUNE_FILE, ReportCopies, ReportReader, append_reports


def report(step: int, value: object = 0.5) -> str:
    return json.dumps({"global_step": str(step), "timestamp": float(step), "trial": "1", "score": str(value)}) + "\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "hypertune").mkdir()
    return tmp_path / "hypertune" / HYPERTUNE_FILE


@pytest.fixture
def reader(tmp_path: Path) -> ReportReader:
    return ReportReader(str(tmp_path), "hypertune")


def steps(lines: bytes) -> list[int]:
    return [int(json.loads(line)["global_step"]) for line in lines.splitlines()]


def test_each_report_comes_once_as_the_window_moves_on(file: Path, reader: ReportReader) -> None:
    assert reader.new_lines() == b""
    found: list[int] = []
    for last in (3, 60, 130, 130, 200):
        file.write_text("".join(report(step) for step in range(max(0, last - 100), last)))
        found += steps(reader.new_lines())
    assert found == list(range(200))


def test_a_file_that_is_truncated_or_cut_off_is_read_again(file: Path, reader: ReportReader) -> None:
    file.write_text(report(1))
    assert steps(reader.new_lines()) == [1]
    file.write_text("")
    assert reader.new_lines() == b""
    file.write_text(report(1) + report(2)[:20])
    assert reader.new_lines() == b""
    file.write_text(report(1) + report(2) + report(3).rstrip("\n"))
    assert steps(reader.new_lines()) == [2, 3]


def test_what_is_no_report_stays_behind(file: Path, reader: ReportReader) -> None:
    file.write_bytes(b"[]\n\xff\xfe\n" + b"[" * 5000 + b"\n" + b'{"a": "' + b"x" * 20000 + b'"}\n' + report(7).encode())
    assert steps(reader.new_lines()) == [7]


@pytest.mark.parametrize("part", ["folder", "file"])
def test_a_link_leads_nowhere(file: Path, reader: ReportReader, tmp_path: Path, part: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / HYPERTUNE_FILE).write_text(report(1))
    if part == "file":
        file.symlink_to(tmp_path / "secret" / HYPERTUNE_FILE)
    else:
        file.parent.rmdir()
        file.parent.symlink_to(tmp_path / "secret")
    assert reader.new_lines() == b""


def test_what_is_no_file_blocks_nobody(file: Path, reader: ReportReader) -> None:
    os.mkfifo(file)
    assert reader.new_lines() == b""


def test_a_long_copy_keeps_every_second_report_and_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_reports, "COPY_MAX_BYTES", 4000)
    path = tmp_path / "reports.jsonl"
    for step in range(300):
        append_reports(str(path), report(step).encode())
    kept = steps(path.read_bytes())
    assert path.stat().st_size < 4000
    assert kept[-1] == 299
    assert kept == sorted(set(kept))
    assert kept[0] < 30


def test_replicas_of_trials_alone_are_copied(tmp_path: Path) -> None:
    def replica(name: str, env: dict[str, str]) -> dict[str, object]:
        folder = tmp_path / "work" / "hypertune" / name
        folder.mkdir(parents=True)
        (folder / HYPERTUNE_FILE).write_text(report(len(name)))
        return {"name": name, "env": env}

    replicas = [replica("a", {"CLOUD_ML_HP_METRIC_FILE": "/x"}), replica("bb", {})]
    copies = ReportCopies(str(tmp_path), {"replicas": replicas})
    copies.copy()
    copies.copy()
    assert steps((tmp_path / "reports.jsonl").read_bytes()) == [1]
