"""The MNIST samples, each one as a gang of real TensorFlow processes, for a few steps."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.digits import write_part

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
TRAINSHED = Path(sys.executable).with_name("trainshed")
PROJECT = "mnist-course"
BUCKET = f"gs://{PROJECT}-ml"

ASK = """
import json, sys
import tensorflow as tf
inputs = tf.constant([json.loads(line)["inputs"] for line in open(sys.argv[2])])
loaded = tf.saved_model.load(sys.argv[1])
answers = {name: loaded.signatures[name](inputs) for name in ("serving_default", "prediction")}
print(json.dumps({name: {key: (value.dtype.name, value.shape.as_list(), value.numpy().tolist())
      for key, value in answer.items()} for name, answer in answers.items()}))
"""


def trainshed(server: RunningServer, *words: object) -> subprocess.CompletedProcess[str]:
    env = server.env() | {"TRAINSHED_PROJECT": PROJECT}
    command = [str(word) for word in (TRAINSHED, *words)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=800)


@pytest.fixture(scope="module")
def course(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """A server with a bucket that has a part of MNIST, in its own files and as records."""
    mnist, data = tmp_path_factory.mktemp("mnist"), tmp_path_factory.mktemp("records")
    write_part(mnist, train=2000, test=500)
    script = SAMPLES / "mnist_async" / "scripts" / "create_records.py"
    words = ("--output-dir", data, "--source-dir", mnist)
    subprocess.run([sys.executable, script, *words], check=True, timeout=300)
    assert trainshed(framework_server, "buckets", "mb", BUCKET).returncode == 0
    for name, folder in (("data", data), ("mnist", mnist)):
        copied = trainshed(framework_server, "buckets", "cp", *sorted(folder.iterdir()), f"{BUCKET}/{name}/")
        assert copied.returncode == 0, copied.stderr
    return framework_server


def train(server: RunningServer, sample: str, job: str, *, gang: tuple[str, ...], args: tuple[str, ...]) -> list[str]:
    """Run a sample to its good end. Returns the lines of its log, each with its replica: `master-replica-0: text`."""
    flags = (
        f"--package-path={SAMPLES / sample / 'trainer'} --module-name=trainer.task --region=us-central1 "
        f"--job-dir={BUCKET}/{job} --staging-bucket={BUCKET} --runtime-version=2.21 --stream-logs"
    ).split()
    done = trainshed(server, "jobs", "submit", "training", job, *flags, *gang, "--", *args)
    assert done.returncode == 0, done.stderr[-4000:]
    assert re.search(r"^state: SUCCEEDED$", done.stdout, re.MULTILINE)
    lines = [line.split("\t") for line in done.stderr.splitlines() if line.count("\t") >= 4]
    return [f"{line[2]}: {line[-1]}" for line in lines]


def config(sample: str, name: str = "config.yaml") -> tuple[str, ...]:
    return ("--config", str(SAMPLES / sample / "config" / name))


def told(lines: list[str], pattern: str) -> list[str]:
    """What the group of the pattern is in each line that matches."""
    return [found[1] for line in lines if (found := re.search(pattern, line))]


def ask(server: RunningServer, model: Path, request: Path) -> dict[str, Any]:
    """What a model answers, loaded by TensorFlow itself."""
    python = server.home / "runtimes" / CATALOGUE["2.21"].key / "bin" / "python"
    command = [str(python), "-c", ASK, str(model), str(request)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.soak  # test_sample_taxi.py has a gang with a parameter server in every run
@pytest.mark.timeout(900)
def test_parameter_servers_train_one_network_from_three_replicas(course: RunningServer, tmp_path: Path) -> None:
    output = f"{BUCKET}/asynchronous"
    args = ("--data_dir", f"{BUCKET}/data", "--output_dir", output, "--train_steps=100", "--eval_interval_secs=600")
    lines = train(course, "mnist_async", "asynchronous", gang=config("mnist_async", "config_small.yaml"), args=args)

    assert set(told(lines, r"^(\S+): .*Train \[")) == {"master-replica-0", "worker-replica-0", "worker-replica-1"}
    shape = r"Train \[(\w+/\d)\], step \d+: loss: [\d.]+, accuracy: [\d.]+ \([\d.]+ sec\) "
    speed = r"[\d.]+ global steps/s, [\d.]+ local steps/s$"
    assert set(told(lines, shape + speed)) == {"master/0", "worker/0", "worker/1"}
    [step] = told(
        lines, r"^master-replica-0: .*Saving dict for global step (\d+): accuracy = [\d.]+, global_step = \d+"
    )
    assert 100 <= int(step) <= 102  # each of the others may have been in a step
    [accuracy] = told(lines, r"Final metrics after \d+ steps, loss: [\d.]+, accuracy: ([\d.]+)")
    assert float(accuracy) > 0.6

    folder = course.home / "buckets" / output.removeprefix("gs://")
    assert (folder / f"model.ckpt-{step}.index").is_file()
    assert list(folder.glob("events.out.tfevents.*"))
    assert list(folder.glob("eval/events.out.tfevents.*"))
    [model] = folder.glob("export/Servo/*")
    assert re.fullmatch(r"\d{10}", model.name)
    request = tmp_path / "request.json"
    script = SAMPLES / "mnist_async" / "scripts" / "make_request.py"
    subprocess.run([sys.executable, script, "--output", request], check=True, timeout=300)
    answers = ask(course, model, request)
    assert answers["prediction"] == answers["serving_default"]
    kind, size, classes = answers["prediction"]["classes"]
    assert (kind, size) == ("int64", [10])
    assert sum(a == b for a, b in zip(classes, [7, 2, 1, 0, 4, 1, 4, 9, 5, 9], strict=True)) >= 6
    kind, size, probabilities = answers["prediction"]["probabilities"]
    assert (kind, size) == ("float32", [10, 10])
    assert all(abs(sum(row) - 1) < 1e-4 for row in probabilities)


@pytest.mark.soak  # test_demo.py trains the sample in every run, test_gangs_tensorflow.py resumes from a checkpoint
@pytest.mark.timeout(900)
def test_one_replica_does_it_all_and_a_second_job_goes_on_from_its_checkpoint(course: RunningServer) -> None:
    paths = (f"--train_data_paths={BUCKET}/data/train*", f"--eval_data_paths={BUCKET}/data/test.tfrecords")
    basic, output = ("--scale-tier=BASIC",), (f"--output_path={BUCKET}/alone",)
    first = train(course, "mnist_async", "alone_1", gang=basic, args=(*paths, *output, "--train_steps=2"))
    assert told(first, r"Final metrics after (\d+) steps") == ["2"]
    assert told(first, r"(Going on)") == []
    second = train(course, "mnist_async", "alone_2", gang=basic, args=(*paths, *output, "--train_steps=4"))
    assert told(second, r"Going on from the checkpoint of step (\d+)") == ["2"]
    assert told(second, r"Train \[master/0\], step (\d+)")[0] == "3"
    assert told(second, r"Final metrics after (\d+) steps") == ["4"]


@pytest.mark.timeout(900)
def test_synchronous_replicas_agree(course: RunningServer) -> None:
    args = ("--data_dir", f"{BUCKET}/mnist", "--epochs=2", "--steps_per_epoch=10")
    lines = train(course, "mnist_sync", "synchronous", gang=config("mnist_sync"), args=args)
    measured = re.compile(r"^(\S+): .*Test accuracy: ([\d.]+)$")
    accuracies = {found[1]: found[2] for line in lines if (found := measured.search(line))}
    assert set(accuracies) == {"master-replica-0", "worker-replica-0"}
    assert len(set(accuracies.values())) == 1
    assert float(accuracies["master-replica-0"]) > 0.2
    assert set(told(lines, r"Replica (\S+) of 2 in step")) == {"master/0", "worker/0"}
    assert set(told(lines, r"^(\S+): .*Saved the model to")) == set(accuracies)
    folder = course.home / "buckets" / f"{PROJECT}-ml" / "synchronous"
    name = "mnist_classification_multiworkermirrored"
    assert (folder / name / "saved_model.pb").is_file()
    assert (folder / "workertemp_0" / name / "saved_model.pb").is_file()
    assert list(folder.glob("events.out.tfevents.*"))


@pytest.mark.soak  # the replicas of the gangs above and in test_sample_taxi.py reach each other in the same way
@pytest.mark.timeout(900)
def test_layers_of_one_network_are_on_two_workers(course: RunningServer) -> None:
    args = ("--data_dir", f"{BUCKET}/mnist", "--train_steps=40")
    lines = train(course, "mnist_model_parallel", "layers", gang=config("mnist_model_parallel"), args=args)
    place = re.compile(r"(\w+)/kernel .* is on /job:worker/task:(\d)")
    places = {found[1]: found[2] for line in lines if (found := place.search(line))}
    assert places == {"conv1": "0", "conv2": "0", "dense": "1", "logits": "1"}
    [accuracy] = told(lines, r"Final metrics after 40 steps, loss: [\d.]+, accuracy: ([\d.]+)")
    assert float(accuracy) > 0.7
