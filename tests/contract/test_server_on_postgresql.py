"""The whole server on PostgreSQL: a job, a kill, a second server that is turned away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.postgresql import Postgresql
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import Submitter


@pytest.fixture
def url(postgresql: Postgresql) -> str:
    """A database of this test's own."""
    return postgresql.create_database(f"whole_server_{os.urandom(6).hex()}")


@pytest.fixture
def server(url: str, tmp_path: Path) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path / "home", {"database": url}).start()
    yield running
    running.kill()
    running.end_jobs()


@pytest.mark.fault("F07")
def test_a_job_runs_and_what_was_stored_survives_a_kill(server: RunningServer, url: str, tmp_path: Path) -> None:
    jobs = Submitter(server, "on-postgres", tmp_path)
    jobs.submit("first", "print('hello from a job')")
    assert jobs.wait("first")["state"] == "SUCCEEDED"
    assert not (server.home / "state.db").exists()

    with pytest.raises(RuntimeError, match="Another server uses the database"):
        RunningServer(tmp_path / "second", {"database": url}).start()

    server.kill()
    server.start()
    assert jobs.get("first")["state"] == "SUCCEEDED"
    assert "hello from a job" in jobs.lines("first")
    jobs.submit("second", "raise SystemExit(3)")
    failed = jobs.wait("second")
    assert failed["state"] == "FAILED"
    assert "non-zero status of 3" in failed["errorMessage"]


#: reports as hypertune does, and ends when there is a file
TRIAL = """
import json, os, pathlib, sys, time
x, path = float(sys.argv[sys.argv.index("--x") + 1]), os.environ["CLOUD_ML_HP_METRIC_FILE"]
os.makedirs(os.path.dirname(path), exist_ok=True)
report = {"timestamp": time.time(), "global_step": "1", "trial": os.environ["CLOUD_ML_TRIAL_ID"], "score": repr(x)}
pathlib.Path(path).write_text(json.dumps(report) + "\\n")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


@pytest.mark.fault("F07")
def test_a_search_and_a_study_survive_a_kill(server: RunningServer, tmp_path: Path) -> None:
    jobs = Submitter(server, "on-postgres", tmp_path)
    params = [{"parameterName": "x", "type": "DOUBLE", "minValue": 0, "maxValue": 1}]
    spec = {"hyperparameterMetricTag": "score", "params": params, "maxTrials": 3, "maxParallelTrials": 2}
    jobs.submit("search", TRIAL, args=[str(tmp_path / "go")], hyperparameters=spec)
    trials = "/trainshed/v1/projects/on-postgres/jobs/search/trials"
    eventually(
        lambda: [trial["lastMetric"] for trial in server.call("GET", trials)["trials"]],
        lambda read: len(read) == 2 and all(read),
        within_s=60,
    )
    locations = "projects/on-postgres/locations/europe-west1"
    rate = {"parameter": "rate", "type": "DOUBLE", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}
    config = {"metrics": [{"metric": "score", "goal": "MAXIMIZE"}], "parameters": [rate]}
    study = server.call("POST", f"/v1/{locations}/studies?studyId=s", {"studyConfig": config})["name"]

    def ask() -> dict[str, Any]:
        body = {"clientId": "c", "suggestionCount": 1}
        [trial] = server.call("POST", f"/v1/{study}/trials:suggest", body)["response"]["trials"]
        return dict(trial)

    trial = ask()
    server.kill()
    server.start()
    assert ask()["name"] == trial["name"]
    final = {"finalMeasurement": {"metrics": [{"metric": "score", "value": 0.5}]}}
    assert server.call("POST", f"/v1/{trial['name']}:complete", final)["state"] == "COMPLETED"
    (tmp_path / "go").touch()
    output = jobs.wait("search", {"SUCCEEDED"})["trainingOutput"]
    assert sorted(each["trialId"] for each in output["trials"]) == ["1", "2", "3"]
    values = [each["finalMetric"]["objectiveValue"] for each in output["trials"]]
    assert values == [float(each["hyperparameters"]["x"]) for each in output["trials"]]
    assert values == sorted(values, reverse=True)


def test_an_empty_database_beside_buckets_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "home" / "buckets" / "someones").mkdir(parents=True)
    with pytest.raises(RuntimeError, match=r"is empty, but .* has buckets of an earlier one"):
        RunningServer(tmp_path / "home", {"database": url}).start()
