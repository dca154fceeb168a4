"""`gs://` in the code of trainers: TensorFlow's own file system, unmodified, on this server's buckets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.gs_files import FILES, PARTS
from trainshed.testing.workloads.submitter import Submitter

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


@pytest.fixture
def jobs(framework_server: RunningServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Submitter]:
    kind = "gang" if "gang" in request.node.name else "alone"
    project = f"gs-{kind}-{request.node.callspec.params['runtime'].replace('.', '-')}"
    yield Submitter(framework_server, project, tmp_path)


@pytest.mark.timeout(600)
# In 2.15, test_tensorflow.py has an estimator that leaves its checkpoints at gs:// in every run.
@pytest.mark.parametrize("runtime", ["2.21", pytest.param("2.15", marks=pytest.mark.soak)])
def test_tensorflow_works_on_gs(jobs: Submitter, runtime: str) -> None:
    jobs.submit("alone", ALONE.replace("BUCKET", jobs.bucket), runtimeVersion=runtime)
    done = jobs.wait("alone", timeout_s=500)
    assert done["state"] == "SUCCEEDED", done.get("errorMessage")
    lines = jobs.lines("alone")
    assert [line for line in lines if line.startswith("done:")] == [f"done: {part}" for part in PARTS]
    bucket = jobs.server.home / "buckets" / jobs.bucket
    assert (bucket / "alone" / "files" / "one.txt").read_text() == "first\nsecond\nthird\n"
    assert (bucket / "alone" / "models" / "model" / "saved_model.pb").is_file()


@pytest.mark.soak  # test_sample_taxi.py has a gang of TensorFlow that works on gs:// in every run
@pytest.mark.timeout(600)
@pytest.mark.parametrize("runtime", ["2.21", "2.15"])
def test_tensorflow_works_on_gs_under_a_gang(jobs: Submitter, runtime: str) -> None:
    two = {"scaleTier": "CUSTOM", "masterType": "n1-standard-4", "workerType": "n1-standard-4", "workerCount": "1"}
    jobs.submit("gang", GANG.replace("BUCKET", jobs.bucket), runtimeVersion=runtime, **two)
    done = jobs.wait("gang", timeout_s=500)
    assert done["state"] == "SUCCEEDED", done.get("errorMessage")
    lines = jobs.lines("gang")
    assert "the worker says 42.0" in lines
    assert [lines.count(f"done: {part}") for part in PARTS] == [2] * len(PARTS)
    bucket = jobs.server.home / "buckets" / jobs.bucket / "gang"
    for role in ("chief", "worker"):
        assert (bucket / role / "files" / "one.txt").read_text() == "first\nsecond\nthird\n"
        assert (bucket / role / "models" / "model" / "saved_model.pb").is_file()
