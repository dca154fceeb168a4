"""Searches for hyperparameters, as users run them: trainers of a few lines without a framework, on a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import trainshed
from trainshed.errors import FailedPreconditionError
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "tuning"

#: Reports as cloudml-hypertune does. `--report` says what: values, nothing, another tag, NaN, or nothing and a failure.
TRAINER = """
import argparse, json, os, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--job-dir")
parser.add_argument("--x", type=float)
parser.add_argument("--units", type=int, default=0)
parser.add_argument("--kind", default="")
parser.add_argument("--report", default="values")
parser.add_argument("--until", default="")
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--pause", type=float, default=0)
args = parser.parse_args()
trial = os.environ["CLOUD_ML_TRIAL_ID"]
config = json.loads(os.environ["TF_CONFIG"])
assert config["task"]["trial"] == trial, config
assert config["job"]["hyperparameters"]["max_trials"] >= 1
assert args.job_dir.endswith("/" + trial), args.job_dir
print("argv", json.dumps(sys.argv[1:]), flush=True)
print("trial", trial, "of", os.environ["CLOUD_ML_JOB_ID"], flush=True)
tag = "other/score" if args.report == "other" else os.environ["CLOUD_ML_HP_METRIC_TAG"]
path = os.environ["CLOUD_ML_HP_METRIC_FILE"]
os.makedirs(os.path.dirname(path), exist_ok=True)
lines = []
for step in range(args.steps):
    value = "nan" if args.report == "nan" else str(-(args.x - 0.3) ** 2 - 0.01 * (args.steps - 1 - step))
    lines.append(json.dumps({"timestamp": time.time(), "trial": trial, tag: value, "global_step": str(step),
                             "checkpoint_path": ""}))
    if args.report != "nothing" and args.report != "fail":
        with open(path, "w") as file:
            file.write("\\n".join(lines) + "\\n")
    time.sleep(args.pause)
while args.until and not os.path.exists(args.until):
    time.sleep(0.02)
if args.report == "fail" or (args.report == "fail-large" and args.x > 0.5):
    raise ValueError("the data is not there")
