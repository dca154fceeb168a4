"""Progress, watching and statistics of real jobs: ones that print lines, and one that writes summaries."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "progress-course"
TRAINER = """
import json, os, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
name = "%s/%d" % (task["type"], task["index"])

def wait_for(file):
    while not os.path.exists(file):
        time.sleep(0.01)

def tell(step):
    told = "Train [%s], step %d: loss: %.3f, accuracy: 0.750 (1.5 sec) 14.0 global steps/s, 7.0 local steps/s"
    print(told % (name, step, 100.0 / step), flush=True)

if task["type"] == "ps":
    wait_for("never")
tell(100)
time.sleep(0.3)
tell(150)
if task["type"] == "worker":
    wait_for("never")
print("Eval, step 150: loss: 0.250, accuracy: 0.875", flush=True)
wait_for("done")
tell(200)
sys.exit(int(open("done").read() or 0))
"""
GANG = {
    "scaleTier": "CUSTOM",
    "masterType": "n1-standard-4",
    "workerType": "n1-standard-4",
    "workerCount": "1",
    "parameterServerType": "n1-standard-4",
    "parameterServerCount": "1",
    "args": ["--train_steps", "200"],
}
SUMMARIES = """
import argparse
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--job-dir")
parser.add_argument("--max_steps", type=int)
args = parser.parse_args()
with tf.summary.create_file_writer(args.job_dir + "/train").as_default():
    for step in range(10, 51, 10):
        tf.summary.scalar("loss", 10.0 / step, step=step)
        tf.summary.scalar("accuracy", tf.constant(1 - 1 / step, tf.float64), step=step)
        tf.summary.histogram("weights", [1.0, 2.0], step=step)
        tf.summary.text("words", "loss", step=step)
values = [tf.compat.v1.Summary.Value(tag="accuracy", simple_value=0.75)]
with tf.Graph().as_default(), tf.compat.v1.summary.FileWriter(args.job_dir + "/eval") as writer:
    writer.add_summary(tf.compat.v1.Summary(value=values), 40)
