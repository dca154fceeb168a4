"""`gs://` in the code of trainers: TensorFlow's own file system, unmodified, on this server's buckets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.jobs import Submitter
from trainshed.testing.servers import RunningServer

#: what each replica does in a folder of its own; `BASE` is a gs:// address
FILES = """
import tensorflow as tf
from tensorflow.io import gfile

def files(base):
    with gfile.GFile(f"{base}/one.txt", "w") as file:
        file.write("first\\n")
        file.write("second\\n")
    assert gfile.exists(f"{base}/one.txt") and not gfile.exists(f"{base}/absent.txt")
    assert gfile.GFile(f"{base}/one.txt").read() == "first\\nsecond\\n"
    assert [line.strip() for line in gfile.GFile(f"{base}/one.txt")] == ["first", "second"]
    with gfile.GFile(f"{base}/one.txt", "a") as file:
        file.write("third\\n")
    assert gfile.stat(f"{base}/one.txt").length == 19
    with gfile.GFile(f"{base}/empty", "w") as file:
        file.write("")
    assert gfile.GFile(f"{base}/empty").read() == ""
    gfile.makedirs(f"{base}/a/b")
    assert gfile.isdir(f"{base}/a/b") and gfile.isdir(base) and not gfile.isdir(f"{base}/one.txt")
    gfile.copy(f"{base}/one.txt", f"{base}/a/b/two.txt")
    gfile.copy(f"{base}/one.txt", f"{base}/a/b/two.txt", overwrite=True)
    gfile.rename(f"{base}/a/b/two.txt", f"{base}/a/with space + %.txt")
    assert gfile.GFile(f"{base}/a/with space + %.txt").read().endswith("third\\n")
    assert sorted(gfile.listdir(base)) == ["a/", "empty", "one.txt"], gfile.listdir(base)
    assert gfile.glob(f"{base}/a/*.txt") == [f"{base}/a/with space + %.txt"]
    gfile.rename(f"{base}/a", f"{base}/c")
    assert not gfile.exists(f"{base}/a/with space + %.txt") and gfile.exists(f"{base}/c/with space + %.txt")
    gfile.remove(f"{base}/empty")
    gfile.rmtree(f"{base}/c")
    assert gfile.listdir(base) == ["one.txt"], gfile.listdir(base)
    try:
        gfile.GFile(f"{base}/absent.txt").read()
    except tf.errors.NotFoundError:
        pass
    else:
        raise AssertionError("an absent object was read")

def records(base):
    with tf.io.TFRecordWriter(f"{base}/data.tfrecord") as writer:
        for number in range(1000):
            writer.write(b"%d" % number * 100)
    found = [int(record.numpy()[:3]) for record in tf.data.TFRecordDataset([f"{base}/data.tfrecord"]).take(3)]
    assert sum(1 for _ in tf.data.TFRecordDataset([f"{base}/data.tfrecord"])) == 1000
    assert found == [0, 111, 222], found

def checkpoints(base):
    value = tf.Variable(3.5)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(value=value), f"{base}/ckpt", max_to_keep=2)
    for step in range(4):
        value.assign_add(1.0)
        manager.save()
    value.assign(0.0)
    manager.checkpoint.restore(tf.train.latest_checkpoint(f"{base}/ckpt")).assert_consumed()
    assert value.numpy() == 7.5
    assert len(gfile.glob(f"{base}/ckpt/*.index")) == 2

def events(base):
    with tf.summary.create_file_writer(f"{base}/logs").as_default():
        for step in range(5):
            tf.summary.scalar("loss", 1.0 / (step + 1), step=step)
    [path] = gfile.glob(f"{base}/logs/*tfevents*")
    read = [event.step for event in tf.compat.v1.train.summary_iterator(path) if event.summary.value]
    assert read == [0, 1, 2, 3, 4], read

def models(base):
    class Doubler(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def __call__(self, x):
            return {"y": 2.0 * x}
    tf.saved_model.save(Doubler(), f"{base}/model")
    again = tf.saved_model.load(f"{base}/model")
    assert again(tf.constant([4.0]))["y"].numpy().tolist() == [8.0]

def everything(base):
    for part in (files, records, checkpoints, events, models):
        part(f"{base}/{part.__name__}")
        print("done:", part.__name__, flush=True)
"""

ALONE = FILES + "\neverything('gs://BUCKET/alone')\n"

#: the same in each of two replicas that are also a cluster: gRPC goes by proxy variables too
GANG = (
    FILES
    + """
import json, os, time

config = json.loads(os.environ["TF_CONFIG"])
role = config["task"]["type"]
server = tf.distribute.Server(config["cluster"], job_name=role, task_index=0)
everything(f"gs://BUCKET/gang/{role}")
if role == "worker":
    with gfile.GFile("gs://BUCKET/gang/worker-done", "w") as file:
        file.write("done")
    server.join()
with tf.Graph().as_default(), tf.device("/job:worker/task:0"):
    answer = tf.constant(20.0) + tf.constant(22.0)
with tf.compat.v1.Session(server.target, graph=answer.graph) as session:
    print("the worker says", session.run(answer), flush=True)
while not gfile.exists("gs://BUCKET/gang/worker-done"):
    time.sleep(0.5)
"""
)

PARTS = ("files", "records", "checkpoints", "events", "models")


@pytest.fixture
def jobs(framework_server: RunningServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Submitter]:
    kind = "gang" if "gang" in request.node.name else "alone"
    project = f"gs-{kind}-{request.node.callspec.params['runtime'].replace('.', '-')}"
    yield Submitter(framework_server, project, tmp_path)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("runtime", ["2.21", "2.15"])
def test_tensorflow_works_on_gs(jobs: Submitter, runtime: str) -> None:
    jobs.submit("alone", ALONE.replace("BUCKET", jobs.bucket), runtimeVersion=runtime)
    done = jobs.wait("alone", timeout_s=500)
    assert done["state"] == "SUCCEEDED", done.get("errorMessage")
    lines = jobs.lines("alone")
    assert [line for line in lines if line.startswith("done:")] == [f"done: {part}" for part in PARTS]
    bucket = jobs.server.home / "buckets" / jobs.bucket
    assert (bucket / "alone" / "files" / "one.txt").read_text() == "first\nsecond\nthird\n"
    assert (bucket / "alone" / "models" / "model" / "saved_model.pb").is_file()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("runtime", ["2.21", "2.15"])
def test_tensorflow_works_on_gs_under_a_gang(jobs: Submitter, runtime: str) -> None:
    two = {"scaleTier": "CUSTOM", "masterType": "n1-standard-4", "workerType": "n1-standard-4", "workerCount": "1"}
    jobs.submit("gang", GANG.replace("BUCKET", jobs.bucket), runtimeVersion=runtime, **two)
    done = jobs.wait("gang", timeout_s=500)
    assert done["state"] == "SUCCEEDED", done.get("errorMessage")
    assert "the worker says 42.0" in jobs.lines("gang")
    bucket = jobs.server.home / "buckets" / jobs.bucket / "gang"
    for role in ("chief", "worker"):
        assert (bucket / role / "models" / "model" / "saved_model.pb").is_file()