"""

X = {"parameterName": "x", "type": "DOUBLE", "minValue": 0.0, "maxValue": 1.0, "scaleType": "UNIT_LINEAR_SCALE"}


@pytest.fixture(scope="module")
def jobs(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Submitter:
    return Submitter(server, PROJECT, tmp_path_factory.mktemp(PROJECT))


def tune(jobs: Submitter, job: str, *args: str, **hyperparameters: Any) -> dict[str, Any]:
    spec = {"hyperparameterMetricTag": "score", "params": [X], **hyperparameters}
    return jobs.submit(job, TRAINER, args=args, jobDir=f"gs://{jobs.bucket}/{job}", hyperparameters=spec)


def wait_for_trials(jobs: Submitter, job: str, count: int) -> None:
    """Wait until this many trials have succeeded."""
    eventually(
        lambda: int(jobs.get(job)["trainingOutput"]["completedTrialCount"]), lambda ended: ended >= count, within_s=120
    )


def trials_of(jobs: Submitter, job: str) -> dict[int, Mapping[str, Any]]:
    answer = jobs.server.call("GET", f"/trainshed/v1/projects/{jobs.project}/jobs/{job}/trials")
    return {trial["trial"]: trial for trial in answer["trials"]}


@pytest.fixture(scope="module")
def done(jobs: Submitter) -> dict[str, Any]:
    units = {"parameterName": "units", "type": "DISCRETE", "discreteValues": [32, 64, 128]}
    kind = {"parameterName": "kind", "type": "CATEGORICAL", "categoricalValues": ["a b", "c"]}
    params = [X, units, kind]
    tune(jobs, "search", "--units=1", params=params, maxTrials=6, maxParallelTrials=2, goal="MAXIMIZE")
    return jobs.wait("search", {"SUCCEEDED"})


def test_a_search_has_all_its_trials_and_the_best_one_first(done: dict[str, Any]) -> None:
    output = done["trainingOutput"]
    assert output["completedTrialCount"] == "6"
    assert output["isHyperparameterTuningJob"] is True
    assert output["hyperparameterMetricTag"] == "score"
    assert sorted(int(trial["trialId"]) for trial in output["trials"]) == [1, 2, 3, 4, 5, 6]
    values = [trial["finalMetric"]["objectiveValue"] for trial in output["trials"]]
    assert values == sorted(values, reverse=True)
    for trial in output["trials"]:
        assert trial["state"] == "SUCCEEDED"
        assert trial["finalMetric"]["trainingStep"] == "2"
        assert trial["finalMetric"]["objectiveValue"] == -((float(trial["hyperparameters"]["x"]) - 0.3) ** 2)
        assert trial["hyperparameters"]["units"] in ("32", "64", "128")


def test_a_trial_has_arguments_in_order_and_a_folder_of_its_own(jobs: Submitter, done: dict[str, Any]) -> None:
    lines = [line for line in jobs.lines("search") if line.startswith("argv")]
    assert len(lines) == 6
    assert all('["--units=1", "--x", ' in line and '"--units", ' in line for line in lines)
    assert {line.rpartition("/")[2] for line in lines} == {f'{number}"]' for number in range(1, 7)}
    assert "trial 4 of search" in jobs.lines("search")


def test_a_search_is_one_job_of_the_project(jobs: Submitter, done: dict[str, Any]) -> None:
    listed = jobs.server.call("GET", f"/v1/projects/{PROJECT}/jobs?filter=jobId:search")["jobs"]
    assert [job["jobId"] for job in listed] == ["search"]
    with pytest.raises(AssertionError, match="404"):
        jobs.get("search.trial-1")


def test_hypertune_of_the_runtime_reports(jobs: Submitter) -> None:
    report = "import hypertune\nhypertune.HyperTune().report_hyperparameter_tuning_metric('score', 0.25, 7)\n"
    spec = {"hyperparameterMetricTag": "score", "params": [X], "maxTrials": 1}
    jobs.submit("hypertune", report, hyperparameters=spec)
    [trial] = jobs.wait("hypertune", {"SUCCEEDED"})["trainingOutput"]["trials"]
    assert trial["finalMetric"] == {"trainingStep": "7", "objectiveValue": 0.25}


def test_a_trial_s_lines_have_its_number(jobs: Submitter, done: dict[str, Any]) -> None:
    entries = jobs.server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/search/logs")["entries"]
    spoken = {entry["trial"]: entry["message"] for entry in entries if entry["message"].startswith("trial ")}
    assert spoken == {str(number): f"trial {number} of search" for number in range(1, 7)}
    query = {
        "resourceNames": [f"projects/{PROJECT}"],
        "filter": 'resource.labels.job_id="search" AND labels."ml.googleapis.com/trial_id"="3" AND "of search"',
    }
    found = jobs.server.call("POST", "/v2/entries:list", query)["entries"]
    assert [entry["jsonPayload"]["message"] for entry in found] == ["trial 3 of search"]


def command(jobs: Submitter, *words: str, status: int = 0) -> str:
    """Run a command line. Returns its output; stderr comes last."""
    env = jobs.server.env() | {"TRAINSHED_PROJECT": PROJECT}
    result = subprocess.run([sys.executable, "-m", "trainshed.cli", *words], env=env, capture_output=True, text=True)
    assert result.returncode == status, result.stderr
    return result.stdout + result.stderr


def test_the_command_line_shows_the_best_trial_first(jobs: Submitter, done: dict[str, Any]) -> None:
    lines = command(jobs, "jobs", "describe", "search", "--summarize").splitlines()
    top = next(number for number, line in enumerate(lines) if "Training Output Trials" in line)
    best = done["trainingOutput"]["trials"][0]
    value = f"{best['finalMetric']['objectiveValue']:.6g}"
    cells = [cell.strip() for cell in lines[top + 4].strip("│").split("│")]
    assert cells == [best["trialId"], value, "2", f"kind={best['hyperparameters']['kind']}"]
    assert any("TRIALS" in line and "ML_UNITS" in line for line in lines)
    watched = command(jobs, "jobs", "watch", "search")
    assert f"6 of 6 trials ended, best score {float(value):.4g} (trial {best['trialId']})" in watched


def test_the_log_of_one_trial(jobs: Submitter, done: dict[str, Any]) -> None:
    lines = command(jobs, "jobs", "logs", "search", "--trial", "4", "--grep", "^trial").splitlines()
    assert [line.split("\t")[2:] for line in lines] == [["master-replica-0", "4", "trial 4 of search"]]
    streamed = command(jobs, "jobs", "stream-logs", "search", "--trial", "4").splitlines()
    assert {line.split("\t")[3] for line in streamed} == {"4"}
    assert command(jobs, "jobs", "stream-logs", "search", "--trial", "99") == ""


def test_failing_trials_end_the_job_with_their_commonest_cause(jobs: Submitter) -> None:
    tune(jobs, "failing", "--report=fail", maxTrials=20, maxParallelTrials=2)
    job = jobs.wait("failing", {"FAILED"})
    assert "the data is not there" in job["errorMessage"]
    assert job["trainingOutput"]["completedTrialCount"] == "0"
    assert 5 <= len(job["trainingOutput"]["trials"]) <= 6


def test_a_few_failing_trials_are_left_out(jobs: Submitter) -> None:
    tune(jobs, "some_fail", "--report=fail-large", maxTrials=6, maxParallelTrials=1, maxFailedTrials=6)
    trials = jobs.wait("some_fail", {"SUCCEEDED"})["trainingOutput"]["trials"]
    by_number = {trial["trialId"]: trial for trial in trials}
    assert sorted(by_number) == ["1", "2", "3", "4", "5", "6"]
    for trial in trials:
        assert trial["state"] == ("FAILED" if float(trial["hyperparameters"]["x"]) > 0.5 else "SUCCEEDED")


def test_a_tag_that_never_comes_is_said_after_the_first_trial(jobs: Submitter) -> None:
    tune(jobs, "misnamed", "--report=other", maxTrials=9, maxParallelTrials=1)
    job = jobs.wait("misnamed", {"FAILED"})
    assert "Trial 1 ended without a value of 'score'" in job["errorMessage"]
    assert "The nearest is 'other/score'" in job["errorMessage"]
    assert [trial["trialId"] for trial in job["trainingOutput"]["trials"]] == ["1"]


def test_a_value_that_is_no_number_ends_no_search(jobs: Submitter) -> None:
    tune(jobs, "diverging", "--report=nan", maxTrials=2, maxParallelTrials=2)
    output = jobs.wait("diverging", {"SUCCEEDED"})["trainingOutput"]
    assert output["completedTrialCount"] == "2"
    assert all("finalMetric" not in trial for trial in output["trials"])


def test_a_command_keeps_the_folder_of_the_best_trial_alone(jobs: Submitter, tmp_path: Path) -> None:
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__init__.py").touch()
    writes = "os.makedirs(args.job_dir)\nopen(os.path.join(args.job_dir, 'model'), 'w').close()\n"
    (package / "task.py").write_text(TRAINER + writes)
    hyperparameters = {"hyperparameterMetricTag": "score", "params": [X], "maxTrials": 3}
    config = {"trainingInput": {"runtimeVersion": "python", "hyperparameters": hyperparameters}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = ("--package-path", str(package), "--module-name", "trainer.task", "--config", f"{tmp_path}/config.json")
    folder = f"gs://{jobs.bucket}/tidy"
    command(jobs, "jobs", "submit", "training", "tidy", *words, "--job-dir", folder, "--keep-trials", "1")
    best, *others = jobs.wait("tidy", {"SUCCEEDED"})["trainingOutput"]["trials"]
    numbers = [int(trial["trialId"]) for trial in others]
    states = {int(best["trialId"]): "KEPT", **dict.fromkeys(numbers, "REMOVED")}
    eventually(
        lambda: {number: trial["folder"] for number, trial in trials_of(jobs, "tidy").items()},
        lambda found: found == states,
    )
    listed = jobs.server.call("GET", f"/storage/v1/b/{jobs.bucket}/o?prefix=tidy/")["items"]
    names = [item["name"] for item in listed if not item["name"].startswith("tidy/packages/")]
    assert names == [f"tidy/{best['trialId']}/model"]
    assert sum("removed: the best trial keeps its own" in line for line in jobs.lines("tidy")) == 2


def test_a_trial_can_be_stopped_and_keeps_its_value(jobs: Submitter, tmp_path: Path) -> None:
    tune(jobs, "stopping", f"--until={tmp_path}/go", maxTrials=2, maxParallelTrials=1)
    eventually(lambda: trials_of(jobs, "stopping"), lambda found: 1 in found and found[1]["lastMetric"], within_s=60)
    assert "Trial 1 of job [stopping] is being stopped." in command(jobs, "jobs", "stop-trial", "stopping", "1")
    eventually(lambda: trials_of(jobs, "stopping"), lambda found: 2 in found, within_s=60)
    (tmp_path / "go").touch()
    job = jobs.wait("stopping", {"SUCCEEDED"})
    first = next(trial for trial in job["trainingOutput"]["trials"] if trial["trialId"] == "1")
    assert (first["state"], first["isTrialStoppedEarly"]) == ("SUCCEEDED", True)
    assert first["finalMetric"]["trainingStep"] == "2"
    assert trials_of(jobs, "stopping")[1]["reason"].startswith("Stopped by ")


def test_a_search_is_steered_while_it_runs(jobs: Submitter, tmp_path: Path) -> None:
    tune(jobs, "steered", f"--until={tmp_path}/never", maxTrials=2, maxParallelTrials=1)
    eventually(lambda: trials_of(jobs, "steered"), lambda found: 1 in found and found[1]["lastMetric"], within_s=60)
    assert "has 3 trials, 2 at a time" in command(
        jobs, "tuning", "update", "steered", "--add-trials", "1", "--parallel", "2"
    )
    eventually(lambda: trials_of(jobs, "steered"), lambda found: 2 in found and found[2]["lastMetric"], within_s=60)
    command(jobs, "tuning", "try", "steered", "x=0.3")
    command(jobs, "jobs", "stop-trial", "steered", "1")
    found = eventually(
        lambda: trials_of(jobs, "steered"), lambda found: 3 in found and found[3]["lastMetric"], within_s=60
    )
    assert found[3]["hyperparameters"] == {"x": "0.3"}
    command(jobs, "tuning", "finish", "steered")
    trials = jobs.wait("steered", {"SUCCEEDED"})["trainingOutput"]["trials"]
    assert trials[0]["trialId"] == "3"
    assert [trial["isTrialStoppedEarly"] for trial in trials] == [True] * 3
    listed = command(jobs, "tuning", "trials", "steered").splitlines()
    assert listed[0].split()[:3] == ["TRIAL", "STATE", "VALUE"]
    assert listed[1].split()[:3] == ["3", "stopped", "early"]
    assert "has ended (SUCCEEDED)" in command(jobs, "tuning", "finish", "steered", status=1)
    history = "\n".join(line for line in jobs.lines("steered") if "by " in line)
    for text in ("maxTrials is 3, it was 2", "x=0.3 is tried next", "The search was finished by"):
        assert text in history


def test_a_cancelled_job_cancels_its_trials(jobs: Submitter, tmp_path: Path) -> None:
    tune(jobs, "cancelled", f"--until={tmp_path}/never", maxTrials=4, maxParallelTrials=2)
    jobs.wait("cancelled", {"RUNNING"})
    jobs.server.call("POST", f"/v1/projects/{PROJECT}/jobs/cancelled:cancel", {})
    trials = jobs.wait("cancelled", {"CANCELLED"})["trainingOutput"]["trials"]
    assert {trial["state"] for trial in trials} == {"CANCELLED"}


def test_a_search_goes_on_in_another_job(jobs: Submitter, done: dict[str, Any]) -> None:
    jobs.submit(
        "resumed",
        TRAINER,
        jobDir=f"gs://{jobs.bucket}/resumed",
        hyperparameters={"maxTrials": 2, "maxParallelTrials": 2, "resumePreviousJobId": "search"},
    )
    job = jobs.wait("resumed", {"SUCCEEDED"})
    taken = job["trainingInput"]["hyperparameters"]
    assert taken["params"] == done["trainingInput"]["hyperparameters"]["params"]
    assert (taken["goal"], taken["hyperparameterMetricTag"]) == ("MAXIMIZE", "score")
    assert sorted(trial["trialId"] for trial in job["trainingOutput"]["trials"]) == ["7", "8"]
    points = [trial["hyperparameters"] for each in (done, job) for trial in each["trainingOutput"]["trials"]]
    assert len({str(sorted(point.items())) for point in points}) == 8


def test_a_command_goes_on_with_a_search_or_trains_with_its_best_values(
    jobs: Submitter, done: dict[str, Any], tmp_path: Path
) -> None:
    space = {"trainingInput": {"hyperparameters": {"params": [{**X, "minValue": 0.2, "maxValue": 0.4}]}}}
    (tmp_path / "space.json").write_text(json.dumps(space))
    options = ("--max-trials", "1", "--name", "narrow", "--config", f"{tmp_path}/space.json")
    command(jobs, "tuning", "continue", "search", *options)
    [trial] = jobs.wait("narrow", {"SUCCEEDED"})["trainingOutput"]["trials"]
    assert trial["trialId"] == "7"
    assert 0.2 <= float(trial["hyperparameters"]["x"]) <= 0.4
    assert trial["hyperparameters"].keys() == {"x"}
    best = done["trainingOutput"]["trials"][0]
    said = command(jobs, "tuning", "train", "search", "--name", "trained")
    assert f"The values are those of trial {best['trialId']}." in said
    trained = jobs.get("trained")["trainingInput"]
    assert trained["jobDir"] == f"gs://{jobs.bucket}/search/trained"
    assert trained["args"] == ["--units=1", *(word for name in ("x", "units", "kind") for word in flag(best, name))]
    assert "has no trial 99" in command(jobs, "tuning", "train", "search", "--trial", "99", status=1)
    unmade = command(jobs, "tuning", "promote", "search", "--model", "unmade", status=1)
    assert f"Trial {best['trialId']} of job search exported no model" in unmade
    assert "has no hyperparameters" in command(jobs, "tuning", "continue", "trained", "--max-trials", "1", status=1)
    jobs.wait("trained", {"FAILED"})  # the trainer wants the environment of a trial


def flag(trial: Mapping[str, Any], name: str) -> tuple[str, str]:
    return f"--{name}", trial["hyperparameters"][name]


def test_the_python_client_searches_and_goes_on(
    jobs: Submitter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "task.py").write_text(TRAINER)
    for name in ("TRAINSHED_URL", "TRAINSHED_TOKEN", "TRAINSHED_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRAINSHED_HOME", str(jobs.server.home))
    with trainshed.connect(project=PROJECT) as ty:
        job = ty.jobs.tune(
            "client",
            space={"x": (0.0, 1.0), "kind": ["a b", "c"]},
            maximize="score",
            trials=2,
            parallel=2,
            package_path=package,
            module_name="trainer.task",
            runtime_version="python",
            job_dir=f"gs://{jobs.bucket}/client",
        )
        job.watch()
        assert "2 of 2 trials ended, best score" in capsys.readouterr().out
        assert job.best is not None
        assert job.best == job.trials[0]
        assert job.best.value == -((float(job.best["x"]) - 0.3) ** 2)
        assert {row["trial"] for row in job.trials.rows()} == {1, 2}
        more = job.resume("client_more", trials=1).wait()
        assert [trial.number for trial in more.trials] == [3]
        with pytest.raises(FailedPreconditionError, match="exported no model"):
            job.deploy_best("unmade")
        with pytest.raises(FailedPreconditionError, match="has ended"):
            more.search.add_trials(1)


@pytest.mark.soak
def test_bad_trials_are_stopped_early(jobs: Submitter, tmp_path: Path) -> None:
    """Trials report -(x - 0.3)² at each step. Those worse than the median are ended."""
    tune(jobs, "early", "--steps=40", "--pause=0.1", maxTrials=16, maxParallelTrials=2, enableTrialEarlyStopping=True)
    trials = jobs.wait("early", {"SUCCEEDED"})["trainingOutput"]["trials"]
    stopped = [trial for trial in trials if trial.get("isTrialStoppedEarly")]
    assert stopped
    assert "isTrialStoppedEarly" not in trials[0]
    reasons = [trials_of(jobs, "early")[int(trial["trialId"])]["reason"] for trial in stopped]
    assert all("the median of the averages" in reason for reason in reasons)


def test_a_killed_server_loses_and_repeats_no_trial(own_server: RunningServer, tmp_path: Path) -> None:
    """kill -9 three times during one search."""
    jobs = Submitter(own_server, "killed-search", tmp_path / "trainers")
    tune(jobs, "search", "--pause=0.1", maxTrials=9, maxParallelTrials=2)
    for ended in (1, 3, 5):
        wait_for_trials(jobs, "search", ended)
        own_server.kill()
        own_server.start()
    output = jobs.wait("search", {"SUCCEEDED"})["trainingOutput"]
    assert output["completedTrialCount"] == "9"
    assert sorted(int(trial["trialId"]) for trial in output["trials"]) == list(range(1, 10))
    assert all(trial["finalMetric"]["trainingStep"] == "2" for trial in output["trials"])
    started = [line for line in jobs.lines("search") if line.startswith("trial ")]
    assert sorted(started) == sorted(f"trial {number} of search" for number in range(1, 10))
