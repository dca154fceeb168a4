"""The JAX sample from training to serving: a gang started warm, a worker lost, and a prediction class without JAX."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainshed.testing.cache import runtime_python
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.digits import images, labels, write_part
from trainshed.testing.workloads.submitter import PACKAGE, Submitter, wheel, wheel_name

TRAINER = Path(__file__).resolve().parents[2] / "samples" / "mnist_jax" / "trainer"
JOB, PROJECT = "digits", "e2e-jax"
EVERY, STEPS = 10, 20 * (2000 // 128)
WAIT_S = 300.0


@pytest.mark.long("a gang imports JAX, trains, is killed and trains again, and its model is deployed")
@pytest.mark.timeout(900)
def test_a_gang_of_jax_goes_on_after_a_loss_and_its_model_is_served(
    framework_server: RunningServer, tmp_path: Path
) -> None:
    runtime_python("jax")
    jobs = Submitter(framework_server, PROJECT, tmp_path)
    write_part(tmp_path / "mnist", train=2000, test=500)
    for file in (tmp_path / "mnist").iterdir():
        jobs.upload(file, f"mnist/{file.name}")
    (tmp_path / PACKAGE).write_bytes(wheel(TRAINER))
    training = {
        "scaleTier": "CUSTOM",
        "masterType": "standard",
        "workerType": "standard",
        "workerCount": 1,
        "region": "us-central1",
        "runtimeVersion": "jax",
        "pythonModule": "trainer.task",
        "packageUris": [jobs.upload(tmp_path / PACKAGE, PACKAGE)],
        "jobDir": f"gs://{jobs.bucket}/out",
        "args": [f"--data_dir=gs://{jobs.bucket}/mnist", "--epochs=20", f"--checkpoint_steps={EVERY}"],
    }
    framework_server.call("POST", f"/v1/projects/{PROJECT}/jobs", {"jobId": JOB, "trainingInput": training})

    folder = framework_server.home / "buckets" / jobs.bucket / "out"
    eventually((folder / "checkpoint.npz").exists, within_s=WAIT_S)
    framework_server.call("POST", f"/trainshed/v1/projects/{PROJECT}/jobs/{JOB}:chaos", {"kill": "worker-replica-0"})
    jobs.wait(JOB, ["SUCCEEDED"], timeout_s=WAIT_S)
    lines = jobs.lines(JOB)
    assert sum("of 2, with 2 devices in all" in line for line in lines) == 4  # both replicas, twice
    resumed = {found[1] for line in lines if (found := re.search(r"Going on from the checkpoint of step (\d+)", line))}
    assert len(resumed) == 1
    assert int(resumed.pop()) >= EVERY
    assert sum(f"step {STEPS}: " in line for line in lines) == 2
    [accuracy] = [float(found[1]) for line in lines if (found := re.search(r"Test accuracy: ([\d.]+)", line))]
    assert accuracy > 0.6

    deployer = Deployer(framework_server, f"{PROJECT}-served", tmp_path)
    package = deployer.upload(wheel_name("trainer"), wheel(TRAINER))
    deployer.deploy(
        "v1",
        deployer.upload_folder(folder / "export", "export"),
        runtimeVersion="jax",
        predictionClass="trainer.predictor.Predictor",
        packageUris=[package],
    )
    predicted = deployer.predict("v1", *images("t10k", 20).tolist())
    assert sum(row["classes"] == truth for row, truth in zip(predicted, labels("t10k", 20).tolist(), strict=True)) >= 11
