"""What people change about a search, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.training import Training
from trainshed.domain.tuning.steering import OwnPoint, Steering, SteeringChange
from trainshed.domain.tuning.trial import Trial
from trainshed.domain.tuning.trial_job import trial_job
from trainshed.errors import FailedPreconditionError, NotFoundError, WriteConflictError
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.store.tuning.trials import TrialStore


def searching(database: Database) -> tuple[Job, TrialStore]:
    jobs = JobStore(database)
    job = jobs.add(Job(project="shed", id="s", workload=Training.parse({}), created_us=0, replicas=0), ())
    return job, TrialStore(database, jobs)


def steer(trials: TrialStore, **change: Any) -> None:
    trials.steer("shed", "s", lambda job, known, steering: SteeringChange(**change), now_us=1)


def test_what_is_not_given_stays(database: Database) -> None:
    _, trials = searching(database)
    assert trials.steering.of("shed", "s") == Steering()
    steer(trials, max_parallel=3)
    steer(trials, max_trials=9)
    steer(trials, finish="first")
    steer(trials, max_trials=8, finish="second")
    assert trials.steering.of("shed", "s") == Steering(max_trials=8, max_parallel=3, finish="first")
    assert trials.steering.of("shed", "other") == Steering()


def test_points_keep_their_order_and_wait_until_their_trial_is_stored(database: Database) -> None:
    job, trials = searching(database)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda x: steer(trials, point={"x": x}), range(8)))
    points = trials.steering.of("shed", "s").points
    assert [each.number for each in points] == list(range(1, 9))
    assert sorted(each.point["x"] for each in points) == list(range(8))
    trials.add(trial_job(job, 1, {}, now_us=0), points[0].point, (), own=points[0])
    assert trials.steering.of("shed", "s").points == points[1:]
    steer(trials, point={"x": 9})
    assert trials.steering.of("shed", "s").points[-1] == OwnPoint(9, {"x": 9})


def test_what_is_decided_holds_when_it_is_written(database: Database) -> None:
    """Of several who try the same point at once, one does."""
    job, trials = searching(database)

    def decide(job: Job, known: Sequence[Trial], steering: Steering) -> SteeringChange:
        if steering.points:
            raise FailedPreconditionError("It waits already.")
        return SteeringChange(point={"x": 1}, message="It is tried next.")

    def refused(_: int) -> bool:
        try:
            trials.steer("shed", "s", decide, now_us=1)
        except FailedPreconditionError:
            return True
        return False

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(refused, range(8))) == 7
    jobs = JobStore(database)
    assert len(trials.steering.of("shed", "s").points) == 1
    assert [event.message for event in jobs.events("shed", "s")] == ["It is tried next."]
    with pytest.raises(WriteConflictError):  # a pass of the controller that did not see the point
        jobs.record(job)


def test_a_search_that_is_not_there_can_not_be_steered(database: Database) -> None:
    _, trials = searching(database)
    with pytest.raises(NotFoundError):
        trials.steer("shed", "other", lambda job, known, steering: SteeringChange(finish="x"), now_us=1)
    assert trials.steering.of("shed", "other") == Steering()
