"""Tuning by the Python client without a server: spaces, trials as values, and what a notebook shows."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from trainshed import sdk
from trainshed.client.transport import Client
from trainshed.domain.tuning.hyperparameters import HYPERPARAMETERS, check_hyperparameters
from trainshed.errors import CannotProceedError, InvalidArgumentError
from trainshed.sdk import display
from trainshed.sdk.jobs import Jobs
from trainshed.sdk.space import ParameterRange, read_range
from trainshed.sdk.tuning import JobTrial, JobTrials, bounds, hyperparameters

POINT = {"time": "2026-11-16T12:00:05Z", "step": 3, "value": 0.5}


def trial(number: int, value: float | None, **more: Any) -> dict[str, Any]:
    point = None if value is None else POINT | {"value": value}
    body = {"trial": number, "state": "SUCCEEDED", "hyperparameters": {"rate": "0.01", "units": "8", "kind": "<b>"}}
    times = {"startTime": None, "endTime": None, "attempt": 1, "stoppedEarly": False, "reason": ""}
    return body | times | {"finalMetric": point, "lastMetric": point} | more


def search(*trials: dict[str, Any]) -> dict[str, Any]:
    head = {"job": "<s>", "state": "RUNNING", "goal": "MINIMIZE", "metric": "loss", "maxTrials": 40, "best": None}
    return head | {"trials": list(trials), "waiting": "", "error": ""}


def test_a_space_of_python_values_is_one_that_the_server_takes() -> None:
    space: dict[str, ParameterRange] = {
        "rate": (1e-4, 0.1, "log"),
        "units": (16, 256),
        "size": [32, 64.5],
        "kind": ["a", "b"],
        "drop": (0, 0.5),
    }
    limits = bounds(trials=9, parallel=3, early_stopping=True, max_failed=None, algorithm="bayesian")
    spec = hyperparameters(space, maximize="accuracy", minimize=None, **limits)
    assert spec == {
        "goal": "MAXIMIZE",
        "hyperparameterMetricTag": "accuracy",
        "maxTrials": 9,
        "maxParallelTrials": 3,
        "enableTrialEarlyStopping": True,
        "algorithm": "ALGORITHM_UNSPECIFIED",
        "params": [
            {
                "parameterName": "rate",
                "type": "DOUBLE",
                "minValue": 1e-4,
                "maxValue": 0.1,
                "scaleType": "UNIT_LOG_SCALE",
            },
            {"parameterName": "units", "type": "INTEGER", "minValue": 16, "maxValue": 256},
            {"parameterName": "size", "type": "DISCRETE", "discreteValues": [32, 64.5]},
            {"parameterName": "kind", "type": "CATEGORICAL", "categoricalValues": ["a", "b"]},
            {"parameterName": "drop", "type": "DOUBLE", "minValue": 0, "maxValue": 0.5},
        ],
    }
    read = HYPERPARAMETERS(spec, "hyperparameters")
    assert check_hyperparameters(read) == read


@pytest.mark.parametrize("values", ["low", 3, (1, 2, "cubic"), {"low": 1}])
def test_a_parameter_that_can_not_be_read_is_named(values: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="'rate'"):
        read_range("rate", values)


def test_a_tuple_of_texts_is_a_list_of_values() -> None:
    assert read_range("kind", ("a", "b")).values == ("a", "b")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"space": {"x": (0, 1)}}, "maximize or minimize"),
        ({"space": {"x": (0, 1)}, "maximize": "a", "minimize": "b"}, "maximize or minimize"),
        ({"space": {"x": (0, 1)}, "maximize": "a", "algorithm": "magic"}, "bayesian, random, grid"),
        ({"space": {"x": (0, 1)}, "maximize": "a"}, "A job needs a package"),
    ],
)
def test_what_no_search_can_run_with_is_said_before_anything_is_sent(arguments: dict[str, Any], words: str) -> None:
    nobody = sdk.Trainshed(Client("http://127.0.0.1:1"), "some-project")
    with pytest.raises(InvalidArgumentError, match=words):
        Jobs(nobody).tune("job_1", **arguments)


def test_trials_are_values_with_the_best_first() -> None:
    running = trial(4, None, state="RUNNING", lastMetric=POINT)
    trials = JobTrials.read(search(trial(1, 0.5), trial(2, None), trial(3, 0.1), running))
    assert [each.number for each in trials] == [3, 1, 2, 4]
    assert (trials[0].value, trials[0].step, trials[0]["units"]) == (0.1, 3, "8")
    assert (trials[2].value, trials[3].value) == (None, 0.5)
    assert trials.rows()[0] == {
        "trial": 3,
        "state": "SUCCEEDED",
        "value": 0.1,
        "step": 3,
        "rate": 0.01,
        "units": 8,
        "kind": "<b>",
    }
    assert JobTrial.read(trial(5, 0.2, state="FAILED", finalMetric=None)).value is None


def test_a_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(CannotProceedError, match="pip install pandas"):
        JobTrials().frame()


def test_a_search_is_drawn_without_markup_of_users() -> None:
    many = search(*(trial(number, number / 10) for number in range(1, 31)))
    html = display.search_panel(many, link="http://h/#/jobs/<s>")
    assert "30 of 40 trials ended" in html
    assert "and 10 more" in html
    assert "<b>" not in html.replace("<b><a", "")
    assert "&lt;s&gt;" in html
    assert "kind=&lt;b&gt;" in JobTrials.read(many)._repr_html_()
