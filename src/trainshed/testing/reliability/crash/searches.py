"""Searches and studies around a crash: folders of trials, changes of a search that runs, trials of clients."""

from __future__ import annotations

from trainshed.domain.names import KEEP_TRIALS_LABEL
from trainshed.testing.eventually import eventually
from trainshed.testing.reliability.crash.points import Scenario
from trainshed.testing.reliability.crash.world import BUCKET, OBJECTS, PROJECT, World, acknowledged

#: Writes two files, and reports its parameter.
_TRAINER = """
import os, sys
from pathlib import Path
folder = Path(sys.argv[sys.argv.index("--job-dir") + 1])
folder.mkdir(parents=True)
for name in ("model", "checkpoint"):
    (folder / name).write_text("kept")
report = Path(os.environ["CLOUD_ML_HP_METRIC_FILE"])
report.parent.mkdir(parents=True, exist_ok=True)
value = sys.argv[sys.argv.index("--x") + 1]
report.write_text('{"timestamp": 1, "global_step": "1", "score": "%s"}' % value)
"""


def search_scenario(world: World, name: str) -> Scenario:
    """A search of two trials that keeps the folder of one: the best one's is whole, and the other is gone."""
    job = f"/v1/projects/{PROJECT}/jobs/{name}"
    hyperparameters = {
        "hyperparameterMetricTag": "score",
        "algorithm": "GRID_SEARCH",
        "maxTrials": 2,
        "params": [{"parameterName": "x", "type": "DISCRETE", "discreteValues": [1, 2]}],
    }
    world.jobs.labels = {KEEP_TRIALS_LABEL: "1"}
    try:
        world.jobs.submit(name, _TRAINER, jobDir=f"gs://{BUCKET}/{name}.trials", hyperparameters=hyperparameters)
    finally:
        world.jobs.labels = {}
    yield
    done = world.jobs.wait(name, {"SUCCEEDED"})
    assert [trial["trialId"] for trial in done["trainingOutput"]["trials"]] == ["2", "1"]
    assert eventually(lambda: _folders(world, job), lambda folders: "REMOVING" not in folders) == ["REMOVED", "KEPT"]
    listed = world.call("GET", f"{OBJECTS}?prefix={name}.trials/").json["items"]
    assert [item["name"] for item in listed] == [f"{name}.trials/2/checkpoint", f"{name}.trials/2/model"]
    said = [line for line in world.jobs.lines(name) if line.startswith("The folder of trial 1 is removed")]
    assert len(said) == 1


def _folders(world: World, job: str) -> list[str]:
    answer = world.call("GET", f"/trainshed{job}/trials")
    return [trial["folder"] for trial in answer.json["trials"]]


#: Arguments: a file that it waits for, then those of a trial. Reports its parameter.
_WAITING_TRAINER = """
import os, sys, time
from pathlib import Path
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
report = Path(os.environ["CLOUD_ML_HP_METRIC_FILE"])
report.parent.mkdir(parents=True, exist_ok=True)
value = sys.argv[sys.argv.index("--x") + 1]
report.write_text('{"timestamp": 1, "global_step": "1", "score": "%s"}' % value)
"""


def steering_scenario(world: World, name: str) -> Scenario:
    """A search of one trial that gets a second one while it runs. The change and its event are there once."""
    go = world.scratch / f"{name}.go"
    hyperparameters = {
        "hyperparameterMetricTag": "score",
        "algorithm": "GRID_SEARCH",
        "maxTrials": 1,
        "params": [{"parameterName": "x", "type": "DISCRETE", "discreteValues": [1, 2]}],
    }
    world.jobs.submit(name, _WAITING_TRAINER, args=[str(go)], hyperparameters=hyperparameters)
    path = f"/trainshed/v1/projects/{PROJECT}/jobs/{name}:changeSearch"
    changed = acknowledged(world.try_call("POST", path, {"maxTrials": 2}))
    yield
    if not changed:
        assert acknowledged(world.call("POST", path, {"maxTrials": 2}))
    go.touch()
    done = world.jobs.wait(name, {"SUCCEEDED"})
    assert [trial["trialId"] for trial in done["trainingOutput"]["trials"]] == ["2", "1"]
    assert sum(line.startswith("maxTrials is 2, it was 1") for line in world.jobs.lines(name)) == 1


def study_scenario(world: World, name: str) -> Scenario:
    """A study whose client asks for two trials; for the points of a deletion, it is deleted then."""
    studies = f"/v1/projects/{PROJECT}/locations/us-central1/studies"
    config = {
        "algorithm": "RANDOM_SEARCH",
        "metrics": [{"metric": "score", "goal": "MAXIMIZE"}],
        "parameters": [{"parameter": "x", "type": "DOUBLE", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}],
    }
    study, created = f"{studies}/{name}", f"{studies}?studyId={name}"
    asked = {"clientId": "one", "suggestionCount": 2}
    assert acknowledged(world.try_call("POST", created, {"studyConfig": config}))
    first = world.try_call("POST", f"{study}/trials:suggest", asked)
    given = first.json["response"]["trials"] if first is not None and acknowledged(first) else None
    deletes = world.point.startswith("study.delete") and given is not None
    deleted = deletes and acknowledged(world.try_call("DELETE", study))
    yield
    status = world.call("GET", study).status
    assert status in ((404,) if deleted else (200, 404) if deletes else (200,))
    if status == 404:
        assert acknowledged(world.call("POST", created, {"studyConfig": config}))
        assert world.call("GET", f"{study}/trials").json.get("trials", []) == [], "nothing of the one before is left"
    else:
        again = world.call("POST", f"{study}/trials:suggest", asked).json["response"]["trials"]
        assert [trial["name"].rpartition("/")[2] for trial in again] == ["1", "2"]
        assert given in (None, again), "a client that asks again has the trials that it has"
        assert len(world.call("GET", f"{study}/trials").json["trials"]) == 2
    assert acknowledged(world.call("DELETE", study))
