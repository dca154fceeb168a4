"""A journal is read piece by piece, and what does not belong there is passed over."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from trainshed.attempts.journal import (
    MAX_HANGS,
    READ_MAX_BYTES,
    AttemptRecord,
    ReplicaState,
    fold,
    read_lines,
    read_record,
)
from trainshed.config import Home
from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.reconcile import AttemptPhase
from trainshed.domain.jobs.states import JobState
from trainshed.engines.local.engine import LocalEngine
from trainshed.node.journal import EVENTS


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
        b'{"event":"ended","outcome":"MAYBE","t":1,"failure":null}',
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
    assert read_record(tmp_path) == AttemptRecord()


def line(event: str, **facts: Any) -> bytes:
    assert set(facts) == {*EVENTS[event], "t"}
    return orjson.dumps({"event": event, **facts})


def test_a_path_into_a_bucket_is_told_as_its_uri(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    output = f"FileNotFoundError: No such file or directory: '{home.buckets}/shed/data.csv'"
    failure = {"cause": "replica_exited", "replica": "master-replica-0", "exit_code": 1, "output": output}
    (tmp_path / "journal.jsonl").write_bytes(line("ended", t=1, outcome="FAILED", failure=failure) + b"\n")
    seen = LocalEngine(home, Path("/uv")).observe([tmp_path])[tmp_path].failure
    assert seen is not None
    assert seen.output == "FileNotFoundError: No such file or directory: 'gs://shed/data.csv'"


GONE = {"code": None, "signal": 9}
HANG: dict[str, Any] = {
    "kind": "idle",
    "seconds": 600.2,
    "pid": 9,
    "state": "S",
    "step": 40,
    "working": ["m"],
    "restart": False,
    "suspect": "",
    "evidence": "",
    "threads": [],
    "stack_error": "",
    "stack": [{"name": "MainThread", "frames": [["task.py", 3, "wait"], ["task.py", 9, "<module>"]]}],
}
HISTORY = [
    line("supervisor_started", t=1, pid=5, started=7, boot_id="b", reaper=4, start="cold"),
    line("preparing", t=2),
    line("replica_started", t=3, name="m", pid=8),
    line("replica_started", t=3, name="w", pid=9),
    line("running", t=4),
    line("signalled", t=5, name="w", signal=9),
    line("replica_hung", t=5, name="m", **HANG | {"working": []}),
    line("replica_hung", t=5, name="w", **HANG),
    line("hang_ended", t=6, name="m", seconds=700.0),
    line("replica_exited", t=6, name="w", **GONE),
    line("replica_restarted", t=7, name="w", hung=False, after_loss_of="", step_before=40, **GONE),
    line("replica_started", t=7, name="w", pid=10),
    line("resumed", t=8, name="w", step=30),
    line("replica_exited", t=9, name="m", code=3, signal=None),
    line("stopping", t=9, outcome="FAILED"),
    line("replica_exited", t=10, name="w", code=None, signal=15),
    line("containers_left", t=11, reason="x"),
    line("ended", t=12, outcome="FAILED", failure={"cause": "replica_exited", "replica": "m", "exit_code": 3}),
]


def test_a_journal_is_folded_into_one_record() -> None:
    record = fold(AttemptRecord(), HISTORY)
    assert (record.supervisor, record.running_us, record.stopping, record.lost_us) == (("b", 5, 7), 4, True, None)
    master, worker = record.replicas["m"], record.replicas["w"]
    assert (master.state, master.exit_code, master.restarts) == (ReplicaState.EXITED, 3, 0)
    assert (worker.state, worker.signal, worker.restarts) == (ReplicaState.STOPPED, 15, 1)
    assert [each.sentence for each in record.restarts] == [
        "restarted w (killed by signal 9), resumed at step 30, 10 steps repeated"
    ]
    assert [(each.name, each.time_us, each.ended_us) for each in record.hangs] == [("m", 5, 6), ("w", 5, 6)]
    assert record.hangs[1].sentence == (
        "w hangs after step 40: no step, no output and no CPU time for 10 min. m is active, so it may be waiting for "
        "that."
    )
    assert record.hangs[1].stack == (
        "Thread MainThread (most recent call last):\n"
        '  File "task.py", line 9, in <module>\n'
        '  File "task.py", line 3, in wait'
    )
    assert record.end is not None
    assert (record.end.time_us, record.end.outcome) == (12, JobState.FAILED)
    assert record.end.failure == Failure(cause=FailureCause.REPLICA_EXITED, replica="m", exit_code=3)


def test_a_journal_that_is_read_in_pieces_gives_the_same_record() -> None:
    record = AttemptRecord()
    for each in HISTORY:
        record = fold(record, [each])
    assert record == fold(AttemptRecord(), HISTORY)


def test_every_event_of_the_table_is_in_the_history() -> None:
    assert {orjson.loads(each)["event"] for each in HISTORY} | {"gang_restarted", "lost"} == set(EVENTS)


def test_a_replica_has_one_hang_at_a_time_and_the_latest_are_kept() -> None:
    lines = [line("replica_hung", t=number, name="w", **HANG) for number in range(1, MAX_HANGS + 50)]
    hangs = fold(AttemptRecord(), lines).hangs
    assert len(hangs) == MAX_HANGS
    assert [each.ended_us is None for each in hangs] == [False] * (MAX_HANGS - 1) + [True]


@pytest.mark.parametrize(
    ("changed", "sentence", "stack"),
    [
        (
            {"kind": "stopped", "state": "T", "seconds": 12.4, "suspect": "w", "evidence": "stopped"},
            "w is stopped by a signal, for 12 s already. The others wait for it.",
            None,
        ),
        (
            {"suspect": "w", "evidence": "other stack", "restart": True, "seconds": 7300},
            "w hangs after step 40: no step, no output and no CPU time for 2 h. It seems to be the one that the others "
            "wait for: its stack differs from theirs, which are the same. It is restarted.",
            None,
        ),
        (
            {"suspect": "m", "evidence": "quiet first", "step": None, "state": "D"},
            "w hangs: no step, no output and no CPU time for 10 min. It is blocked in the kernel, most often by a "
            "device or a file system that does not respond. m seems to be the one that the others wait for: it was the "
            "first to make no output and use no CPU time.",
            None,
        ),
        (
            {"stack": [], "threads": [["python", "S", "futex_wait"]], "stack_error": "py-spy is not installed"},
            "w hangs after step 40: no step, no output and no CPU time for 10 min.",
            "The stack is not known: py-spy is not installed.\nThread python: state S, in futex_wait",
        ),
    ],
)
def test_a_hang_in_words(changed: dict[str, Any], sentence: str, stack: str | None) -> None:
    [hang] = fold(AttemptRecord(), [line("replica_hung", t=1, name="w", **HANG | {"working": []} | changed)]).hangs
    assert hang.sentence == sentence
    assert stack is None or hang.stack == stack


def test_the_first_end_counts() -> None:
    again = line("ended", t=20, outcome="SUCCEEDED", failure=None)
    assert fold(AttemptRecord(), [*HISTORY, again]) == fold(AttemptRecord(), HISTORY)


@pytest.mark.parametrize(
    ("event", "changed"),
    [
        ("replica_restarted", {"signal": "x"}),
        ("replica_hung", {"kind": "lazy"}),
        ("replica_hung", {"seconds": float("nan")}),
        ("replica_hung", {"working": 3}),
        ("replica_hung", {"stack": [{}]}),
        ("replica_hung", {"stack": "x"}),
        ("replica_hung", {"pid": "x"}),
        ("replica_exited", {"code": [1]}),
        ("resumed", {"step": None}),
        ("ended", {"outcome": "QUEUED"}),
        ("ended", {"failure": "why"}),
        ("ended", {"failure": {}}),
        ("ended", {"failure": {"cause": "bad luck"}}),
        ("ended", {"failure": {"cause": "time_limit", "facts": [1]}}),
        ("ended", {"failure": {"cause": "time_limit", "facts": {"limit_s": None}}}),
        ("ended", {"failure": {"cause": "replica_exited", "exit_code": "1"}}),
        ("ended", {"failure": {"cause": "replica_exited", "output": 1}}),
        ("ended", {"failure": {"cause": "time_limit", "facts": {"limit_s": float("nan")}}}),
        ("ended", {"failure": {"cause": "time_limit", "facts": {"limit_s": 10**30}}}),
        ("ended", {"t": 10**18}),  # no year that a client could read
        ("ended", {"t": -1}),
        ("resumed", {"step": 10**30}),
        ("replica_restarted", {"step_before": 10**30}),
        ("supervisor_started", {"pid": "x"}),
    ],
)
def test_an_event_with_facts_of_another_type_says_nothing(event: str, changed: dict[str, Any]) -> None:
    number = next(number for number, each in enumerate(HISTORY) if orjson.loads(each)["event"] == event)
    before = fold(AttemptRecord(), HISTORY[:number])
    assert fold(before, [HISTORY[number]]) != before
    assert fold(before, [json.dumps(orjson.loads(HISTORY[number]) | changed).encode()]) == before
