"""Tuning jobs that have ended, written as rows: no trial ever ran. The figures look like those of a real search."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.tuning.space import ParameterSpec, Point
from trainshed.domain.tuning.trial import Trial, TrialMeasurement, TrialOutcome
from trainshed.domain.tuning.trial_job import trial_job
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.store.tuning.trials import TrialStore

START_US = 1_794_900_000_000_000
TRIAL_US = 40_000_000
RATE = {"parameterName": "learning_rate", "type": "DOUBLE", "minValue": 1e-4, "maxValue": 1.0}
PARAMETERS: Sequence[Mapping[str, Any]] = (
    {**RATE, "scaleType": "UNIT_LOG_SCALE"},
    {"parameterName": "units", "type": "INTEGER", "minValue": 16.0, "maxValue": 512.0},
    {"parameterName": "batch_size", "type": "DISCRETE", "discreteValues": [32.0, 64.0, 128.0, 256.0]},
    {"parameterName": "optimizer", "type": "CATEGORICAL", "categoricalValues": ["sgd", "adam", "rmsprop"]},
)


def write_search(
    database: Database,
    project: str,
    job_id: str,
    *,
    trials: int,
    parameters: Sequence[Mapping[str, Any]] = PARAMETERS,
    points: int = 12,
    first: int = 1,
    resume: str = "",
    job_dir: str = "",
) -> Job:
    """Write a tuning job that has SUCCEEDED. One trial in nine failed, and every fifth one was stopped early."""
    jobs = JobStore(database)
    store, chance = TrialStore(database, jobs), random.Random(job_id)  # noqa: S311 - figures to look at
    hyperparameters = {
        "goal": "MAXIMIZE",
        "hyperparameterMetricTag": "accuracy",
        "maxTrials": trials,
        "maxParallelTrials": 4,
        "enableTrialEarlyStopping": True,
        "params": [dict(parameter) for parameter in parameters],
        **({"resumePreviousJobId": resume} if resume else {}),
    }
    folder = {"jobDir": job_dir} if job_dir else {}
    training = Training.parse({"pythonModule": "trainer.task", **folder, "hyperparameters": hyperparameters})
    assert training.tuning is not None
    end_us = START_US + trials * TRIAL_US // 4 + TRIAL_US
    job = Job(project=project, id=job_id, workload=training, created_us=START_US, replicas=0, attempt=1)
    job = replace(job, state=JobState.SUCCEEDED, started_us=START_US, ended_us=end_us)
    job = jobs.add(job, ())  # with its end, as the trials are: a server that runs must not take them for its own
    for number in range(first, first + trials):
        point = training.tuning.space.build(lambda parameter: parameter.sample(chance.random()))
        begin_us = START_US + (number - first) * TRIAL_US // 4
        curve = list(_curve(point, training.tuning.space.parameters, points, begin_us, chance))
        queued = trial_job(job, number, training.tuning.space.texts(point), now_us=begin_us)
        _write_trial(store, queued, point, curve)
    return job


def _write_trial(store: TrialStore, job: Job, point: Point, curve: Sequence[TrialMeasurement]) -> None:
    """Write a trial that has ended, and what it had reported."""
    state, failure, reason = JobState.SUCCEEDED, None, ""
    if job.trial % 9 == 4:
        state, reported = JobState.FAILED, curve[:0]
        failure = Failure(cause=FailureCause.REPLICA_EXITED, facts={"name": "master-replica-0", "code": 1})
    elif job.trial % 5 == 3:
        state, reported = JobState.CANCELLED, curve[: max(3, len(curve) // 2)]
        reason = "Its best value is below the median of the completed trials at this step."
    else:
        reported = curve
    end_us = (reported or curve)[-1].time_us
    ended = replace(job, state=state, attempt=1, started_us=job.created_us + 200_000, ended_us=end_us, failure=failure)
    trial = Trial(number=job.trial, point=point, job=store.add(ended, point, ()))
    if reason:
        store.set_stopped(trial, reason)
    store.set_outcome(trial, TrialOutcome(measurements=tuple(reported), source="hypertune"))


def _curve(
    point: Point, parameters: Sequence[ParameterSpec], points: int, begin_us: int, chance: random.Random
) -> Iterator[TrialMeasurement]:
    """Yield the learning curve of a point: the nearer it is to a good one, the higher."""
    units = [each.position(point[each.name]) for each in parameters[:2]]
    distance = math.hypot(*(unit - wanted for unit, wanted in zip(units, (0.45, 0.7), strict=False)))
    top = 0.97 - 0.55 * distance + chance.gauss(0, 0.012) - (0.04 if "sgd" in point.values() else 0)
    for index in range(1, points + 1):
        value = top * (1 - math.exp(-3.2 * index / points)) + chance.gauss(0, 0.004)
        yield TrialMeasurement(begin_us + 200_000 + index * (TRIAL_US // points), 100 * index, value)
