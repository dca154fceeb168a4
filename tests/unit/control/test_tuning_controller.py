"""The tuning controller on real rows: trials that are stopped early or lost, without a process or a clock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from trainshed.control.tuning.controller import TuningController
from trainshed.control.tuning.metrics import TrialReader
from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.reconcile import (
    MAX_TRIAL_ATTEMPTS,
    AttemptPhase,
    ObservedAttempt,
    Orphans,
    Transition,
    reconcile,
)
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.names import KEEP_TRIALS_LABEL
from trainshed.domain.tuning.search import SearchRequest, SearchResult
from trainshed.domain.tuning.steering import SteeringChange
from trainshed.domain.tuning.trial import Trial, TrialMeasurement, TrialOutcome
from trainshed.store.jobs import JobStore
from trainshed.store.tuning.trials import TrialStore
from trainshed.testing.fakes.databases import migrated_database

X = {"parameterName": "x", "type": "DOUBLE", "minValue": 0.0, "maxValue": 1.0}


class Reports(TrialReader):
    """What trials report, as a test says, without files."""

    def __init__(self) -> None:
        super().__init__(Path(), lambda job: ())
        self.values: dict[int, list[float]] = {}

    def current(self, job: Job) -> TrialOutcome:
        steps = enumerate(self.values.get(job.trial, ()), start=1)
        measurements = tuple(TrialMeasurement(step, step, value) for step, value in steps)
        return TrialOutcome(measurements=measurements, source="hypertune")

    def update(self, job: Job, tag: str) -> TrialOutcome:
        return self.current(job)

    def final(self, job: Job, tag: str) -> TrialOutcome:
        return self.current(job)

    def forget(self, live: Collection[Job]) -> None:
        pass


class Search:
    """A search whose trials go through their states as a test says."""

    def __init__(
        self, jobs: JobStore, trials: TrialStore, *, labels: Mapping[str, str] | None = None, **hyperparameters: Any
    ) -> None:
        self.jobs, self.trials, self.reports = jobs, trials, Reports()
        self.controller = TuningController(
            jobs, trials, self.reports, suggest=suggest, wake_jobs=lambda: None, clock=lambda: 1_000
        )
        spec = {"params": [X], "maxTrials": 6, "maxParallelTrials": 1, **hyperparameters}
        training = Training.parse({"pythonModule": "trainer.task", "hyperparameters": spec})
        jobs.add(Job(project="p", id="j", workload=training, created_us=0, replicas=0, labels=labels or {}), ())
        self.controller.step()

    def trial(self, number: int) -> Trial:
        return next(trial for trial in self.trials.of("p", "j") if trial.number == number)

    def to(self, number: int, *states: JobState) -> None:
        for state in states:
            self.jobs.record(self.trial(number).job.to(state, now_us=1_000))

    def run(self, number: int, *values: float, end: JobState | None = JobState.SUCCEEDED) -> None:
        """Start a trial that reports these values, and end it."""
        self.reports.values[number] = list(values)
        self.to(number, JobState.PREPARING, JobState.RUNNING, *([end] if end else []))
        self.controller.step()

    def observe(self, number: int, observed: ObservedAttempt) -> Job:
        """Do what the job controller does after an observation."""
        action = reconcile(self.trial(number).job, observed, now_us=1_000)
        assert isinstance(action, Transition)
        return self.jobs.record(action.job, action.events)

    def messages(self) -> list[str]:
        return [event.message for event in self.jobs.events("p", "j")]


def suggest(request: SearchRequest) -> SearchResult:
    return SearchResult(points=({"x": request.number / 100},), exhausted=False)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[JobStore, TrialStore]]:
    with closing(migrated_database(tmp_path / "state.db")) as database:
        jobs = JobStore(database)
        yield jobs, TrialStore(database, jobs)


def test_a_trial_that_falls_behind_is_stopped_and_keeps_its_value(stores: tuple[JobStore, TrialStore]) -> None:
    search = Search(*stores, enableTrialEarlyStopping=True)
    for number in range(1, 6):
        search.run(number, 0.5, 0.6, 0.7)
    search.run(6, 0.1, 0.1, end=None)
    assert search.trial(6).stopped == "", "two values say too little"
    search.reports.values[6].append(0.1)
    search.controller.step()
    stopped = search.trial(6)
    assert stopped.job.state is JobState.CANCELLING
    assert "median" in stopped.stopped
    assert f"Trial 6 is stopped early. {stopped.stopped}" in search.messages()
    search.to(6, JobState.CANCELLED)
    search.controller.step()
    ended = search.trial(6)
    assert (ended.state, ended.stopped_early) == (JobState.SUCCEEDED, True)
    assert ended.final is not None
    assert ended.final.value == 0.1
    assert search.jobs.get("p", "j").state is JobState.SUCCEEDED


def test_no_trial_is_stopped_unless_it_is_asked_for(stores: tuple[JobStore, TrialStore]) -> None:
    search = Search(*stores)
    for number in range(1, 6):
        search.run(number, 0.5, 0.6, 0.7)
    search.run(6, 0.1, 0.1, 0.1, end=None)
    assert search.trial(6).job.state is JobState.RUNNING


def test_a_lost_trial_starts_again_under_its_number(stores: tuple[JobStore, TrialStore]) -> None:
    search = Search(*stores, maxTrials=2)
    search.run(1, 0.5, end=None)
    point = search.trial(1).point
    again = search.observe(1, ObservedAttempt(phase=AttemptPhase.LOST, orphans=Orphans()))
    assert (again.state, again.attempt, again.started_us) == (JobState.QUEUED, 1, None)
    assert search.jobs.events("p", again.id)[-1].message.endswith("It starts again.")
    search.controller.step()
    assert [trial.number for trial in search.trials.of("p", "j")] == [1], "the queue has it, and no other one starts"
    search.run(1, 0.6)
    search.run(2, 0.4)
    assert [(trial.number, trial.job.attempt) for trial in search.trials.of("p", "j")] == [(1, 2), (2, 1)]
    assert search.trial(1).point == point
    assert search.trial(1).final == TrialMeasurement(1, 1, 0.6)
    assert search.jobs.get("p", "j").state is JobState.SUCCEEDED


def test_a_trial_whose_processes_may_live_does_not_start_again(stores: tuple[JobStore, TrialStore]) -> None:
    search = Search(*stores, maxTrials=1)
    search.run(1, 0.5, end=None)
    lost = ObservedAttempt(phase=AttemptPhase.LOST, orphans=Orphans(left=(4711,)))
    assert search.observe(1, lost).state is JobState.FAILED


def test_a_trial_that_is_lost_again_and_again_fails_and_the_search_goes_on(
    stores: tuple[JobStore, TrialStore],
) -> None:
    search = Search(*stores, maxTrials=3)
    gone = ObservedAttempt(
        phase=AttemptPhase.ENDED, outcome=JobState.FAILED, failure=Failure(cause=FailureCause.NODE_LOST)
    )
    for attempt in range(1, MAX_TRIAL_ATTEMPTS):
        search.run(1, end=None)
        assert search.observe(1, gone).attempt == attempt
        assert search.trial(1).job.state is JobState.QUEUED
    search.run(1, end=None)
    assert search.observe(1, gone).state is JobState.FAILED
    search.controller.step()
    assert [trial.number for trial in search.trials.of("p", "j")] == [1, 2]


def test_a_point_of_a_user_comes_before_suggestions(stores: tuple[JobStore, TrialStore]) -> None:
    search = Search(*stores)
    change = SteeringChange(max_parallel=3, point={"x": 0.9})
    search.trials.steer("p", "j", lambda job, trials, steering: change, now_us=0)
    search.controller.step()
    assert [trial.point["x"] for trial in search.trials.of("p", "j")] == [0.01, 0.9, 0.03]
    assert search.trials.steering.of("p", "j").points == ()


def test_the_folders_of_all_but_the_best_are_marked_as_trials_end(stores: tuple[JobStore, TrialStore]) -> None:
    search = Search(*stores, maxTrials=3, labels={KEEP_TRIALS_LABEL: "1"})

    def folders() -> list[str]:
        return [trial.folder for trial in search.trials.of("p", "j")]

    search.run(1, 0.5)
    assert folders() == ["KEPT", "KEPT"]
    search.run(2, 0.7)
    assert folders() == ["REMOVING", "KEPT", "KEPT"]
    search.run(3, 0.6)
    assert search.jobs.get("p", "j").state is JobState.SUCCEEDED
    assert folders() == ["REMOVING", "KEPT", "REMOVING"], "those of the last trials are marked before the job ends"
    said = [message.partition(" is removed")[0] for message in search.messages() if "is removed" in message]
    assert said == ["The folder of trial 1", "The folder of trial 3"]


def test_a_finished_search_ends_with_what_its_trials_have(stores: tuple[JobStore, TrialStore]) -> None:
    search = Search(*stores, maxParallelTrials=2)
    search.run(1, 0.5, end=None)
    change = SteeringChange(finish="Finished by ana.")
    search.trials.steer("p", "j", lambda job, trials, steering: change, now_us=0)
    search.controller.step()
    assert [trial.job.state for trial in search.trials.of("p", "j")] == [JobState.CANCELLING, JobState.CANCELLED]
    search.to(1, JobState.CANCELLED)
    search.controller.step()
    assert search.jobs.get("p", "j").state is JobState.SUCCEEDED
    assert search.trial(1).stopped_early
    assert len(search.trials.of("p", "j")) == 2
