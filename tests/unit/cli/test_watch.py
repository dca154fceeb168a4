"""Progress in words, and charts of text."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from trainshed.cli.jobs import stats
from trainshed.cli.jobs.watch import line_of
from trainshed.client.job_format import cores, duration, number, rate, sentences, size

NOTHING: dict[str, Any] = dict.fromkeys(
    (
        *("time", "step", "totalSteps", "epoch", "totalEpochs", "fraction", "loss", "accuracy"),
        *("globalStepsPerSecond", "leftSeconds", "ageSeconds", "evaluation"),
    )
)


def test_a_sentence_says_what_is_known_and_no_more() -> None:
    assert sentences(None, state="RUNNING") == []
    assert sentences(NOTHING, state="RUNNING") == []
    assert sentences(NOTHING | {"loss": "NaN"}, state="RUNNING") == ["Loss NaN."]
    assert sentences(NOTHING | {"step": 1204}, state="RUNNING") == ["Step 1,204."]
    assert sentences(NOTHING | {"step": 1204}, state="FAILED") == ["It came to step 1,204."]
    assert sentences(NOTHING | {"epoch": 3, "totalEpochs": 8, "loss": 0.5}, state="RUNNING") == [
        "Epoch 3 of 8, loss 0.5."
    ]
    told = {"step": 999, "totalSteps": 1000, "fraction": 0.999, "globalStepsPerSecond": 31.25, "leftSeconds": 130.0}
    evaluation = {"step": 900, "loss": 0.25, "accuracy": None}
    assert sentences(NOTHING | told | {"ageSeconds": 200.0, "evaluation": evaluation}, state="RUNNING") == [
        "Step 999 of 1,000 (99 %), 31.2 steps/s, about 2 min 10 s left. The trainer told this 3 min 20 s ago.",
        "Evaluated at step 900: loss 0.25.",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0 s"), (45, "45 s"), (60, "1 min"), (130, "2 min 10 s"), (11100, "3 h 5 min"), (187200, "2 d 4 h")],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_numbers() -> None:
    assert [number(None), number(0.123456), number("NaN")] == ["-", "0.1235", "NaN"]
    assert [rate(None), rate(7.25), rate(14.04), rate(1234.5)] == ["-", "7.25", "14", "1,234"]
    assert [cores(None), cores(1.805), size(None), size(5 << 20), size(3 << 29)] == [
        "-",
        "180 %",
        "-",
        "5 MiB",
        "1.5 GiB",
    ]


def test_a_line_for_those_without_a_terminal() -> None:
    now = datetime(2026, 11, 16, 12, 3, 4)
    waiting = {"state": "QUEUED", "progress": None, "waiting": "It is next.", "replicas": [{"state": "waiting"}]}
    assert line_of(waiting, now) == "12:03:04  QUEUED  It is next."
    replica = {"state": "running", "cpu": 0.9, "memoryBytes": 1 << 30}
    running = {"state": "RUNNING", "progress": NOTHING | {"step": 7}, "waiting": ""}
    assert line_of(running | {"replicas": [replica, replica]}, now) == (
        "12:03:04  RUNNING  step 7  2 replicas run: CPU 180 %, 2.0 GiB"
    )
    fresh = replica | {"cpu": None, "memoryBytes": None}
    assert line_of(running | {"progress": None, "replicas": [fresh]}, now) == "12:03:04  RUNNING  1 replica runs"


def test_blocks_grow_with_their_values() -> None:
    assert stats.blocks([0.0, None, 3.5, 7.0, 9.0], top=7.0) == "▁ ▅██"
    assert stats.blocks([0.0, 0.0], top=0.0) == "▁▁"


def test_values_are_spread_over_time_and_small_gaps_are_bridged() -> None:
    spread = stats.spread([0.0, 1.0, 1.1, 10.0], [1.0, 2.0, 3.0, 4.0], span=(0.0, 10.0), width=10)
    assert spread == [1.0, 3.0, None, None, None, None, None, None, None, 4.0]
    assert stats.fill_gaps(spread, longest=2) == [1.0, 3.0, 3.0, 3.0, None, None, None, None, None, 4.0]


def test_a_line_goes_from_corner_to_corner() -> None:
    assert stats.plot([0, 1], [0, 1], width=2, height=1) == ["⡠⠊"]
    assert stats.plot([0, 1], [1, 0], width=2, height=1) == ["⠑⢄"]
    assert stats.plot([5, 5], [1, 1], width=3, height=2) == ["⠀⠀⠀", "⠁⠀⠀"]
    assert [len(row) for row in stats.plot([1, 2, 9], [3, 1, 2], width=30, height=6)] == [30] * 6
