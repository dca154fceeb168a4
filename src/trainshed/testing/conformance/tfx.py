"""TFX's runner of Cloud AI Platform, unmodified, in `trainshed shell`: what its Pusher calls, a case for each step.

Its trainer needs the image of TFX, which is on no index, so it is not run.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from trainshed.testing.conformance.environments import python_environment
from trainshed.testing.conformance.suites import Case, Installed, Suite
from trainshed.testing.conformance.targets import Target
from trainshed.testing.conformance.trainer import run_trainer

PACKAGES = ("tfx==1.8.1", "PySocks")
PROGRAM = Path(__file__).with_name("programs") / "tfx_runner.py"
BUCKET = "gs://conformance-tfx"
_TIMEOUT_S = 1800


def install(folder: Path) -> Installed:
    return python_environment(folder, python="3.8", packages=PACKAGES, shown=("tfx", "google-api-python-client"))


def run(installed: Installed, target: Target, folder: Path) -> Sequence[Case]:
    job_dir = run_trainer(target, folder / "package", BUCKET, "tfx_training")
    command = target.in_shell(installed.program, PROGRAM, target.project, f"{job_dir}/export")
    done = subprocess.run(
        command, env=dict(target.environment), cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if not last.startswith("{"):
        raise RuntimeError(f"The program did not come to its end: {done.stderr[-3000:]}")
    results: dict[str, str] = json.loads(last)
    return [Case(name, "failed" if error else "passed", error[:300]) for name, error in results.items()]


SUITE = Suite(
    name="tfx",
    title="TFX's runner of Cloud AI Platform: models and versions",
    install=install,
    run=run,
)
