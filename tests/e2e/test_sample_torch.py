"""The PyTorch sample from training to serving: a gang that loses a worker, its exported model, every protocol."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.cache import torch_python
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.digits import images, labels, write_part
from trainshed.testing.workloads.submitter import PACKAGE, Submitter, wheel

TRAINER = Path(__file__).resolve().parents[2] / "samples" / "mnist_torch" / "trainer"
JOB, PROJECT = "digits", "e2e-torch"
EVERY = 10  #: steps between two checkpoints
STEPS = 4 * (2000 // 64)
WAIT_S = 300.0


@pytest.fixture(scope="module")
def jobs(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submitter]:
    """A project with a part of MNIST, and a gang that trains on it, just submitted."""
    torch_python()
    scratch = tmp_path_factory.mktemp("torch")
    jobs = Submitter(framework_server, PROJECT, scratch)
    write_part(scratch / "mnist", train=2000, test=500)
    for file in (scratch / "mnist").iterdir():
        jobs.upload(file, f"mnist/{file.name}")
    (scratch / PACKAGE).write_bytes(wheel(TRAINER))
    training = {
        "scaleTier": "CUSTOM",
        "masterType": "standard",
        "workerType": "standard",
        "workerCount": 1,
        "region": "us-central1",
        "runtimeVersion": "torch",
        "pythonModule": "trainer.task",
        "packageUris": [jobs.upload(scratch / PACKAGE, PACKAGE)],
        "jobDir": f"gs://{jobs.bucket}/out",
        "args": [f"--data_dir=gs://{jobs.bucket}/mnist", "--epochs=4", f"--checkpoint_steps={EVERY}"],
    }
    body = {"jobId": JOB, "trainingInput": training}
    framework_server.call("POST", f"/v1/projects/{PROJECT}/jobs", body)
    yield jobs


def _logged(jobs: Submitter, pattern: str) -> list[str]:
    return [found[1] for line in jobs.lines(JOB) if (found := re.search(pattern, line))]


@pytest.mark.timeout(900)
def test_a_gang_over_gloo_goes_on_from_its_checkpoint_after_a_loss(jobs: Submitter) -> None:
    checkpoint = jobs.server.home / "buckets" / jobs.bucket / "out" / "checkpoint.pt"
    eventually(checkpoint.exists, within_s=WAIT_S)
    jobs.server.call("POST", f"/trainshed/v1/projects/{PROJECT}/jobs/{JOB}:chaos", {"kill": "worker-replica-0"})
    jobs.wait(JOB, ["SUCCEEDED"], timeout_s=WAIT_S)
    resumed = _logged(jobs, r"Going on from the checkpoint of step (\d+)")
    assert len(resumed) == 2
    assert len(set(resumed)) == 1
    assert int(resumed[0]) >= EVERY
    assert _logged(jobs, rf"Train \[(\d)/2\], step {STEPS}: ") in (["0", "1"], ["1", "0"])
    [accuracy] = _logged(jobs, r"Test accuracy: ([\d.]+)")
    assert float(accuracy) > 0.6


@pytest.mark.timeout(900)
def test_the_exported_model_answers_by_every_protocol(jobs: Submitter, tmp_path: Path) -> None:
    deployer = Deployer(jobs.server, f"{PROJECT}-served", tmp_path)
    exported = jobs.server.home / "buckets" / jobs.bucket / "out" / "export" / "onnx"
    details = deployer.deploy(
        "onnx", deployer.upload_folder(exported, "onnx"), runtimeVersion="torch", framework="ONNX"
    )
    assert details["parity"]["within"]
    rows, truth = images("t10k", 20).tolist(), labels("t10k", 20).tolist()

    predicted = deployer.predict("onnx", *rows)
    classes = [row["classes"] for row in predicted]
    assert sum(map(int.__eq__, classes, truth)) >= 11
    assert all(abs(sum(row["probabilities"]) - 1) < 1e-4 for row in predicted)

    def call(path: str, body: Any) -> Any:
        return deployer.server.call("POST", path, body)

    tensor = {"name": "inputs", "datatype": "FP32", "shape": [20, 784], "data": rows}
    infer = f"/v1/projects/{deployer.project}/v2/models/m/versions/onnx/infer"
    outputs = {output["name"]: output["data"] for output in call(infer, {"inputs": [tensor]})["outputs"]}
    assert outputs["classes"] == classes
    served = f"/tfserving/projects/{deployer.project}/v1/models/m/versions/onnx:predict"
    assert call(served, {"inputs": rows})["outputs"]["classes"] == classes
    assert [row["classes"] for row in call(served, {"instances": rows})["predictions"]] == classes
