"""The taxi sample, copied and trained by its own scripts: one replica, and a parameter server with four workers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainshed.testing.servers import RunningServer

TRAINSHED = Path(sys.executable).with_name("trainshed")
ROWS = 12025 // 128  #: steps of one epoch


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample as a user has it: a folder of their own with the data in it."""
    folder = tmp_path_factory.mktemp("taxi") / "mine"
    subprocess.run([TRAINSHED, "samples", "copy", "taxi", folder], check=True, capture_output=True)
    return folder


def run_script(server: RunningServer, folder: Path, name: str, *, project: str, runtime: str) -> tuple[str, Path]:
    """The whole log of a job that a script submits, and the job's folder."""
    env = server.env() | {
        "TRAINSHED_PROJECT": project,
        "RUNTIME_VERSION": runtime,
        "NUM_EPOCHS": "1",
        "PATH": f"{TRAINSHED.parent}:/usr/bin:/bin",
    }
    done = subprocess.run(
        ["bash", "-c", f"source ./scripts/{name}"], cwd=folder, env=env, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert re.search(r"^state: SUCCEEDED$", done.stdout, re.MULTILINE), done.stderr[-4000:]
    return done.stderr, server.home / "buckets" / f"{project}-ml" / "taxi" / "model" / "tensorflow_taxi"


def check_result(log: str, folder: Path) -> None:
    """It measured itself after the last step, better than by always saying no, and exported a model."""
    found = re.findall(r"Saving dict for global step (\d+): accuracy = ([\d.]+),.*? auc = ([\d.]+)", log)
    assert found, log[-4000:]
    step, accuracy, auc = found[-1]
    assert int(step) >= ROWS
    assert float(accuracy) > 0.9
    assert float(auc) > 0.9
    [model] = folder.glob("export/estimate/*/saved_model.pb")
    assert model.parent.name.isdigit()
    assert "Job completed successfully." in log


@pytest.mark.timeout(900)
def test_one_replica_trains_the_keras_model(framework_server: RunningServer, copied: Path) -> None:
    log, folder = run_script(framework_server, copied, "train-cloud.sh", project="taxi-alone", runtime="2.21")
    check_result(log, folder)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("runtime", ["2.15", "2.21"])
def test_a_parameter_server_and_four_workers_train_it(
    framework_server: RunningServer, copied: Path, runtime: str
) -> None:
    project = f"taxi-gang-{runtime.replace('.', '-')}"
    log, folder = run_script(framework_server, copied, "train-cloud-ps.sh", project=project, runtime=runtime)
    check_result(log, folder)
    for replica in ("ps-replica-0", "worker-replica-0", "worker-replica-3", "master-replica-0"):
        assert re.search(rf"\t{replica}\t", log), replica
    closing = [line.split("\t")[-1].strip() for line in log.splitlines() if "\t" in line][-4:]
    assert closing[-2:] == ["Finished tearing down training program.", "Job completed successfully."]
    assert "Clean up finished." in log
