"""Airflow's operators of ML Engine, unmodified, in `trainshed shell`: a DAG that Airflow runs, a case for each task."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainshed.testing.conformance.environments import python_environment
from trainshed.testing.conformance.suites import Case, Installed, Suite
from trainshed.testing.conformance.targets import Target
from trainshed.testing.conformance.trainer import upload_trainer

PROVIDER = "apache-airflow-providers-google"
#: httplib2, which Google's client asks with, knows no proxies without PySocks
PACKAGES = ("apache-airflow==2.10.5", f"{PROVIDER}==10.21.1", "PySocks")
PROGRAM = Path(__file__).with_name("programs") / "airflow_dag.py"
BUCKET = "gs://conformance-airflow"
_TIMEOUT_S = 1800


def install(folder: Path) -> Installed:
    return python_environment(folder, python="3.11", packages=PACKAGES, shown=("apache-airflow", PROVIDER))


def run(installed: Installed, target: Target, folder: Path) -> Sequence[Case]:
    package = upload_trainer(target, folder / "package", BUCKET)
    environment = {**target.environment, **settings(folder, target.project)}
    airflow = installed.program.with_name("airflow")
    subprocess.run([airflow, "db", "migrate"], env=environment, check=True, capture_output=True, timeout=_TIMEOUT_S)
    command = target.in_shell(installed.program, PROGRAM, target.project, package, BUCKET)
    output = folder / "output.txt"
    with open(output, "wb") as stream:
        subprocess.run(command, env=environment, stdout=stream, stderr=stream, timeout=_TIMEOUT_S, check=False)
    states = read_states(output.read_text(errors="replace"))
    if not states:
        raise RuntimeError(f"The DAG did not run: {output.read_text(errors='replace')[-3000:]}")
    return [Case(task, outcome(state), f"the task ended as {state}") for task, state in states.items()]


def settings(folder: Path, project: str) -> dict[str, str]:
    """Airflow's own settings: a folder, and a connection that has no more than a project."""
    connection = {"conn_type": "google_cloud_platform", "extra": {"project": project}}
    return {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": json.dumps(connection),
    }


def read_states(output: str) -> Mapping[str, str]:
    """Return the states that the program printed on its last line. Empty if it did not come so far."""
    last = (output.strip().splitlines() or [""])[-1]
    states: dict[str, str] = json.loads(last) if last.startswith("{") else {}
    return states


def outcome(state: str) -> str:
    return {"success": "passed", "skipped": "skipped"}.get(state, "failed")


SUITE = Suite(
    name="airflow",
    title="Airflow's ML Engine operators, sync and deferrable",
    install=install,
    run=run,
)
