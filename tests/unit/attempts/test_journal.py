"""A journal is read piece by piece, and what does not belong there is passed over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainshed.attempts.journal import READ_MAX_BYTES, read_lines, restarts
from trainshed.config import Home
from trainshed.domain.jobs.reconcile import AttemptPhase
from trainshed.engines.local.engine import LocalEngine


def test_lines_come_once_and_whole(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    assert read_lines(tmp_path) == ([], 0)
    journal.write_bytes(b"one\ntwo\nthr")
    lines, offset = read_lines(tmp_path)
    assert lines == [b"one", b"two"]
    with journal.open("ab") as file:
        file.write(b"ee\n")
    assert read_lines(tmp_path, offset) == ([b"three"], journal.stat().st_size)


def test_an_endless_line_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b"x" * (READ_MAX_BYTES + 10) + b"\nlast\n")
    lines, offset = read_lines(tmp_path)
    assert (lines, offset) == ([], READ_MAX_BYTES)
    assert read_lines(tmp_path, offset)[0][-1] == b"last"


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_only_a_regular_file_is_read(tmp_path: Path, kind: str) -> None:
    journal = tmp_path / "journal.jsonl"
    (tmp_path / "target").write_text("line\n")
    if kind == "link":
        journal.symlink_to("target")
    elif kind == "fifo":
        os.mkfifo(journal)
    else:
        journal.mkdir()
    assert read_lines(tmp_path) == ([], 0)


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"3",
        b'"x"',
        b"{}",
        b'{"event":"ended"}',
        b'{"event":"ended","outcome":"MAYBE","t":1,"message":""}',
        b'{"event":"running","t":"soon"}',
        b"\xff",
        b'{"event":["x"]}',
        b'{"event":"replica_restarted"}',
    ],
)
def test_a_line_that_is_no_event_says_nothing(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "journal.jsonl").write_bytes(line + b"\n")
    engine = LocalEngine(Home(tmp_path / "home"), Path("/uv"))
    assert engine.observe([tmp_path])[tmp_path].phase is AttemptPhase.LOST  # someone wrote, and nobody lives
    assert restarts(tmp_path) == []
