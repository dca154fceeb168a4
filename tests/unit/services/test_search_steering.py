"""Steering of a search: what is written, who is named, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.tuning.steering import OwnPoint
from trainshed.domain.tuning.trial import TrialOutcome
from trainshed.domain.tuning.trial_job import trial_job
from trainshed.errors import FailedPreconditionError, InvalidArgumentError
from trainshed.services.tuning.steering import SearchSteering
from trainshed.store.jobs import JobStore
from trainshed.store.tuning.trials import TrialStore
from trainshed.testing.fakes.databases import migrated_database

PARAMS = [
    {"parameterName": "rate", "type": "DOUBLE", "minValue": 0.0, "maxValue": 1.0},
    {"parameterName": "units", "type": "INTEGER", "minValue": 1.0, "maxValue": 64.0},
    {"parameterName": "kind", "type": "CATEGORICAL", "categoricalValues": ["1", "2"]},
]
POINT = {"rate": "1e-4", "units": "8", "kind": "1"}


class Control:
    """A `TuningControl` that counts how often it was woken."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def current(self, job: Job) -> TrialOutcome | None:
        return None


class Search:
    """A search of 4 trials, 2 at a time, with one trial that runs."""

    def __init__(self, jobs: JobStore, trials: TrialStore) -> None:
        self.jobs, self.trials, self.control = jobs, trials, Control()
        self.steering = SearchSteering(jobs, trials, self.control, clock=lambda: 5)
        spec = {"params": PARAMS, "maxTrials": 4, "maxParallelTrials": 2}
        training = Training.parse({"pythonModule": "trainer.task", "hyperparameters": spec})
        self.job = jobs.add(Job(project="p", id="j", workload=training, created_us=0, replicas=0), ())
        trials.add(trial_job(self.job, 1, {}, now_us=0), {"rate": 0.5, "units": 3, "kind": "2"}, ())

    def change(self, **changes: Any) -> dict[str, Any]:
        return self.steering.change("p", "j", **({"max_trials": None, "max_parallel": None} | changes), user="ana")

    def messages(self) -> list[str]:
        return [event.message for event in self.jobs.events("p", "j")]


@pytest.fixture
def search(tmp_path: Path) -> Iterator[Search]:
    with closing(migrated_database(tmp_path / "state.db")) as database:
        jobs = JobStore(database)
        yield Search(jobs, TrialStore(database, jobs))


def test_bounds_change_one_by_one_and_the_log_says_who_did(search: Search) -> None:
    assert search.change(max_trials=9)["maxParallelTrials"] == 2
    answer = search.change(max_parallel=3)
    assert (answer["maxTrials"], answer["maxParallelTrials"]) == (9, 3)
    search.change(max_parallel=3)
    assert search.messages() == [
        "maxTrials is 9, it was 4. Changed by ana.",
        "maxParallelTrials is 3, it was 2. Changed by ana.",
    ]
    assert search.control.woken == 3


@pytest.mark.parametrize("changes", [{}, {"max_trials": 0}, {"max_trials": 1001}, {"max_parallel": 0}])
def test_bounds_out_of_range_are_refused(search: Search, changes: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError):
        search.change(**changes)
    assert search.messages() == []


def test_a_point_of_a_user_waits_for_its_trial(search: Search) -> None:
    answer = search.steering.try_point("p", "j", POINT, user="ana")
    assert answer["points"] == [{"rate": "0.0001", "units": "8", "kind": "1"}]
    [own] = search.trials.steering.of("p", "j").points
    assert own == OwnPoint(1, {"rate": 0.0001, "units": 8, "kind": "1"})
    assert search.messages() == ["rate=0.0001, units=8, kind=1 is tried next. Given by ana."]
    search.trials.add(trial_job(search.job, 2, {}, now_us=0), own.point, (), own=own)
    assert search.trials.steering.of("p", "j").points == ()


def test_a_point_beyond_the_last_trial_makes_room_for_itself(search: Search) -> None:
    search.change(max_trials=1)
    answers = [search.steering.try_point("p", "j", POINT | {"units": units}, user="ana") for units in (1, 2)]
    assert [answer["maxTrials"] for answer in answers] == [2, 3]
    assert [point["units"] for point in answers[-1]["points"]] == ["1", "2"]


def test_points_that_can_not_be_tried_are_refused(search: Search) -> None:
    for values, word in (
        (POINT | {"rate": "2"}, "from 0.0 to 1.0"),
        (POINT | {"units": "1.5"}, "a whole number"),
        (POINT | {"rate": "fast"}, "'fast'"),
        (POINT | {"kind": "3"}, "one of 1, 2"),
        (POINT | {"size": "3"}, "'size' is not part of the search. Its parameters are rate, "),
        ({"raet": "0.1", "units": "2"}, "'raet' is not part"),  # and not that 'rate' has no value
        ({"rate": "0.1"}, "'units' has no value"),
    ):
        with pytest.raises(InvalidArgumentError, match=word):
            search.steering.try_point("p", "j", values, user="ana")
    with pytest.raises(FailedPreconditionError, match="Trial 1 has these values"):
        search.steering.try_point("p", "j", {"rate": 0.5, "units": 3, "kind": "2"}, user="ana")
    search.steering.try_point("p", "j", POINT, user="ana")
    with pytest.raises(FailedPreconditionError, match="wait for their trial"):
        search.steering.try_point("p", "j", POINT, user="ana")


def test_the_first_one_who_finishes_a_search_is_named(search: Search) -> None:
    assert search.steering.finish("p", "j", user="ana")["finishing"]
    assert search.steering.finish("p", "j", user="ben")["finishing"]
    assert search.trials.steering.of("p", "j").finish == "The search was finished by ana."
    assert len(search.messages()) == 1


def test_a_search_that_has_ended_is_not_steered(search: Search) -> None:
    search.jobs.record(search.job.to(JobState.CANCELLED, now_us=9))
    with pytest.raises(FailedPreconditionError, match="trainshed tuning continue j"):
        search.steering.finish("p", "j", user="ana")
    with pytest.raises(FailedPreconditionError, match="has ended"):
        search.change(max_trials=9)