"""


@pytest.fixture(scope="module")
def jobs(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Submitter:
    return Submitter(server, PROJECT, tmp_path_factory.mktemp("progress"))


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "trainshed.cli", *words]


def trainshed(server: RunningServer, *words: str, project: str = PROJECT) -> subprocess.CompletedProcess[str]:
    env = server.env() | {"TRAINSHED_PROJECT": project, "COLUMNS": "100"}
    return subprocess.run(command(*words), env=env, capture_output=True, text=True, timeout=180)


def progress(jobs: Submitter, job: str) -> Any:
    return jobs.server.call("GET", f"/trainshed/v1/projects/{jobs.project}/jobs/{job}/progress")


def stats(jobs: Submitter, job: str) -> Any:
    return jobs.server.call("GET", f"/trainshed/v1/projects/{jobs.project}/jobs/{job}/stats?points=50")


def begin(jobs: Submitter, job: str) -> None:
    """Submit a gang, and wait until all that tell have told, and all were sampled."""
    jobs.submit(job, TRAINER, **GANG)
    eventually(
        lambda: [replica["step"] for replica in progress(jobs, job)["replicas"]],
        lambda steps: steps == [150, 150, None],
    )
    eventually(lambda: stats(jobs, job)["replicas"], lambda found: all(replica["cpu"]["value"] for replica in found))


def end(jobs: Submitter, job: str, status: int = 0) -> None:
    work = jobs.attempt(job) / "work"
    (work / "end").write_text(str(status))
    (work / "end").rename(work / "done")


def test_a_running_job_tells_how_far_it_is(server: RunningServer, jobs: Submitter) -> None:
    begin(jobs, "telling")
    found = progress(jobs, "telling")
    told = found["progress"]
    assert (told["step"], told["totalSteps"], told["fraction"]) == (150, 200, 0.75)
    assert (told["accuracy"], told["globalStepsPerSecond"]) == (0.75, 14.0)
    assert 0 < told["leftSeconds"] < 60
    master, worker, ps = found["replicas"]
    assert [each["state"] for each in found["replicas"]] == ["running"] * 3
    assert (worker["localStepsPerSecond"], ps["localStepsPerSecond"]) == (7.0, None)
    assert master["memoryBytes"] > 1 << 20
    details = server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/telling")
    assert details["progress"]["step"] == 150

    described = trainshed(server, "jobs", "describe", "telling").stderr
    assert "Step 150 of 200 (75 %), loss 0.667, accuracy 0.75, 14 steps/s, about " in described
    assert "Evaluated at step 150: loss 0.25, accuracy 0.875." in described

    end(jobs, "telling")
    jobs.wait("telling")
    ended = trainshed(server, "jobs", "describe", "telling", "--format", "value(state)")
    assert ended.stdout == "SUCCEEDED\n"
    assert "It came to step 200 of 200 (100 %), loss 0.5, accuracy 0.75, 14 steps/s. Evaluated" in ended.stderr


def test_watching_ends_with_the_job_and_as_it_ends(server: RunningServer, jobs: Submitter) -> None:
    begin(jobs, "watched")
    env = server.env() | {"TRAINSHED_PROJECT": PROJECT}
    words = command("jobs", "watch", "watched", "--interval", "0.2")
    with (
        subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as lines,
        subprocess.Popen([*words, "--format=json"], env=env, stdout=subprocess.PIPE, text=True) as objects,
    ):
        assert lines.stdout is not None
        assert lines.stderr is not None
        assert objects.stdout is not None
        first, given = lines.stdout.readline(), json.loads(objects.stdout.readline())
        end(jobs, "watched", 3)
        # not by `communicate`, which does not know of the lines that were read ahead
        rest, answers = lines.stdout.read(), [json.loads(line) for line in objects.stdout]
        said = lines.stderr.read()
    assert "  RUNNING  step 150 of 200 (75 %), loss 0.667" in first
    assert "  3 replicas run: CPU " in first
    assert (given["state"], given["progress"]["step"], given["replicas"][2]["name"]) == ("RUNNING", 150, "ps-replica-0")
    assert "  FAILED  step 200 of 200 (100 %), loss 0.5" in rest.splitlines()[-1]
    assert "Job [watched] is FAILED.\nThe replica master 0 exited with a non-zero status of 3." in said
    assert [each["status"] for each in answers[-1]["replicas"]] == ["exit status 3", "stopped", "stopped"]
    assert (lines.returncode, objects.returncode) == (1, 1)
    assert trainshed(server, "jobs", "watch", "absent").returncode == 1


def test_on_a_terminal_there_is_a_bar_and_a_row_for_each_replica(server: RunningServer, jobs: Submitter) -> None:
    begin(jobs, "shown")
    end(jobs, "shown")
    above, below = pty.openpty()
    env = server.env() | {"TRAINSHED_PROJECT": PROJECT, "COLUMNS": "100", "LINES": "40", "TERM": "xterm"}
    with subprocess.Popen(command("jobs", "watch", "shown"), env=env, stdout=below, stderr=subprocess.DEVNULL) as view:
        os.close(below)
        seen = b""
        try:
            while data := os.read(above, 65536):
                seen += data
        except OSError:  # the other side is closed
            pass
    os.close(above)
    assert view.returncode == 0
    text = seen.decode()
    assert "━━━━" in text
    assert "100 %" in text
    for heading in ("REPLICA", "STATE", "STEP", "STEPS/S", "CPU", "MEMORY", "worker-replica-0", "stopped"):
        assert heading in text


def test_the_use_of_cpu_and_memory_can_be_read_after_the_end(server: RunningServer, jobs: Submitter) -> None:
    begin(jobs, "sampled")
    end(jobs, "sampled")
    jobs.wait("sampled")
    table = trainshed(server, "jobs", "stats", "sampled")
    assert table.stdout.splitlines()[0].split() == ["REPLICA", "CPU_MEAN", "CPU_MAX", "MEMORY_MEAN", "MEMORY_MAX"]
    assert [line.split()[0] for line in table.stdout.splitlines()[1:]] == [
        "master-replica-0",
        "worker-replica-0",
        "ps-replica-0",
    ]
    assert "Job [sampled] is SUCCEEDED; it ran for " in table.stderr
    drawn = trainshed(server, "jobs", "stats", "sampled", "--plot").stdout
    assert "\nLoss by step: the last is 0.5\n" in drawn
    assert any(0x2800 < ord(char) < 0x2900 for char in drawn)
    assert "█" in drawn
    given = json.loads(trainshed(server, "jobs", "stats", "sampled", "--format", "json", "--points", "9").stdout)
    memory = given["replicas"][0]["memoryBytes"]
    assert 0 < len(memory["time"]) == len(memory["value"]) <= 9
    assert 0 < memory["mean"] <= memory["max"]
    loss = next(each for each in given["metrics"] if each["name"] == "loss" and not each["evaluation"])
    assert (loss["step"], loss["value"]) == ([100, 150, 200], [1.0, 0.667, 0.5])
    refused = trainshed(server, "jobs", "stats", "sampled", "--points", "5000")
    assert refused.returncode == 2


def test_a_job_that_told_nothing_is_said_to(server: RunningServer, jobs: Submitter) -> None:
    jobs.submit("silent", "print('hello')")
    jobs.wait("silent")
    (jobs.attempt("silent") / "samples.jsonl").unlink(missing_ok=True)  # on a slow machine it lasts until the first one
    found = trainshed(server, "jobs", "stats", "silent", "--plot")
    assert (found.stdout, found.returncode) == ("", 0)
    assert "There are no samples of this job" in found.stderr
    assert "It came to" not in trainshed(server, "jobs", "describe", "silent").stderr


@pytest.mark.timeout(900)
def test_summaries_of_tensorflow_are_read(framework_server: RunningServer, tmp_path: Path) -> None:
    jobs = Submitter(framework_server, "summary-course", tmp_path)
    job_dir = f"gs://{jobs.bucket}/model"
    jobs.submit("summaries", SUMMARIES, runtimeVersion="2.21", jobDir=job_dir, args=["--max_steps=100"])
    done = jobs.wait("summaries", timeout_s=800)
    assert done["state"] == "SUCCEEDED", done.get("errorMessage")
    told = progress(jobs, "summaries")["progress"]
    assert (told["step"], told["totalSteps"], told["fraction"]) == (50, 100, 0.5)
    assert (told["loss"], told["accuracy"]) == (pytest.approx(0.2), pytest.approx(0.98))
    assert (told["evaluation"]["step"], told["evaluation"]["accuracy"]) == (40, 0.75)
    series = {(each["name"], each["evaluation"]): each for each in stats(jobs, "summaries")["metrics"]}
    assert series["loss", False]["step"] == [10, 20, 30, 40, 50]
    described = trainshed(framework_server, "jobs", "describe", "summaries", project="summary-course").stderr
    assert "It came to step 50 of 100 (50 %), loss 0.2, accuracy 0.98" in described
