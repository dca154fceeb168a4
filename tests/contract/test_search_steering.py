"""What people change about a search, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.training import Training
from trainshed.domain.tuning.steering import OwnPoint, Steering
from trainshed.domain.tuning.trial_job import trial_job
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.store.tuning.trials import TrialStore


def searching(database: Database) -> tuple[Job, TrialStore]:
    jobs = JobStore(database)
    job = jobs.add(Job(project="shed", id="s", workload=Training.parse({}), created_us=0, replicas=0), ())
    return job, TrialStore(database, jobs)


def test_what_is_not_given_stays(database: Database) -> None:
    _, trials = searching(database)
    assert trials.steering.of("shed", "s") == Steering()
    trials.steering.change("shed", "s", max_parallel=3)
    trials.steering.change("shed", "s", max_trials=9)
    trials.steering.change("shed", "s", finish="first")
    trials.steering.change("shed", "s", max_trials=8, finish="second")
    assert trials.steering.of("shed", "s") == Steering(max_trials=8, max_parallel=3, finish="first")
    assert trials.steering.of("shed", "other") == Steering()


def test_points_keep_their_order_and_wait_until_their_trial_is_stored(database: Database) -> None:
    job, trials = searching(database)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda x: trials.steering.add_point("shed", "s", {"x": x}), range(8)))
    points = trials.steering.of("shed", "s").points
    assert [each.number for each in points] == list(range(1, 9))
    assert sorted(each.point["x"] for each in points) == list(range(8))
    trials.add(trial_job(job, 1, {}, now_us=0), points[0].point, (), own=points[0])
    assert trials.steering.of("shed", "s").points == points[1:]
    trials.steering.add_point("shed", "s", {"x": 9})
    assert trials.steering.of("shed", "s").points[-1] == OwnPoint(9, {"x": 9})
