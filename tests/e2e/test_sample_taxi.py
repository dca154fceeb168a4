"""The taxi sample, copied and trained by its own scripts: one replica, and a parameter server with four workers."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer

TRAINSHED = Path(sys.executable).with_name("trainshed")
ROWS = 12025 // 128  #: steps of one epoch


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample as a user has it: a folder of their own with the data in it."""
    folder = tmp_path_factory.mktemp("taxi") / "mine"
    subprocess.run([TRAINSHED, "samples", "copy", "taxi", folder], check=True, capture_output=True)
    return folder


def run_script(
    server: RunningServer,
    folder: Path,
    name: str,
    *,
    project: str,
    epochs: int = 1,
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple[str, Path]:
    """The whole log of a job that a script submits, on a newer runtime than it has by itself, and the job's folder.

    `meanwhile` is called while it runs.
    """
    env = server.env() | {
        "TRAINSHED_PROJECT": project,
        "RUNTIME_VERSION": "2.21",
        "NUM_EPOCHS": str(epochs),
        "PATH": f"{TRAINSHED.parent}:/usr/bin:/bin",
    }
    command = ["bash", "-c", f"source ./scripts/{name}"]
    with ThreadPoolExecutor() as threads:
        running = threads.submit(
            subprocess.run, command, cwd=folder, env=env, capture_output=True, text=True, timeout=800
        )
        meanwhile()
        done = running.result()
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


@pytest.mark.soak  # the gang below trains the same model by the same script; test_tensorflow.py trains one replica
@pytest.mark.timeout(900)
def test_one_replica_trains_the_keras_model(framework_server: RunningServer, copied: Path) -> None:
    log, folder = run_script(framework_server, copied, "train-cloud.sh", project="taxi-alone")
    check_result(log, folder)


def waiting_copy(sample: Path, folder: Path, go: Path) -> Path:
    """A copy of the sample whose chief, after each epoch that it told of, waits until there is a file `go`."""
    shutil.copytree(sample, folder)
    trainer = folder / "trainer" / "keras.py"
    source, sign = trainer.read_text(), "        self.training.flush()\n"
    assert source.count(sign) == 1
    trainer.write_text(
        source.replace(sign, f"{sign}        while not os.path.exists({str(go)!r}):\n            time.sleep(0.02)\n")
    )
    return folder


def kill_once_it_trains(server: RunningServer, project: str, replica: str, go: Path) -> None:
    """Wait until the project's only job has told of a step, kill this replica, and let the job go on after that."""

    def job_at_work() -> str:
        for job in server.call("GET", f"/v1/projects/{project}/jobs").get("jobs", []):
            path = f"/trainshed/v1/projects/{project}/jobs/{job['jobId']}"
            if (server.call("GET", f"{path}/progress")["progress"] or {}).get("step"):
                return path
        return ""

    path = eventually(job_at_work, within_s=600.0)
    server.call("POST", f"{path}:chaos", {"kill": replica})
    eventually(lambda: server.call("GET", path)["restarts"], within_s=600.0)
    go.touch()


@pytest.mark.timeout(900)
def test_a_parameter_server_and_four_workers_train_it_though_one_is_killed(
    framework_server: RunningServer, copied: Path, tmp_path: Path
) -> None:
    project, killed, go = "taxi-gang", "worker-replica-1", tmp_path / "go"
    log, folder = run_script(
        framework_server,
        waiting_copy(copied, tmp_path / "mine", go),
        "train-cloud-ps.sh",
        project=project,
        epochs=2,
        meanwhile=lambda: kill_once_it_trains(framework_server, project, killed, go),
    )
    check_result(log, folder)
    [job] = framework_server.call("GET", f"/v1/projects/{project}/jobs")["jobs"]
    details = framework_server.call("GET", f"/trainshed/v1/projects/{project}/jobs/{job['jobId']}")
    told = [each.split(",")[0] for each in details["restarts"]]
    assert told == [f"restarted {killed} (killed by signal 9)"]
    for replica in ("ps-replica-0", "worker-replica-0", "worker-replica-3", "master-replica-0"):
        assert re.search(rf"\t{replica}\t", log), replica
    closing = [line.split("\t")[-1].strip() for line in log.splitlines() if "\t" in line][-4:]
    assert closing[-2:] == ["Finished tearing down training program.", "Job completed successfully."]
    assert "Clean up finished." in log
