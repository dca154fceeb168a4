"""What the service makes of a job's log, its event files, its journal and its samples, all of them written here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.file_backend import FileBackend
from trainshed.config import Home
from trainshed.domain.jobs.batch_prediction import BatchPrediction
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.errors import InvalidArgumentError, NotFoundError
from trainshed.services.jobs import tracker
from trainshed.services.jobs.output_folders import output_uris
from trainshed.services.jobs.progress import ProgressService
from trainshed.services.storage.mirrors import Mirrors
from trainshed.store.jobs import JobStore
from trainshed.testing.workloads.event_files import write_events
from trainshed.testing.workloads.job_logs import open_jobs

START_S = 1_700_000_000
SECOND = 1_000_000
GANG = {
    "scaleTier": "CUSTOM",
    "masterType": "n1-standard-4",
    "workerType": "n1-standard-4",
    "workerCount": "1",
    "parameterServerType": "n1-standard-4",
    "parameterServerCount": "1",
}


@dataclass
class Written:
    """A job that runs, in the files that its supervisor and its trainer would write."""

    progress: ProgressService
    jobs: JobStore
    job: Job
    home: Home
    now_s: float = START_S + 100

    @property
    def attempt(self) -> Path:
        return self.home.jobs / "p" / "j" / "1"

    def append(self, name: str, *lines: dict[str, Any]) -> None:
        self.attempt.mkdir(parents=True, exist_ok=True)
        with open(self.attempt / name, "a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def say(self, at_s: float, text: str, replica: str = "master-replica-0") -> None:
        self.append("log.jsonl", {"t": int((START_S + at_s) * SECOND), "r": replica, "s": "INFO", "m": text})

    def told(self) -> dict[str, Any]:
        found = self.progress.progress("p", "j")["progress"]
        return {name: value for name, value in (found or {}).items() if value is not None}

    def replica(self, name: str) -> dict[str, Any]:
        found = self.progress.progress("p", "j")["replicas"]
        return next(each for each in found if each["name"] == name)


def job_with(tmp_path: Path, **training: Any) -> Written:
    home = Home(tmp_path / "home")
    jobs = open_jobs(home)
    job = Job(
        project="p",
        id="j",
        workload=Training.parse({"pythonModule": "trainer.task", **training}),
        state=JobState.RUNNING,
        attempt=1,
        created_us=START_S * SECOND,
        started_us=START_S * SECOND,
    )

    def owner(bucket: str) -> str:
        if bucket == "absent":
            raise NotFoundError("There is no such bucket.")
        return "p" if bucket.startswith("mine") else "other"

    mirrors = Mirrors(home.mirrors, BackendRouter(FileBackend(home.buckets, home.uploads), {}))
    made = Written(
        ProgressService(jobs, home, mirrors, owner=owner, clock=lambda: int(made.now_s * SECOND)), jobs, job, home
    )
    jobs.add(job, [])
    return made


def test_a_job_that_tells_nothing_has_no_progress(tmp_path: Path) -> None:
    job = job_with(tmp_path, args=["--train_steps=100"])
    assert job.progress.progress("p", "j")["progress"] is None
    job.say(1, "Hello, this is my trainer.")
    found = job.progress.progress("p", "j")
    assert found["progress"] is None
    assert [(each["name"], each["state"], each["step"], each["cpu"]) for each in found["replicas"]] == [
        ("master-replica-0", "waiting", None, None)
    ]
    assert found["elapsedSeconds"] == 100.0


def test_lines_tell_the_step_the_rates_and_the_time_left(tmp_path: Path) -> None:
    job = job_with(tmp_path, args=["--train_steps=1000"], **GANG)
    for second in range(90, 100):
        line = "loss: 0.5, accuracy: 0.75 (9.1 sec) 20.0 global steps/s, {} local steps/s"
        job.say(second, f"Train [master/0], step {second * 5}: {line.format(12.0)}")
        job.say(second + 0.5, f"Train [worker/0], step {second * 5 + 2}: {line.format(8.0)}", "worker-replica-0")
    job.say(99.9, "Eval, step 490: loss: 0.25, accuracy: 0.875")
    told = job.told()
    assert (told["step"], told["totalSteps"], told["fraction"]) == (497, 1000, 0.497)
    assert (told["loss"], told["accuracy"], told["globalStepsPerSecond"]) == (0.5, 0.75, 20.0)
    assert told["leftSeconds"] == pytest.approx(503 / 5)  # by the steps that were made, not by what the last line says
    evaluation = told["evaluation"]
    assert (evaluation["step"], evaluation["loss"], evaluation["accuracy"]) == (490, 0.25, 0.875)
    assert job.replica("worker-replica-0")["localStepsPerSecond"] == 8.0
    assert job.replica("worker-replica-0")["step"] == 497
    assert job.replica("ps-replica-0")["localStepsPerSecond"] is None


def test_while_the_master_evaluates_the_workers_tell_how_far_the_gang_is(tmp_path: Path) -> None:
    job = job_with(tmp_path, args=["--train_steps=300"], **GANG)
    job.say(90, "Train [worker/0], step 20: loss: 0.75", "worker-replica-0")
    job.say(91, "Train [master/0], step 13: loss: 0.5")
    assert (job.told()["step"], job.told()["loss"]) == (13, 0.5)  # the worker's is of before
    job.say(95, "Train [worker/0], step 27: loss: 0.25", "worker-replica-0")
    assert (job.told()["step"], job.told()["loss"]) == (27, 0.5)
    job.say(96, "Train [worker/0], step 301: loss: 0.125", "worker-replica-0")
    assert (job.told()["step"], job.told()["totalSteps"]) == (13, 300)
    job.say(97, "Train [master/0], step 300: loss: 0.125")
    assert job.told()["fraction"] == 1.0


def test_an_estimators_lines_are_put_together(tmp_path: Path) -> None:
    job = job_with(tmp_path)
    job.say(1, "loss = 0.75, step = 100")
    job.say(5, "global_step/sec: 25.5")
    job.say(5, "loss = 0.5, step = 200 (3.9 sec)")
    job.say(6, "Saving checkpoints for 250 into /somewhere/model.ckpt.")
    told = job.told()
    assert (told["step"], told["loss"], told["globalStepsPerSecond"]) == (200, 0.5, 25.5)
    assert "totalSteps" not in told
    assert "leftSeconds" not in told
    assert job.replica("master-replica-0")["localStepsPerSecond"] == 25.0  # measured: it is alone


def test_a_number_without_a_measure_gives_way_to_event_files(tmp_path: Path) -> None:
    job = job_with(tmp_path, jobDir="gs://mine/model")
    job.say(1, "Step 2: reading the data")
    assert job.told()["step"] == 2
    at = START_S + 10
    write_events(
        job.home.buckets / "mine/model", (at, 70, {"loss": 0.5, "accuracy": 0.25}), (at + 10, 90, {"loss": 0.25})
    )
    write_events(job.home.buckets / "mine/model/eval", (at + 5, 80, {"loss": 1.5, "accuracy": 0.125}))
    told = job.told()
    assert (told["step"], told["loss"], told["accuracy"], told["globalStepsPerSecond"]) == (90, 0.25, 0.25, 2.0)
    assert (told["evaluation"]["step"], told["evaluation"]["loss"]) == (80, 1.5)


def test_event_files_go_on_where_lines_stop(tmp_path: Path) -> None:
    job = job_with(tmp_path, jobDir="gs://mine/model")
    job.say(1, "loss = 9.5, step = 1")
    write_events(job.home.buckets / "mine/model", (START_S + 95, 800, {"loss": 0.5}))
    assert (job.told()["step"], job.told()["loss"]) == (800, 0.5)


def test_keras_counts_epochs_in_its_event_files(tmp_path: Path) -> None:
    job = job_with(tmp_path, args=["--epochs=8"])
    write_events(job.attempt / "work/logs/train", (START_S + 5, 2, {"epoch_loss": 0.5, "epoch_accuracy": 0.75}))
    told = job.told()
    assert (told["epoch"], told["totalEpochs"], told["loss"]) == (3, 8, 0.5)
    assert "step" not in told
    [loss] = [each for each in job.progress.stats("p", "j")["metrics"] if each["name"] == "loss"]
    assert (loss["unit"], loss["step"], loss["value"]) == ("epoch", [3], [0.5])


@pytest.mark.parametrize(
    ("folder", "training", "line", "seen"),
    [
        ("mine/out", {"args": ["--output_dir=gs://mine/out"]}, "", True),
        ("mine/out", {"args": ["--model_dir", "gs://mine/out/"]}, "", True),
        ("mine/out", {"args": ["--data_dir=gs://mine/out"]}, "", False),
        ("mine/out", {}, "Saving checkpoints for 0 into gs://mine/out/model.ckpt.", True),
        ("mine/out", {}, "Saving checkpoints for 0 into {buckets}/mine/out/model.ckpt.", True),
        ("theirs/out", {}, "Saving checkpoints for 0 into {buckets}/theirs/out/model.ckpt.", False),
        ("theirs/out", {"jobDir": "gs://theirs/out"}, "", False),
        ("mine", {"jobDir": "gs://mine"}, "", True),
        ("absent/out", {"jobDir": "gs://absent/out"}, "", False),
        ("theirs/out", {}, "Saving into {buckets}/mine/../theirs/out/model.ckpt", False),
    ],
)
def test_event_files_are_looked_for_where_the_job_may_write(
    tmp_path: Path, folder: str, training: dict[str, Any], line: str, seen: bool
) -> None:
    job = job_with(tmp_path, **training)
    write_events(job.home.buckets / folder, (START_S + 5, 7, {"loss": 0.5}))
    job.say(1, line.format(buckets=job.home.buckets))
    assert (job.told().get("loss") == 0.5) is seen


def test_after_a_long_silence_nothing_is_foretold(tmp_path: Path) -> None:
    job = job_with(tmp_path, args=["--max_steps=100"])
    job.say(1, "loss = 1.0, step = 1")
    job.say(2, "loss = 1.0, step = 2")
    assert "leftSeconds" not in job.told()
    assert job.told()["ageSeconds"] == 98.0
    job.now_s = START_S + 3
    assert job.told()["leftSeconds"] == 98.0


def test_a_loss_that_is_no_number_is_said_as_it_is(tmp_path: Path) -> None:
    job = job_with(tmp_path)
    job.say(1, "loss = nan, step = 1")
    assert job.told()["loss"] == "NaN"


def test_replicas_have_the_state_that_the_journal_tells(tmp_path: Path) -> None:
    job = job_with(tmp_path, **GANG)
    for name in ("master", "worker", "ps"):
        job.append("journal.jsonl", {"event": "replica_started", "name": f"{name}-replica-0", "pid": 1, "t": 1})
    job.append("samples.jsonl", {"t": 1, "r": "worker-replica-0", "cpu": 0.5, "rss": 7000, "processes": 2, "span": 1})
    worker = job.replica("worker-replica-0")
    assert (worker["state"], worker["cpu"], worker["memoryBytes"], worker["processes"]) == ("running", 0.5, 7000, 2)
    exited = {"event": "replica_exited", "name": "worker-replica-0", "code": None, "signal": 9, "t": 2}
    job.append("journal.jsonl", exited)
    assert job.replica("worker-replica-0")["status"] == "killed by signal 9"
    worker = job.replica("worker-replica-0")
    assert (worker["state"], worker["exitCode"], worker["signal"], worker["cpu"]) == ("killed", None, 9, None)
    job.append("journal.jsonl", {"event": "replica_started", "name": "worker-replica-0", "pid": 2, "t": 3})
    assert (job.replica("worker-replica-0")["state"], job.replica("worker-replica-0")["restarts"]) == ("running", 1)
    job.append(
        "journal.jsonl", {"event": "replica_exited", "name": "master-replica-0", "code": 0, "signal": None, "t": 4}
    )
    job.append(
        "journal.jsonl",
        {"event": "stopping", "outcome": "SUCCEEDED", "t": 5},
        exited | {"signal": 15, "name": "ps-replica-0"},
    )
    assert [job.replica(f"{name}-replica-0")["state"] for name in ("master", "ps")] == ["done", "stopped"]


def test_the_use_of_cpu_and_memory_is_a_series_with_its_mean_and_its_peak(tmp_path: Path) -> None:
    job = job_with(tmp_path)
    for second in range(4000):
        job.append(
            "samples.jsonl",
            {"t": second, "r": "master-replica-0", "cpu": second % 2, "rss": second, "processes": 1, "span": 1.0},
            {"t": second, "r": "somebody-else", "cpu": 1, "rss": 1, "processes": 1, "span": 1},
        )
    with open(job.attempt / "samples.jsonl", "a") as file:
        file.write('not json\n[1]\n{"r": 1}\n{"r": "master-replica-0", "t": "x"}\n{"torn')
    [found] = job.progress.stats("p", "j", points=100)["replicas"]
    assert (found["cpu"]["mean"], found["cpu"]["max"]) == (0.5, 1.0)
    assert (found["memoryBytes"]["mean"], found["memoryBytes"]["max"]) == (2000, 3999)
    assert 50 < len(found["cpu"]["value"]) <= 100
    assert len(found["cpu"]["time"]) == len(found["cpu"]["value"])
    with pytest.raises(InvalidArgumentError, match="from 1 to 1000"):
        job.progress.stats("p", "j", points=100_000)


def test_of_a_huge_log_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker, "MAX_LOG_BYTES", 2000)
    job = job_with(tmp_path)
    for second in range(90):
        job.say(second, f"loss = 0.5, step = {second}")
    assert job.told()["step"] == 89
    [loss] = [each for each in job.progress.stats("p", "j")["metrics"] if each["name"] == "loss"]
    assert 10 < len(loss["step"]) < 30


def test_what_comes_into_the_folder_after_the_job_is_not_its_own(tmp_path: Path) -> None:
    job = job_with(tmp_path, jobDir="gs://mine/model")
    write_events(job.home.buckets / "mine/model", (START_S + 5, 7, {"loss": 0.5}), (START_S + 500, 9, {"loss": 0.1}))
    ended = job.job.to(JobState.SUCCEEDED, now_us=(START_S + 50) * SECOND)
    job.jobs.record(ended)
    assert (job.told()["step"], job.told()["loss"]) == (7, 0.5)
    found = job.progress.progress("p", "j")
    assert (found["state"], found["elapsedSeconds"]) == ("SUCCEEDED", 50.0)


def test_a_job_that_predicts_has_a_replica_and_no_progress(tmp_path: Path) -> None:
    job = job_with(tmp_path)
    asked = {"inputPaths": ["gs://mine/rows"], "outputPath": "gs://mine/out", "dataFormat": "JSON"}
    other = Job(project="p", id="batch", workload=BatchPrediction.parse(asked), created_us=1, attempt=1)
    job.jobs.add(other, [])
    found = job.progress.progress("p", "batch")
    assert (found["progress"], [each["name"] for each in found["replicas"]]) == (None, ["master-replica-0"])
    assert job.progress.stats("p", "batch")["metrics"] == []


def test_outputs_among_arguments() -> None:
    args = ["--out=gs://a/b", "--train-files", "gs://c/d", "--log", "gs://e", "gs://f", "--eval_files=gs://g", "x"]
    assert list(output_uris(args)) == ["gs://a/b", "gs://e", "gs://f"]
