"""The checker of histories finds what is planted, and nothing where nothing is wrong."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.reliability.checker import Violation, check_history
from trainshed.testing.reliability.history import NEVER_S, ClientOperation, History, OperationOutcome
from trainshed.testing.reliability.models import JobSeen
from trainshed.testing.reliability.stamps import check_ends, check_lives, read_lives

OK, FAIL, UNKNOWN = OperationOutcome.OK, OperationOutcome.FAIL, OperationOutcome.UNKNOWN


def op(
    key: str, action: str, outcome: OperationOutcome, span: tuple[float, float], value: Any = None, **args: Any
) -> ClientOperation:
    return ClientOperation(
        client=0,
        key=key,
        action=action,
        outcome=outcome,
        invoked_s=span[0],
        ended_s=span[1],
        value=value,
        args=args,
    )


def violations(*operations: ClientOperation) -> list[Violation]:
    history = History()
    history.add(*operations)
    return check_history(history)


def job(action: str, outcome: OperationOutcome, at: float, value: Any = None) -> ClientOperation:
    return op("job/p/j", action, outcome, (at, at + 0.5), value)


def thing(
    action: str, outcome: OperationOutcome, span: tuple[float, float], value: Any = None, **args: Any
) -> ClientOperation:
    return op("object/b/o", action, outcome, span, value, **args)


SOUND: dict[str, Sequence[ClientOperation]] = {
    "a job to its end": [
        job("create", OK, 0),
        job("read", OK, 1, JobSeen("QUEUED", 1)),
        job("read", OK, 2, JobSeen("RUNNING", 3)),
        job("read", OK, 3, JobSeen("SUCCEEDED", 4, "t", "")),
        job("cancel", FAIL, 4),
        job("read", OK, 5, JobSeen("SUCCEEDED", 4, "t", "")),
    ],
    "a job whose create was lost and happened": [
        job("create", UNKNOWN, 0),
        job("create", FAIL, 1),
        job("read", OK, 2, JobSeen("QUEUED", 1)),
    ],
    "a job whose create was lost and did not happen": [
        job("create", UNKNOWN, 0),
        job("read", OK, 1),
        job("create", OK, 2),
    ],
    "two writers at a time, read in either order": [
        thing("put", OK, (0, 2), 5, digest="a"),
        thing("put", OK, (1, 3), 4, digest="b"),
        thing("read", OK, (1, 2), ("b", 4)),
        thing("read", OK, (4, 5), ("a", 5)),
    ],
    "a lost put that happened": [
        thing("put", OK, (0, 1), 1, digest="a"),
        thing("put", UNKNOWN, (2, 3), digest="b", if_generation=1),
        thing("read", OK, (4, 5), ("b", 9)),
        thing("put", FAIL, (6, 7), digest="c", if_generation=1),
        thing("put", OK, (8, 9), 10, digest="d", if_generation=9),
    ],
    "a lost delete that did not happen": [
        thing("put", OK, (0, 1), 1, digest="a"),
        thing("delete", UNKNOWN, (2, 3)),
        thing("read", OK, (4, 5), ("a", 1)),
        thing("delete", OK, (6, 7)),
        thing("read", OK, (8, 9)),
    ],
    "a response that never came may still be at work": [
        thing("put", UNKNOWN, (0, NEVER_S), digest="a"),
        thing("read", OK, (1, 2)),
        thing("read", OK, (3, 4), ("a", 7)),
    ],
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_history_passes(name: str) -> None:
    assert violations(*SOUND[name]) == []


PLANTED: dict[str, tuple[str, Sequence[ClientOperation]]] = {
    "a lost acknowledgement": ("lost", [job("create", OK, 0), job("read", OK, 1)]),
    "a backward edge": (
        "lost",
        [
            job("create", OK, 0),
            job("read", OK, 1, JobSeen("RUNNING", 3)),
            job("read", OK, 2, JobSeen("PREPARING", 4)),
        ],
    ),
    "a generation that falls": (
        "lost",
        [job("create", OK, 0), job("read", OK, 1, JobSeen("RUNNING", 3)), job("read", OK, 2, JobSeen("RUNNING", 2))],
    ),
    "an end that changes": (
        "lost",
        [
            job("create", OK, 0),
            job("read", OK, 1, JobSeen("FAILED", 3, "t", "one")),
            job("read", OK, 2, JobSeen("FAILED", 4, "t", "two")),
        ],
    ),
    "an acknowledged cancel without effect": (
        "lost",
        [job("create", OK, 0), job("cancel", OK, 1), job("read", OK, 2, JobSeen("RUNNING", 9))],
    ),
    "two creates of one job": ("doubled", [job("create", OK, 0), job("create", OK, 1)]),
    "two winners of one condition": (
        "lost",
        [
            thing("put", OK, (0, 5), 1, digest="a", if_generation=0),
            thing("put", OK, (0, 5), 2, digest="b", if_generation=0),
        ],
    ),
    "a torn object": (
        "lost",
        [thing("put", OK, (0, 1), 1, digest="a"), thing("read", OK, (2, 3), ("bytes x, checksum a", 1))],
    ),
    "a deleted object that is back": (
        "lost",
        [
            thing("put", OK, (0, 1), 1, digest="a"),
            thing("delete", OK, (2, 3)),
            thing("read", OK, (4, 5), ("a", 1)),
        ],
    ),
    "a generation that was there before": (
        "lost",
        [
            thing("put", OK, (0, 1), 7, digest="a"),
            thing("delete", OK, (2, 3)),
            thing("put", OK, (4, 5), 7, digest="b"),
        ],
    ),
    "a lost put that comes after a read without it": (
        "lost",
        [
            thing("put", UNKNOWN, (0, 1), digest="a"),
            thing("read", OK, (2, 3)),
            thing("read", OK, (4, 5), ("a", 1)),
        ],
    ),
    "a model with the content of another create": (
        "lost",
        [
            op("model/p/m", "create", OK, (0, 1), True, content="one"),
            op("model/p/m", "create", FAIL, (2, 3), content="two"),
            op("model/p/m", "read", OK, (4, 5), "two"),
        ],
    ),
    "a revoked token that works": (
        "lost",
        [
            op("token/t", "create", OK, (0, 1), True),
            op("token/t", "delete", OK, (2, 3), True),
            op("token/t", "read", OK, (4, 5), True),
        ],
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_found(name: str) -> None:
    count, operations = PLANTED[name]
    [found] = violations(*operations)
    assert found.count == count
    assert f"> {operations[-1]}" in found.text


def test_an_error_of_the_server_is_a_violation() -> None:
    history = History()
    history.add_server_error("GET /: 500")
    assert check_history(history) == [Violation("5xx", "GET /: 500")]


def test_a_violation_is_found_among_many_overlapping_operations() -> None:
    chance, operations, last = random.Random(1), [], ("", 0)
    for step in range(400):
        at, generation = float(step), step + 1
        operations.append(thing("put", OK, (at, at + 1.5), generation, digest=f"d{step}"))
        operations.append(thing("put", UNKNOWN, (at, at + chance.uniform(0.1, 1.5)), digest=f"u{step}"))
        last = (f"d{step}", generation)
    assert violations(*operations, thing("read", OK, (500, 501), last)) == []
    [found] = violations(*operations, thing("read", OK, (500, 501), ("d300", 301)))
    assert found.count == "lost"


def stamps(path: Path, *lines: tuple[str, str, int, str, float]) -> Path:
    path.write_text("".join(json.dumps([*line, 1000 + line[-1]]) + "\n" for line in lines))
    return path


def test_two_live_processes_of_an_attempt_are_found(tmp_path: Path) -> None:
    path = stamps(
        tmp_path / "stamps",
        ("a", "1", 10, "start", 0.0),
        ("a", "1", 11, "start", 1.0),
        ("a", "1", 10, "alive", 2.0),
        ("a", "2", 12, "start", 1.5),
    )
    for relaunches in (True, False):
        [found] = check_lives(read_lives(path), relaunches=relaunches)
        assert found == Violation("doubled", "attempt 1 of a runs as pid 10 and as pid 11")


def test_a_second_launch_after_a_power_cut_is_none_after_a_kill_of_the_server(tmp_path: Path) -> None:
    path = stamps(
        tmp_path / "stamps",
        ("a", "1", 10, "start", 0.0),
        ("a", "1", 10, "alive", 1.0),
        ("a", "1", 11, "start", 2.0),
    )
    assert check_lives(read_lives(path), relaunches=True) == []
    assert [each.count for each in check_lives(read_lives(path), relaunches=False)] == ["doubled"]


def test_a_process_that_outlives_its_job_is_found(tmp_path: Path) -> None:
    path = stamps(tmp_path / "stamps", ("a", "1", 10, "start", 0.0), ("a", "1", 10, "alive", 6.0))
    lives = read_lives(path)
    ends = {4.0: 0, 1.0: 1}  # job's end, by seconds on the wall clock, and how many outlive it
    for at, count in ends.items():
        end = f"1970-01-01T00:16:{40 + at:09.6f}Z"
        assert len(check_ends(lives, {"a": JobSeen("CANCELLED", 2, end)}, grace_s=2.0)) == count
    [lost] = check_ends(lives, {}, grace_s=2.0)
    assert lost.count == "lost"
