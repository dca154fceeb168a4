"""Jobs that follow a search, made from the search's own."""

from __future__ import annotations

from typing import Any

import pytest

from trainshed.client.tuning import chosen_trial, continued_job, next_name, trained_job
from trainshed.errors import FailedPreconditionError, InvalidArgumentError

JOB: dict[str, Any] = {
    "jobId": "search_1",
    "labels": {"team": "vision"},
    "state": "SUCCEEDED",
    "trainingInput": {
        "pythonModule": "trainer.task",
        "packageUris": ["gs://b/p.whl"],
        "args": ["--units", "1"],
        "jobDir": "gs://b/out/",
        "hyperparameters": {"maxTrials": 9, "maxParallelTrials": 3, "enableTrialEarlyStopping": True, "params": [{}]},
    },
}


def test_a_job_that_continues_another_one_differs_in_what_is_said() -> None:
    job = continued_job(JOB, "search_2", max_trials=5)
    before = JOB["trainingInput"]
    assert job["jobId"] == "search_2"
    assert job["labels"] == {"team": "vision"}
    assert {name: job["trainingInput"][name] for name in before if name != "hyperparameters"} == {
        name: before[name] for name in before if name != "hyperparameters"
    }
    assert job["trainingInput"]["hyperparameters"] == {
        "maxTrials": 5,
        "maxParallelTrials": 3,
        "enableTrialEarlyStopping": True,
        "resumePreviousJobId": "search_1",
    }


def test_a_config_comes_before_the_earlier_job() -> None:
    space = {"params": [{"parameterName": "rate"}], "maxTrials": 99, "maxParallelTrials": 9}
    config = {"labels": {"try": "2"}, "trainingInput": {"args": [], "hyperparameters": space}}
    job = continued_job(JOB, "search_2", max_trials=5, parallel=2, config=config)
    assert job["labels"] == {"team": "vision", "try": "2"}
    assert job["trainingInput"]["args"] == []
    assert job["trainingInput"]["hyperparameters"]["params"] == [{"parameterName": "rate"}]
    assert job["trainingInput"]["hyperparameters"]["maxTrials"] == 5
    assert job["trainingInput"]["hyperparameters"]["maxParallelTrials"] == 2


def test_a_job_with_the_values_of_a_trial() -> None:
    job = trained_job(JOB, "final", values={"rate": "0.1", "units": "64"})
    assert "hyperparameters" not in job["trainingInput"]
    assert job["trainingInput"]["args"] == ["--units", "1", "--rate", "0.1", "--units", "64"]
    assert job["trainingInput"]["jobDir"] == "gs://b/out/final"
    assert trained_job(JOB, "final", values={}, job_dir="gs://b/x")["trainingInput"]["jobDir"] == "gs://b/x"
    assert "hyperparameters" in JOB["trainingInput"]


def test_a_job_without_a_search_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="plain has no hyperparameters"):
        continued_job({"jobId": "plain", "trainingInput": {}}, "more", max_trials=1)


def test_the_best_trial_is_taken_unless_one_is_named() -> None:
    search = {"job": "s", "best": 2, "trials": [{"trial": 1}, {"trial": 2}]}
    assert chosen_trial(search, None) == {"trial": 2}
    assert chosen_trial(search, 1) == {"trial": 1}
    for number, best in ((3, 2), (None, None)):
        with pytest.raises(FailedPreconditionError, match="no trial"):
            chosen_trial(search | {"best": best}, number)


def test_a_name_does_not_grow_with_each_job() -> None:
    assert next_name("search_1").startswith("search_1_2")
    assert len(next_name(next_name("search_1"))) == len(next_name("search_1"))
