"""Rows of the table of jobs, on a real database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainshed.domain.jobs.batch_prediction import BatchPrediction
from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.errors import InvalidArgumentError
from trainshed.services.jobs.search import JobSearch, JobSearchRequest, gang_text
from trainshed.store.database import Database
from trainshed.store.job_search import JobSearchStore
from trainshed.store.jobs import JobStore

JOB = Job(project="shed", id="j0", workload=Training.parse({"pythonModule": "trainer.task"}), created_us=1_000_000)

PREDICTS = BatchPrediction.parse({"inputPaths": ["gs://b/in"], "outputPath": "gs://b/out", "dataFormat": "JSON"})
TYPES = {f"{role}Type": "n1-standard-4" for role in ("master", "worker", "parameterServer", "evaluator")}


@pytest.fixture
def rows(database: Database) -> JobSearch:
    store = JobStore(database)
    for number in range(25):
        store.add(replace(JOB, id=f"j{number}", created_us=1_000_000 + number // 2), [])
    failed = replace(JOB, id="bad", created_us=2_000_000, labels={"team": "vision"}, workload=PREDICTS)
    stored = store.add(failed, [])
    failure = Failure(cause=FailureCause.LAUNCH_FAILED, message="No.\nWhy.")
    store.record(replace(stored, state=JobState.FAILED, started_us=3_000_000, ended_us=4_000_000, failure=failure))
    return JobSearch(JobSearchStore(database))


def ids(answer: dict[str, Any]) -> list[str]:
    return [row["jobId"] for row in answer["jobs"]]


def test_a_row_has_what_a_table_shows(rows: JobSearch) -> None:
    assert rows.page("shed", JobSearchRequest(page_size=1))["jobs"] == [
        {
            "jobId": "bad",
            "state": "FAILED",
            "createTime": "1970-01-01T00:00:02.000000Z",
            "startTime": "1970-01-01T00:00:03.000000Z",
            "endTime": "1970-01-01T00:00:04.000000Z",
            "labels": {"team": "vision"},
            "kind": "prediction",
            "gang": "1 master",
            "cause": "launch_failed",
            "message": "No.",
        }
    ]


@pytest.mark.parametrize("size", [1, 4, 13, 26, 500])
def test_pages_have_every_job_once(rows: JobSearch, size: int) -> None:
    found, page = [], rows.page("shed", JobSearchRequest(page_size=size))
    found += ids(page)
    while token := page.get("nextPageToken"):
        page = rows.page("shed", JobSearchRequest(page_size=size, page_token=token))
        found += ids(page)
    assert sorted(found) == sorted(["bad", *(f"j{n}" for n in range(25))])
    assert found[0] == "bad"


def test_counts_are_of_the_search_and_of_every_state(rows: JobSearch) -> None:
    page = rows.page("shed", JobSearchRequest(search="J1", state="running"))
    assert page["jobs"] == []
    assert page["counts"]["ALL"] == page["counts"]["QUEUED"] == 11
    assert page["counts"]["FAILED"] == 0
    assert set(page["counts"]) == {"ALL", *JobState}


def test_states_may_be_listed_in_either_case(rows: JobSearch) -> None:
    assert ids(rows.page("shed", JobSearchRequest(state="failed, RUNNING"))) == ["bad"]
    assert ids(rows.page("shed", JobSearchRequest(label="team=vision", kind="prediction"))) == ["bad"]
    assert ids(rows.page("shed", JobSearchRequest(label="team=vision", kind="training"))) == []


def test_another_project_has_other_jobs(rows: JobSearch) -> None:
    assert rows.page("elsewhere", JobSearchRequest()) == {
        "jobs": [],
        "counts": {"ALL": 0} | dict.fromkeys(JobState, 0),
    }


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"state": "DONE"}, "'DONE' is not a state of a job; these are: QUEUED,"),
        ({"kind": "other"}, "training or prediction"),
        ({"page_size": 0}, "from 1 to 500"),
        ({"page_size": 501}, "from 1 to 500"),
        ({"search": "_" * 501}, "up to 500 characters"),
        ({"label": ",".join(f"l{n}" for n in range(65))}, "up to 64 labels"),
        ({"label": "l=" + "_" * 499}, "up to 500 characters"),
        ({"page_token": "!!"}, "not one that this server gave"),
        ({"page_token": "WzEsMl0="}, "not one that this server gave"),
    ],
)
def test_nonsense_is_refused(rows: JobSearch, wanted: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        rows.page("shed", JobSearchRequest(**wanted))


def test_the_longest_search_is_one_that_the_database_takes(rows: JobSearch) -> None:
    labels = ",".join(f"l{n:02}=" + "%" * 496 for n in range(64))
    assert ids(rows.page("shed", JobSearchRequest(search="_" * 500, label=labels))) == []


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({}, "1 master"),
        ({"scaleTier": "STANDARD_1"}, "1 master, 4 workers, 3 ps"),
        (
            {"scaleTier": "CUSTOM", "workerCount": 1, "parameterServerCount": 1, "evaluatorCount": 2} | TYPES,
            "1 master, 1 worker, 1 ps, 2 evaluators",
        ),
    ],
)
def test_a_gang_is_told_in_words(training: dict[str, Any], words: str) -> None:
    assert gang_text(replace(JOB, workload=Training.parse(training))) == words
