"""A tuning job in words: a line for those without a terminal, and a view with a row for each trial."""

from __future__ import annotations

import io
from datetime import datetime
from typing import Any

from rich.console import Console

from trainshed.cli.jobs.watch_trials import trials_line, trials_picture
from trainshed.client.trial_format import search_facts, trial_row, values_text, watch_order

START = "2026-11-16T12:00:00Z"


def trial(number: int, state: str = "SUCCEEDED", value: float | None = None, **more: Any) -> dict[str, Any]:
    point = None if value is None else {"time": "2026-11-16T12:00:05Z", "step": 1200, "value": value}
    body = {
        "trial": number,
        "state": state,
        "hyperparameters": {"rate": "0.031392376422882083", "units": "64", "kind": "a.b e"},
        "attempt": 1,
        "startTime": START,
        "endTime": None if state == "RUNNING" else "2026-11-16T12:01:10Z",
        "finalMetric": None if state == "RUNNING" else point,
        "lastMetric": point,
        "stoppedEarly": False,
    }
    return body | more


def search(*trials: dict[str, Any], goal: str = "MAXIMIZE", best: int | None = None) -> dict[str, Any]:
    head = {"job": "s", "state": "RUNNING", "goal": goal, "metric": "accuracy", "maxTrials": 20, "waiting": ""}
    return {**head, "best": best, "trials": list(trials), "error": ""}


def test_the_facts_of_a_search() -> None:
    assert search_facts(search()) == "0 of 20 trials ended"
    full = search(trial(1, value=0.9), trial(2, "FAILED"), trial(3, "RUNNING"), trial(4, "QUEUED"), best=1)
    assert search_facts(full) == "2 of 20 trials ended, 1 runs, 1 failed, best accuracy 0.9 (trial 1)"
    line = trials_line(full | {"waiting": "Trial 4 waits."}, datetime(2026, 11, 16, 12, 3, 4))
    assert line == f"12:03:04  RUNNING  {search_facts(full)}  Trial 4 waits."


def test_trials_that_run_come_first_and_then_the_best() -> None:
    trials = (trial(1, value=0.5), trial(2, "FAILED"), trial(3, value=0.9), trial(4, "RUNNING"), trial(5, "RUNNING"))
    assert [each["trial"] for each in watch_order(search(*trials))] == [5, 4, 3, 1, 2]
    assert [each["trial"] for each in watch_order(search(*trials, goal="MINIMIZE"))] == [5, 4, 1, 3, 2]


def test_the_row_of_a_trial() -> None:
    assert list(trial_row(trial(3, value=0.93125)).values()) == [
        *("3", "SUCCEEDED", "0.9313", "1,200", "1 min 10 s"),
        "rate=0.03139 units=64 kind=a.b e",
    ]
    running = trial(4, "RUNNING", 0.5, attempt=2)
    assert list(trial_row(running).values())[1:5] == ["RUNNING, started 2×", "0.5", "1,200", "5 s"]
    assert trial_row(trial(5, value=0.1, stoppedEarly=True))["state"] == "stopped early"
    assert list(trial_row(trial(6, "QUEUED", startTime=None, endTime=None)).values())[1:5] == ["QUEUED", "-", "-", "-"]
    assert values_text({"rate": "1e-05", "count": "12345678"}) == "rate=1e-05 count=12345678"


def test_the_view_is_no_higher_than_the_terminal() -> None:
    screen = Console(file=io.StringIO(), width=100, height=24)
    many = search(*(trial(number, value=number / 100) for number in range(1, 101)), best=100)
    with screen.capture() as text:
        screen.print(trials_picture(many, screen.height))
    lines = text.get().splitlines()
    assert len(lines) <= 24
    assert "and 84 more" in lines[-1]
    assert "[bold]" in _drawn(search(trial(1, hyperparameters={"kind": "[bold]"})))


def _drawn(each: dict[str, Any]) -> str:
    screen = Console(file=io.StringIO(), width=100)
    with screen.capture() as text:
        screen.print(trials_picture(each, 24))
    return text.get()
