"""Real TensorFlow jobs, submitted with the command line that people know."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import Submitter

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
TRAINSHED = Path(sys.executable).with_name("trainshed")
PROJECT = "iris-course"
BUCKET = f"gs://{PROJECT}-ml"

ESTIMATOR = """
import argparse, tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--job-dir")
args = parser.parse_args()
columns = [tf.feature_column.numeric_column("x")]

def data():
    return tf.data.Dataset.from_tensors(({"x": [[0.0], [1.0], [2.0], [3.0]]}, [0, 0, 1, 1])).repeat()

model = tf.estimator.DNNClassifier(feature_columns=columns, hidden_units=[4], model_dir=args.job_dir)
model.train(data, steps=20)
print("estimator", tf.__version__, model.evaluate(data, steps=1)["global_step"])
"""

OLD_GANG = """
import argparse
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--job-dir")
args = parser.parse_args()
tf.logging.set_verbosity(tf.logging.INFO)

def data():
    return tf.data.Dataset.from_tensors(({"x": [[0.0], [1.0], [2.0], [3.0]]}, [0, 0, 1, 1])).repeat()

config = tf.estimator.RunConfig(model_dir=args.job_dir, experimental_max_worker_delay_secs=0)
print("replica", config.task_type, config.task_id, tf.__version__, flush=True)
columns = [tf.feature_column.numeric_column("x")]
model = tf.estimator.DNNClassifier(feature_columns=columns, hidden_units=[4], config=config)
spec = tf.estimator.EvalSpec(data, steps=1, throttle_secs=0)
tf.estimator.train_and_evaluate(model, tf.estimator.TrainSpec(data, max_steps=20), spec)
"""


def trainshed(server: RunningServer, *words: str) -> subprocess.CompletedProcess[str]:
    env = server.env() | {"TRAINSHED_PROJECT": PROJECT}
    return subprocess.run([TRAINSHED, *words], env=env, capture_output=True, text=True, timeout=600)


@pytest.mark.timeout(900)
def test_the_iris_sample_trains_and_exports(framework_server: RunningServer) -> None:
    assert trainshed(framework_server, "buckets", "mb", BUCKET).returncode == 0
    assert trainshed(framework_server, "buckets", "cp", "-r", str(SAMPLES / "iris" / "data"), BUCKET).returncode == 0
    flags = (
        f"--package-path={SAMPLES / 'iris' / 'trainer'} --module-name=trainer.task --region=us-central1 "
        f"--job-dir={BUCKET}/iris --staging-bucket={BUCKET} --scale-tier=BASIC --runtime-version=2.21 --stream-logs "
        f"-- --outdir={BUCKET}/iris --train_steps=1000 --train_file={BUCKET}/data/iris_training.csv "
        f"--test_file={BUCKET}/data/iris_test.csv"
    ).split()
    done = trainshed(framework_server, "jobs", "submit", "training", "iris_1", *flags)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"^state: SUCCEEDED$", done.stdout, re.MULTILINE)
    lines = [line.split("\t") for line in done.stderr.splitlines() if line.count("\t") >= 4]
    final = [line for line in lines if "Saving dict for global step 1000" in line[-1]]
    assert [(line[0], line[2]) for line in final] == [("INFO", "master-replica-0")]
    accuracy = re.search(r"accuracy = ([\d.]+)", final[0][-1])
    assert accuracy is not None
    assert float(accuracy[1]) > 0.9

    listed = trainshed(framework_server, "buckets", "ls", f"{BUCKET}/iris/export/exporter").stdout.split()
    assert re.fullmatch(rf"{BUCKET}/iris/export/exporter/\d+/", listed[-1])
    exported = framework_server.home / "buckets" / listed[-1].removeprefix("gs://")
    assert (exported / "saved_model.pb").is_file()
    described = trainshed(framework_server, "jobs", "describe", "iris_1", "--format", "json")
    assert json.loads(described.stdout)["trainingInput"]["runtimeVersion"] == "2.21"


@pytest.mark.soak  # the tutorial iris, which test_tutorials.py types in every run, does the same
@pytest.mark.timeout(900)
def test_the_iris_sample_finds_its_files_in_a_bucket_that_it_is_told_of(framework_server: RunningServer) -> None:
    project, bucket = "iris-bucket", "iris-bucket-ml"
    env = ("--project", project)
    assert trainshed(framework_server, "buckets", "mb", f"gs://{bucket}", *env).returncode == 0
    data = str(SAMPLES / "iris" / "data")
    assert trainshed(framework_server, "buckets", "cp", "-r", data, f"gs://{bucket}", *env).returncode == 0
    flags = (
        f"--package-path={SAMPLES / 'iris' / 'trainer'} --module-name=trainer.task --region=us-central1 "
        f"--job-dir=gs://{bucket}/iris --staging-bucket=gs://{bucket} --runtime-version=2.21 --stream-logs "
        f"-- --bucket={bucket} --project={project} --outdir=gs://{bucket}/iris --train_steps=300 "
        f"--train_file=data/iris_training.csv --test_file=data/iris_test.csv"
    ).split()
    done = trainshed(framework_server, "jobs", "submit", "training", "iris_1", *env, *flags)
    assert done.returncode == 0, done.stderr[-3000:]
    accuracy = re.search(r"Saving dict for global step 300: accuracy = ([\d.]+)", done.stderr)
    assert accuracy is not None
    assert float(accuracy[1]) > 0.9


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("oldest_python")
def test_the_oldest_runtime_runs_a_gang(framework_server: RunningServer, tmp_path: Path) -> None:
    jobs = Submitter(framework_server, "old-gang", tmp_path)
    roles = ("master", "worker", "parameterServer")
    gang = {f"{role}Type": "n1-standard-4" for role in roles} | {f"{role}Count": "1" for role in roles[1:]}
    jobs.submit("gang", OLD_GANG, runtimeVersion="1.15", jobDir=f"gs://{jobs.bucket}/model", scaleTier="CUSTOM", **gang)
    done = jobs.wait("gang", timeout_s=800)
    assert done["state"] == "SUCCEEDED", done.get("errorMessage")
    lines = jobs.lines("gang")
    assert {line for line in lines if line.startswith("replica ")} == {
        "replica master 0 1.15.5",
        "replica worker 0 1.15.5",
        "replica ps 0 1.15.5",
    }
    measured = [line for line in lines if "Saving dict for global step" in line]
    assert int(re.search(r"global step (\d+)", measured[-1])[1]) >= 20  # type: ignore[index]


@pytest.mark.timeout(900)
def test_an_old_version_number_runs_on_a_newer_runtime_and_says_so(
    framework_server: RunningServer, tmp_path: Path
) -> None:
    jobs = Submitter(framework_server, "old-course", tmp_path)
    job_dir = f"gs://{jobs.bucket}/model"
    jobs.submit("estimator", ESTIMATOR, runtimeVersion="2.1", pythonVersion="3.7", jobDir=job_dir)
    done = jobs.wait("estimator", timeout_s=800)
    assert done["state"] == "SUCCEEDED", done.get("errorMessage")
    lines = jobs.lines("estimator")
    assert "estimator 2.15.1 20" in lines
    assert any("2.1 " in line and "2.15" in line for line in lines)
    described = trainshed(framework_server, "jobs", "describe", "estimator", "--project", "old-course")
    assert "2.1 " in described.stderr
    assert "2.15" in described.stderr
    assert (framework_server.home / "buckets" / jobs.bucket / "model" / "checkpoint").is_file()
