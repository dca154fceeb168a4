"""Searches on a real Ray cluster: what trials report on nodes is read here, and a lost trial is repeated."""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from trainshed.node.journal import SUPERVISOR_STARTED
from trainshed.testing.cache import link_runtimes
from trainshed.testing.clusters.ray import RayCluster
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.stamps import check_lives, read_lives
from trainshed.testing.workloads.event_files import write_events
from trainshed.testing.workloads.job_logs import records
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "ray-tuning"
WAIT_S = 240.0
X = {"parameterName": "x", "type": "DISCRETE", "discreteValues": [1, 2, 3]}

#: Reports 150 values with hypertune, more than it keeps, and ends when its folder has the file `go`. Leaves stamps.
REPORTS = """
import hypertune, json, os, pathlib, sys, time
folder, x = pathlib.Path(sys.argv[1]), float(sys.argv[sys.argv.index("--x") + 1])
name = ["trial " + os.environ["CLOUD_ML_TRIAL_ID"], os.getcwd(), os.getpid()]
stamps = os.open(folder / "stamps", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def stamp(event):
    os.write(stamps, (json.dumps([*name, event, time.monotonic(), time.time()]) + "\\n").encode())
stamp("start")
os.chdir("/")  # the file is where it was, whatever a trainer does
metrics = hypertune.HyperTune()
for step in range(1, 151):
    metrics.report_hyperparameter_tuning_metric("score", x + step / 1000, step)
    if step == 75:
        time.sleep(2)  # so that the first half is read before it is dropped
while not (folder / "go").exists():
    time.sleep(0.05)
    stamp("alive")
metrics.report_hyperparameter_tuning_metric("score", x, 151)
stamp("stop")
"""

#: Its master writes an event file that the test has made into its job's folder. Its worker says that it is there.
WRITES = """
import base64, json, os, pathlib, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
folder = pathlib.Path(sys.argv[sys.argv.index("--job-dir") + 1]) / "eval"
folder.mkdir(parents=True, exist_ok=True)
said = folder / "said"
if task["type"] == "worker":
    print("worker of trial", task["trial"], flush=True)
    said.touch()
    sys.exit()
while not said.exists():  # the end of the master is the end of the worker
    time.sleep(0.05)
(folder / "events.out.tfevents.1").write_bytes(base64.b64decode(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def server(cluster: RayCluster, scratch: Path) -> Iterator[RunningServer]:
    home = link_runtimes(scratch / "home")
    settings = {"engine": "ray", "ray_cpu_share": 0.25, "ray_memory_share": 0.1, "node_buckets": str(home / "buckets")}
    server = RunningServer(home, cluster.settings() | settings).start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def jobs(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Submitter:
    return Submitter(server, PROJECT, tmp_path_factory.mktemp("trainers"))


def tune(
    jobs: Submitter, job: str, source: str, *args: str, gang: Mapping[str, Any] | None = None, **hyperparameters: Any
) -> None:
    """Submit a search. `gang` has the fields of the job that say which replicas a trial has; one master by default."""
    spec = {"hyperparameterMetricTag": "score", "params": [X], "algorithm": "GRID_SEARCH", **hyperparameters}
    jobs.submit(job, source, args=args, jobDir=f"gs://{jobs.bucket}/{job}", hyperparameters=spec, **(gang or {}))


def curves(jobs: Submitter, job: str) -> dict[int, list[float]]:
    """The steps that each trial is known to have reported, by its number."""
    found = jobs.server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/{job}/search")
    return {curve["trial"]: curve["x"] for curve in found["curves"]}


def test_reports_on_nodes_are_read_while_trials_run_and_a_lost_trial_is_repeated(
    jobs: Submitter, scratch: Path
) -> None:
    tune(jobs, "reports", REPORTS, str(scratch), maxTrials=2, maxParallelTrials=2)
    last = {1: 150, 2: 150}
    eventually(
        lambda: {number: steps[-1] for number, steps in curves(jobs, "reports").items()},
        lambda seen: seen == last,
        within_s=WAIT_S,
        describe=lambda: "\n".join(jobs.lines("reports")),
    )
    journal = jobs.server.home / "jobs" / PROJECT / "reports.trial-1" / "1" / "journal.jsonl"
    supervisor = next(each["pid"] for each in records(journal) if each["event"] == SUPERVISOR_STARTED)
    os.kill(supervisor, signal.SIGKILL)
    eventually(
        lambda: jobs.server.home / "jobs" / PROJECT / "reports.trial-1" / "2", lambda again: again.exists(), within_s=60
    )
    (scratch / "go").touch()
    output = jobs.wait("reports", {"SUCCEEDED"})["trainingOutput"]
    assert [(trial["trialId"], trial["finalMetric"]) for trial in output["trials"]] == [
        ("2", {"trainingStep": "151", "objectiveValue": 2.0}),
        ("1", {"trainingStep": "151", "objectiveValue": 1.0}),
    ]
    assert {number: list(map(int, steps)) for number, steps in curves(jobs, "reports").items()} == {
        number: list(range(1, 152)) for number in (1, 2)
    }
    lives = read_lives(scratch / "stamps")
    assert sorted((life.job, life.stopped) for life in lives) == [
        ("trial 1", False),
        ("trial 1", True),
        ("trial 2", True),
    ]
    first, second = (life for life in lives if life.job == "trial 1")
    assert first.last_s < second.began_s, "the old process is gone before the new one starts"
    assert [str(each) for each in check_lives(lives, relaunches=False)] == []


def test_event_files_of_distributed_trials_on_nodes_are_read(jobs: Submitter, tmp_path: Path) -> None:
    write_events(tmp_path, *((time.time() + 3600 + step, step, {"score": step / 10}) for step in range(1, 4)))
    [file] = tmp_path.glob("*tfevents*")
    gang = {"scaleTier": "CUSTOM", "masterType": "n1-highcpu-1", "workerType": "n1-highcpu-1", "workerCount": "1"}
    tune(jobs, "events", WRITES, base64.b64encode(file.read_bytes()).decode(), gang=gang, maxTrials=1)
    [trial] = jobs.wait("events", {"SUCCEEDED"})["trainingOutput"]["trials"]
    assert trial["finalMetric"]["trainingStep"] == "3"
    assert trial["finalMetric"]["objectiveValue"] == pytest.approx(0.3)
    assert "worker of trial 1" in jobs.lines("events")
    assert any("(from eval)" in line for line in jobs.lines("events")), json.dumps(jobs.lines("events"))
