"""Studies on SQLite and on PostgreSQL alike: no trial twice, no number twice, damaged rows stop nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from trainshed.domain.tuning.search import SearchRequest, SearchResult
from trainshed.domain.tuning.simple_search import simple_search
from trainshed.domain.tuning.study import MAX_TRIALS, Study, StudyKey, StudyState, StudyTrial, TrialState
from trainshed.domain.tuning.study_request import read_study
from trainshed.errors import AlreadyExistsError, NotFoundError, ResourceExhaustedError, WriteConflictError
from trainshed.services.tuning.studies import Studies
from trainshed.services.tuning.suggestions import Suggestions
from trainshed.store.database import Database
from trainshed.store.tuning.studies import OPERATION_RETENTION_US, StudyStore

KEY = StudyKey(project="shed", location="europe-west1", id="s")
BODY = {
    "studyConfig": {
        "metrics": [{"metric": "loss", "goal": "MINIMIZE"}],
        "parameters": [
            {"parameter": "ü x", "type": "DOUBLE", "doubleValueSpec": {"minValue": 0, "maxValue": 1}},
        ],
        "algorithm": "RANDOM_SEARCH",
    }
}


class SimpleSuggester:
    """Searches without a process."""

    def suggest(self, request: SearchRequest) -> SearchResult:
        return simple_search(request)


def services(database: Database) -> tuple[Studies, Suggestions]:
    store = StudyStore(database)
    studies = Studies(store)
    studies.create(KEY.project, KEY.location, KEY.id, BODY)
    return studies, Suggestions(store, SimpleSuggester())


def final(value: float) -> Mapping[str, Any]:
    return {"finalMeasurement": {"metrics": [{"metric": "loss", "value": value}]}}


def test_studies_are_kept_by_location(database: Database) -> None:
    studies, _ = services(database)
    with pytest.raises(AlreadyExistsError):
        studies.create(KEY.project, KEY.location, KEY.id, BODY)
    studies.create(KEY.project, "us-central1", KEY.id, BODY)
    assert [each["name"] for each in studies.all(KEY.project, KEY.location)] == [KEY.name]
    studies.delete(KEY)
    with pytest.raises(NotFoundError):
        studies.delete(KEY)
    assert len(studies.all(KEY.project, "us-central1")) == 1


def test_clients_at_the_same_time_get_trials_of_their_own(database: Database) -> None:
    studies, suggestions = services(database)

    def work(number: int) -> list[str]:
        names = []
        for _ in range(3):
            body = {"clientId": f"c{number}", "suggestionCount": 1}
            [trial] = suggestions.suggest(KEY, body)["response"]["trials"]
            names.append(trial["name"])
            studies.complete(KEY, trial["name"].rpartition("/")[2], final(number))
        return names

    with ThreadPoolExecutor(6) as pool:
        names = [name for each in pool.map(work, range(6)) for name in each]
    assert len(set(names)) == len(names) == 18
    assert {trial["state"] for trial in studies.trials(KEY)} == {"COMPLETED"}


def test_a_write_that_is_late_changes_nothing(database: Database) -> None:
    store = StudyStore(database)
    study = store.add(Study(key=KEY, config=read_study(BODY), created_us=1))
    trial = StudyTrial(number=1, point={"ü x": 0.5}, state=TrialState.REQUESTED)
    store.change(study, state=StudyState.ACTIVE, new=[trial])
    with pytest.raises(WriteConflictError):
        store.change(study, state=StudyState.ACTIVE, new=[trial])
    store.record(KEY, trial.started("a", now_us=1))
    with pytest.raises(WriteConflictError):
        store.record(KEY, trial.started("b", now_us=1))
    _, [stored] = store.with_trials(KEY)
    assert (stored.client, stored.point) == ("a", {"ü x": 0.5})


def test_a_full_study_is_completed(database: Database) -> None:
    _, suggestions = services(database)
    for start in range(0, MAX_TRIALS, 100):
        body = {"clientId": f"c{start}", "suggestionCount": 100}
        last = suggestions.suggest(KEY, body)["response"]
    assert last["studyState"] == "COMPLETED"
    with pytest.raises(ResourceExhaustedError, match="1000 trials"):
        suggestions.suggest(KEY, {"clientId": "late", "suggestionCount": 1})


def test_operations_are_forgotten_after_an_hour(database: Database) -> None:
    services(database)
    store = StudyStore(database)
    for number, now_us in ((1, 1), (2, 2 + OPERATION_RETENTION_US)):
        store.add_operation(KEY, {"name": f"x/{number}", "done": True}, now_us=now_us)
    assert store.operation(KEY.project, KEY.location, "2")["done"]
    with pytest.raises(NotFoundError):
        store.operation(KEY.project, KEY.location, "1")


def test_a_damaged_trial_does_not_stop_the_study(database: Database) -> None:
    studies, suggestions = services(database)
    suggestions.suggest(KEY, {"clientId": "c", "suggestionCount": 2})
    with database.write() as tx:
        tx.run(sa.text("update study_trials set point = 'no JSON' where number = 1"))
    assert [trial["name"] for trial in studies.trials(KEY)] == [f"{KEY.name}/trials/2"]
    names = [t["name"] for t in suggestions.suggest(KEY, {"clientId": "d", "suggestionCount": 1})["response"]["trials"]]
    assert names == [f"{KEY.name}/trials/3"]
