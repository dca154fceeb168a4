"""Searches as people look at them: chains of tuning jobs in one table, and studies of all locations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from trainshed.domain.jobs.job import Job
from trainshed.domain.tuning.study import StudyKey
from trainshed.domain.tuning.trial import TrialOutcome
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trainshed.services.tuning.search_tables import SearchTables
from trainshed.services.tuning.studies import Studies
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.store.tuning.studies import StudyStore
from trainshed.store.tuning.trials import TrialStore
from trainshed.testing.fakes.databases import migrated_database
from trainshed.testing.workloads.searches import write_search

RATE = {"parameter": "rate", "type": "DOUBLE", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}


class Nothing:
    """A `TuningControl` whose trials have reported nothing."""

    def wake(self) -> None:
        pass

    def current(self, job: Job) -> TrialOutcome | None:
        return None


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(migrated_database(tmp_path / "state.db")) as opened:
        yield opened


@pytest.fixture
def tables(database: Database) -> SearchTables:
    jobs = JobStore(database)
    return SearchTables(jobs, TrialStore(database, jobs), StudyStore(database), Nothing())


def test_a_job_has_its_trials_with_those_of_the_jobs_that_it_continues(
    database: Database, tables: SearchTables
) -> None:
    write_search(database, "shed", "one", trials=10)
    write_search(database, "shed", "two", trials=5, first=11, resume="one")
    table = tables.of_job("shed", "two", points=40)
    assert (table["jobs"], table["maxTrials"], table["ended"]) == (["one", "two"], 5, True)
    assert [(each["trial"], each["job"]) for each in table["trials"]][9:11] == [(10, "one"), (11, "two")]
    failed, stopped = table["trials"][3], table["trials"][2]
    assert (failed["state"], failed["metrics"], failed["stoppedEarly"]) == ("FAILED", [None], False)
    assert "status" in failed["reason"] or "exit" in failed["reason"]
    assert (stopped["state"], stopped["stoppedEarly"]) == ("SUCCEEDED", True)
    assert "median" in stopped["reason"]
    measured = {each["trial"]: each["metrics"][0] for each in table["trials"] if each["metrics"][0] is not None}
    assert table["optimal"] == [max(measured, key=lambda number: measured[number])]
    assert sum(len(curve["x"]) for curve in table["curves"]) <= 40
    assert tables.of_job("shed", "one")["jobs"] == ["one"]
    with pytest.raises(FailedPreconditionError, match="no hyperparameters"):
        tables.of_job("shed", "one.trial-1")


def test_studies_of_all_locations_are_listed_newest_first_in_pages(database: Database, tables: SearchTables) -> None:
    studies = Studies(StudyStore(database))
    for location, name, goal in (("us", "a", "MINIMIZE"), ("eu", "b", "MAXIMIZE"), ("us", "c", "MAXIMIZE")):
        config = {"metrics": [{"metric": "loss", "goal": goal}], "parameters": [RATE]}
        studies.create("shed", location, name, {"studyConfig": config})
    key = StudyKey(project="shed", location="us", id="a")
    for value in (0.5, 0.25):
        studies.create_trial(key, _result(value))
    studies.create_trial(key, {"parameters": [{"parameter": "rate", "floatValue": 0.9}]})
    first = tables.studies("shed", page_size=2)
    second = tables.studies("shed", page_size=2, page_token=first["nextPageToken"])
    assert [each["study"] for each in (*first["studies"], *second["studies"])] == ["c", "b", "a"]
    assert "nextPageToken" not in second
    assert (first["studies"][0]["best"], first["studies"][1]["location"]) == (None, "eu")
    [row] = second["studies"]
    assert (row["trials"], row["completed"], row["best"], row["parameters"]) == (3, 2, 0.25, 1)
    with pytest.raises(InvalidArgumentError):
        tables.studies("shed", page_token="none")
    with pytest.raises(InvalidArgumentError, match="1 to 50"):
        tables.studies("shed", page_size=0)


def test_a_study_has_its_trials_the_best_of_them_and_their_curves(database: Database, tables: SearchTables) -> None:
    studies = Studies(StudyStore(database))
    key = StudyKey(project="shed", location="us", id="a")
    config = {"metrics": [{"metric": "loss", "goal": "MINIMIZE"}], "parameters": [RATE]}
    studies.create("shed", "us", "a", {"studyConfig": config})
    studies.create_trial(key, _result(0.5))
    studies.create_trial(key, _result(0.25))
    studies.create_trial(key, {**_result(0.25), "trialInfeasible": True, "infeasibleReason": "no memory"})
    table = tables.of_study(key)
    assert (table["optimal"], table["location"], table["jobs"]) == ([2], "us", [])
    assert [each["metrics"] for each in table["trials"]] == [[0.5], [0.25], [None]]
    assert table["trials"][2]["reason"] == "no memory"
    with pytest.raises(NotFoundError):
        tables.of_study(StudyKey(project="shed", location="eu", id="a"))


def _result(value: float) -> dict[str, Any]:
    final = {"metrics": [{"metric": "loss", "value": value}]}
    return {
        "state": "COMPLETED",
        "parameters": [{"parameter": "rate", "floatValue": value}],
        "finalMeasurement": final,
    }
