"""Hyperparameters as clients send them: what is accepted, what is filled in, and which field an error names."""

from __future__ import annotations

from typing import Any

import pytest

from trainshed.domain.jobs.training import TRAINING_INPUT, check_training
from trainshed.domain.tuning.hyperparameters import DEFAULT_TAG, Tuning, inherit
from trainshed.domain.tuning.scales import Scale
from trainshed.domain.tuning.search import Algorithm, Goal
from trainshed.errors import InvalidArgumentError

RATE = {"parameterName": "rate", "type": "DOUBLE", "minValue": 0.001, "maxValue": 0.1, "scaleType": "UNIT_LOG_SCALE"}
UNITS = {"parameterName": "first-layer-size", "type": "INTEGER", "minValue": 50.0, "maxValue": 500.0}
BATCH = {"parameterName": "batch", "type": "DISCRETE", "discreteValues": [32.0, 64.0]}
KIND = {"parameterName": "kind", "type": "CATEGORICAL", "categoricalValues": ["512 256 64", "relu"]}


def read(**hyperparameters: Any) -> tuple[Tuning, dict[str, Any]]:
    """What is made of hyperparameters, and how the job shows them."""
    body = {"pythonModule": "t.t", "packageUris": ["gs://b/p.whl"], "hyperparameters": hyperparameters}
    training = check_training(TRAINING_INPUT(body, "job.training_input"))
    assert training.tuning is not None
    return training.tuning, training.input["hyperparameters"]


def test_all_fields_are_read() -> None:
    tuning, shown = read(
        goal="MINIMIZE",
        hyperparameterMetricTag="Taxi Model Accuracy",
        maxTrials=4,
        maxParallelTrials=2,
        maxFailedTrials=1,
        enableTrialEarlyStopping=True,
        algorithm="RANDOM_SEARCH",
        params=[RATE, UNITS, BATCH, KIND],
    )
    assert (tuning.goal, tuning.tag, tuning.algorithm) == (Goal.MINIMIZE, "Taxi Model Accuracy", Algorithm.RANDOM)
    assert (tuning.max_trials, tuning.max_parallel, tuning.max_failed, tuning.early_stopping) == (4, 2, 1, True)
    rate, units, batch, kind = tuning.space.parameters
    assert (rate.minimum, rate.maximum, rate.scale) == (0.001, 0.1, Scale.LOG)
    assert (units.name, units.minimum, units.maximum) == ("first-layer-size", 50, 500)
    assert (batch.values, kind.values) == ((32.0, 64.0), ("512 256 64", "relu"))
    assert shown["params"][1]["minValue"] == 50.0


def test_what_is_missing_has_a_default_and_the_goal_is_filled_in() -> None:
    tuning, shown = read(params=[UNITS])
    assert (tuning.goal, tuning.tag, tuning.max_trials, tuning.max_parallel) == (Goal.MAXIMIZE, DEFAULT_TAG, 1, 1)
    assert shown["goal"] == "MAXIMIZE"
    assert read(goal="GOAL_TYPE_UNSPECIFIED", params=[UNITS])[1]["goal"] == "MAXIMIZE"


def test_both_spellings_are_taken() -> None:
    tuning, _ = read(
        max_trials="3", params=[{"parameter_name": "n", "type": "integer", "min_value": 1, "max_value": 2}]
    )
    assert (tuning.max_trials, tuning.space.parameters[0].name) == (3, "n")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"params": []}, "hyperparameters.params"),
        ({"maxTrials": -1}, "hyperparameters.max_trials"),
        ({"maxTrials": 1001}, "hyperparameters.max_trials"),
        ({"maxParallelTrials": -1}, "hyperparameters.max_parallel_trials"),
        ({"hyperparameterMetricTag": "x" * 201}, "hyperparameters.hyperparameter_metric_tag"),
        ({"goal": "BEST"}, "job.training_input.hyperparameters.goal"),
        ({"params": [{**UNITS, "type": "FLOAT"}]}, "job.training_input.hyperparameters.params[0].type"),
        ({"params": [UNITS, {**RATE, "type": "PARAMETER_TYPE_UNSPECIFIED"}]}, "hyperparameters.params[1].type"),
        ({"params": [{**UNITS, "minValue": 1.5}]}, "hyperparameters.params[0].min_value"),
        ({"params": [{**UNITS, "parameterName": "job-dir"}]}, "hyperparameters.params[0].parameter_name"),
        ({"params": [{**UNITS, "parameterName": "a b"}]}, "hyperparameters.params[0].parameter_name"),
        ({"params": [{"parameterName": "x", "type": "DOUBLE", "minValue": 0}]}, "hyperparameters.params[0].max_value"),
        ({"params": [{**RATE, "minValue": 0.0}]}, "hyperparameters.params[0]"),
        ({"params": [{**UNITS, "maxValue": 10.0}]}, "hyperparameters.params[0]"),
        ({"params": [UNITS, UNITS]}, "hyperparameters.params[1]"),
        ({"params": [{**KIND, "minValue": 1.0}]}, "hyperparameters.params[0].min_value"),
        ({"params": [{**KIND, "categoricalValues": []}]}, "hyperparameters.params[0].categorical_values"),
        ({"params": [{**BATCH, "discreteValues": [64, 32]}]}, "hyperparameters.params[0]"),
        ({"params": [{**BATCH, "categoricalValues": ["a"]}]}, "hyperparameters.params[0].categorical_values"),
        ({"params": [{**UNITS, "discreteValues": [1]}]}, "hyperparameters.params[0].discrete_values"),
        ({"params": [UNITS, RATE], "algorithm": "GRID_SEARCH"}, "hyperparameters.params[1].type"),
        ({"surprise": 1}, "job.training_input.hyperparameters"),
    ],
)
def test_an_error_names_the_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read(**{"params": [UNITS], **changes})
    assert caught.value.field == field


def test_a_job_that_resumes_another_takes_what_it_does_not_say() -> None:
    earlier = {"goal": "MINIMIZE", "hyperparameterMetricTag": "loss", "params": [UNITS], "maxTrials": 9}
    _, own = read(resumePreviousJobId="before", maxTrials=3)
    merged = inherit(own, earlier)
    assert merged == {
        "goal": "MINIMIZE",
        "hyperparameterMetricTag": "loss",
        "params": [UNITS],
        "maxTrials": 3,
        "resumePreviousJobId": "before",
    }
    _, other = read(resumePreviousJobId="before", params=[RATE])
    assert Tuning.parse(inherit(other, earlier)).space.parameters[0].name == "rate"
