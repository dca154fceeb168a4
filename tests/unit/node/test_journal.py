"""The journal keeps its order and survives a writer that died."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainshed.node.journal import Journal


def test_events_are_lines_with_a_time(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(str(path))
    assert not journal.started()
    journal.append("preparing")
    assert journal.started()
    assert not journal.ended()
    journal.append("ended", outcome="FAILED", failure={"message": "a\nb"})
    journal.sync()
    assert Journal(str(path)).ended()
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["event"] == "preparing"
    assert second["failure"]["message"] == "a\nb"
    assert second["t"] >= first["t"]


@pytest.mark.parametrize("facts", [{}, {"name": "x"}, {"name": "x", "step": 1, "more": 2}])
def test_an_event_has_the_facts_of_the_table(tmp_path: Path, facts: dict[str, int]) -> None:
    journal = Journal(str(tmp_path / "journal"))
    with pytest.raises(ValueError, match="resumed has the facts name, step"):
        journal.append("resumed", **facts)
    with pytest.raises(KeyError):
        journal.append("dreamt")
    assert not journal.started()


@pytest.mark.parametrize(
    "line",
    [
        b'{"event": "ended"}',
        b'{"event": "ended", "outcome": "FAILED", "failure": null, "t": "now"}',
        b'{"event": "running", "t": 1, "outcome": "FAILED", "failure": "\\"event\\": \\"ended\\""}',
        b'{"event": "dreamt", "t": 1}',
        b'{"event": ["ended"], "t": 1}',
        b"[" * 100_000,
        b"\xff",
        b"[]",
        b"",
    ],
)
def test_only_a_whole_event_is_an_end(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "journal").write_bytes(line + b"\n")
    assert not Journal(str(tmp_path / "journal")).ended()


def test_half_a_line_is_ended_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text('{"event": "running"}\n{"event": "ended", "outc')
    journal = Journal(str(path))
    assert not journal.ended()
    journal.append("lost")
    assert json.loads(path.read_text().splitlines()[-1])["event"] == "lost"
