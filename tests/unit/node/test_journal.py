"""The journal keeps its order and survives a writer that died."""

from __future__ import annotations

import json
from pathlib import Path

from trainshed.node.journal import Journal


def test_events_are_lines_with_a_time(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(str(path))
    assert not journal.started()
    journal.append("preparing")
    assert journal.started()
    assert not journal.ended()
    journal.append("ended", outcome="FAILED", message="a\nb")
    journal.sync()
    assert Journal(str(path)).ended()
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["event"] == "preparing"
    assert second["message"] == "a\nb"
    assert second["t"] >= first["t"]


def test_half_a_line_is_ended_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text('{"event": "running"}\n{"event": "ended", "outc')
    journal = Journal(str(path))
    assert not journal.ended()
    journal.append("lost")
    assert json.loads(path.read_text().splitlines()[-1])["event"] == "lost"
