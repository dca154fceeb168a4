"""Which folders of trials a search removes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.jobs.workload import read_job
from trainshed.domain.names import KEEP_TRIALS_LABEL
from trainshed.domain.tuning.hyperparameters import Tuning, trials_to_keep
from trainshed.domain.tuning.trial import (
    FolderState,
    Trial,
    TrialMeasurement,
    TrialOutcome,
    removal_message,
    surplus_trials,
)
from trainshed.errors import InvalidArgumentError

X = {"parameterName": "x", "type": "DOUBLE", "minValue": 0.0, "maxValue": 1.0}
TUNING = Tuning.parse({"params": [X], "goal": "MINIMIZE"})
PACKAGE = {"pythonModule": "trainer.task", "packageUris": ["gs://b/p"], "region": "r"}
SEARCH = {**PACKAGE, "hyperparameters": {"params": [X]}}


def trial(number: int, value: float | None, *, state: JobState = JobState.SUCCEEDED, attempt: int = 1) -> Trial:
    workload = Training.parse({"pythonModule": "trainer.task"})
    job = Job(project="p", id=f"j.trial-{number}", workload=workload, created_us=0, state=state, attempt=attempt)
    measurements = () if value is None else (TrialMeasurement(1, 1, value),)
    outcome = TrialOutcome(measurements=measurements) if job.ended else None
    return Trial(number=number, point={"x": 0.5}, job=job, outcome=outcome)


def numbers(trials: list[Trial], keep: int) -> list[int]:
    return [each.number for each in surplus_trials(trials, TUNING, keep)]


def test_all_but_the_best_are_surplus() -> None:
    trials = [trial(1, 0.4), trial(2, 0.1), trial(3, 0.3), trial(4, 0.2), trial(5, None, state=JobState.FAILED)]
    assert numbers(trials, 1) == [1, 3, 4, 5]
    assert numbers(trials, 3) == [1, 5]
    assert numbers(trials, 4) == [5]


def test_none_is_surplus_before_the_best_are_known() -> None:
    assert numbers([trial(1, None), trial(2, None)], 1) == []
    assert numbers([trial(1, 0.1), trial(2, None), trial(3, 0.2)], 3) == []


def test_one_that_runs_waits_or_is_to_run_again_is_never_surplus() -> None:
    live = [trial(number, None, state=state) for number, state in enumerate(JobState, start=2)]
    live = [each for each in live if not each.job.ended]
    assert len(live) >= 3
    assert numbers([trial(1, 0.1), *live], 1) == []
    unread = replace(trial(2, 0.2), outcome=None)
    assert numbers([trial(1, 0.1), unread], 1) == []
    assert numbers([trial(1, 0.1), trial(2, None, state=JobState.CANCELLED, attempt=0)], 1) == [], "it had no folder"


def test_of_equal_trials_the_first_one_stays() -> None:
    assert numbers([trial(1, 0.1), trial(2, 0.1)], 1) == [2]


@pytest.mark.parametrize("folder", [FolderState.REMOVING, FolderState.REMOVED])
def test_one_that_is_marked_is_not_surplus_again(folder: FolderState) -> None:
    assert numbers([trial(1, 0.1), replace(trial(2, 0.2), folder=folder)], 1) == []


def test_the_log_names_the_trials_and_the_setting() -> None:
    trials = [trial(number, 0.1) for number in (2, 5, 6)]
    assert removal_message(trials[:1], 1) == (
        f"The folder of trial 2 is removed: the best trial keeps its own ({KEEP_TRIALS_LABEL})."
    )
    assert removal_message(trials, 3).startswith("The folders of trials 2, 5 and 6 are removed: the 3 best trials keep")


@pytest.mark.parametrize("text", ["0", "", "none", "1_0", "-1", "1001", "²"])
def test_a_label_that_is_no_number_of_trials_is_refused(text: str) -> None:
    body = {"jobId": "j", "labels": {KEEP_TRIALS_LABEL: text}, "trainingInput": {**SEARCH, "jobDir": "gs://b/j"}}
    with pytest.raises(InvalidArgumentError) as caught:
        read_job(body)
    assert "label" in str(caught.value).lower()


def test_a_search_without_folders_has_none_to_remove() -> None:
    labels = {KEEP_TRIALS_LABEL: "3"}
    with pytest.raises(InvalidArgumentError, match="Set jobDir") as caught:
        read_job({"jobId": "j", "labels": labels, "trainingInput": SEARCH})
    assert caught.value.field == f"job.labels.{KEEP_TRIALS_LABEL}"
    request = read_job({"jobId": "j", "labels": labels, "trainingInput": {**SEARCH, "jobDir": "gs://b/j"}})
    assert trials_to_keep(request.labels) == 3
    read_job({"jobId": "j", "labels": labels, "trainingInput": PACKAGE})  # a job that repeats a trial
    assert trials_to_keep({}) is None
