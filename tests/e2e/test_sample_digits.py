"""The sample `digits` from a search to a version: trials of scikit-learn, and the best one's model deployed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import PACKAGE, Submitter, wheel

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "digits"
PROJECT = "e2e-digits"


@pytest.mark.timeout(600)
def test_a_search_ends_in_a_version_that_reads_digits(framework_server: RunningServer, tmp_path: Path) -> None:
    jobs = Submitter(framework_server, PROJECT, tmp_path)
    (tmp_path / PACKAGE).write_bytes(wheel(SAMPLE / "trainer"))
    spec = yaml.safe_load((SAMPLE / "hptuning_config.yaml").read_text())["trainingInput"]["hyperparameters"]
    training = {
        "region": "us-central1",
        "runtimeVersion": "2.21",
        "pythonModule": "trainer.task",
        "packageUris": [jobs.upload(tmp_path / PACKAGE, PACKAGE)],
        "jobDir": f"gs://{jobs.bucket}/out",
        "hyperparameters": spec | {"maxTrials": 2},
        "args": ["--epochs", "8"],
    }
    framework_server.call("POST", f"/v1/projects/{PROJECT}/jobs", {"jobId": "digits", "trainingInput": training})
    trials = jobs.wait("digits", {"SUCCEEDED"}, timeout_s=300)["trainingOutput"]["trials"]
    assert [trial["finalMetric"]["trainingStep"] for trial in trials] == ["8", "8"]
    best = trials[0]
    env = framework_server.env() | {"TRAINSHED_PROJECT": PROJECT}
    promote = [sys.executable, "-m", "trainshed.cli", "tuning", "promote", "digits", "--model", "digits"]
    said = subprocess.run(promote, env=env, capture_output=True, text=True, check=True).stderr
    version = f"digits_trial_{best['trialId']}"
    assert f"Trial {best['trialId']} of job [digits] is version [{version}] of model [digits]." in said
    made = framework_server.call("GET", f"/v1/projects/{PROJECT}/models/digits/versions/{version}")
    assert made["deploymentUri"].startswith(f"gs://{jobs.bucket}/out/{best['trialId']}/export")
    answer = framework_server.call("POST", f"/v1/projects/{PROJECT}/models/digits:predict", {"instances": [[0.0] * 64]})
    assert len(answer["predictions"]) == 1
