"""A search that removes folders of trials, around a crash: the best trial's folder is whole, the others' are gone."""

from __future__ import annotations

from trainshed.domain.names import KEEP_TRIALS_LABEL
from trainshed.testing.eventually import eventually
from trainshed.testing.reliability.crash.points import Scenario
from trainshed.testing.reliability.crash.world import BUCKET, OBJECTS, PROJECT, World

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
    """A search of two trials that keeps the folder of one."""
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
