"""Searches of the kinds that Google's samples have, submitted and shown by the real gcloud.

What it prints is compared character by character with what its rules make of the answer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.clusters.containers import Podman
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import PACKAGE, Submitter, wheel

PROJECT = "gcloud-tuning"

#: Reports a value that follows from the first parameter, twice. Takes any flag.
TRAINER = """
import json, os, sys, time
words, tag = sys.argv[1:], os.environ["CLOUD_ML_HP_METRIC_TAG"]
value = float(words[3] if words[0] == "--epochs" else words[1])
path = os.environ["CLOUD_ML_HP_METRIC_FILE"]
os.makedirs(os.path.dirname(path), exist_ok=True)
with open(path, "w") as out:
    for step in (500, 1000):
        report = {"timestamp": time.time(), "global_step": str(step), "trial": os.environ["CLOUD_ML_TRIAL_ID"]}
        out.write(json.dumps({**report, tag: str(value / 3 - 1000 + step)}) + "\\n")
"""

#: A wide network on census data: whole numbers, and a factor that is fine near the top.
CENSUS = """
trainingInput:
  hyperparameters:
    goal: MAXIMIZE
    hyperparameterMetricTag: accuracy
    maxTrials: 4
    maxParallelTrials: 2
    params:
      - parameterName: first-layer-size
        type: INTEGER
        minValue: 50
        maxValue: 500
        scaleType: UNIT_LINEAR_SCALE
      - parameterName: num-layers
        type: INTEGER
        minValue: 1
        maxValue: 15
        scaleType: UNIT_LINEAR_SCALE
      - parameterName: scale-factor
        type: DOUBLE
        minValue: 0.1
        maxValue: 1.0
        scaleType: UNIT_REVERSE_LOG_SCALE
"""

#: Iris: one rate that was given no scale, trials that are stopped, an upper bound for failures.
IRIS = """
trainingInput:
  hyperparameters:
    goal: MINIMIZE
    hyperparameterMetricTag: Training/Loss
    maxTrials: 11
    maxParallelTrials: 3
    maxFailedTrials: 2
    enableTrialEarlyStopping: TRUE
    algorithm: RANDOM_SEARCH
    params:
      - parameterName: learning_rate
        type: DOUBLE
        minValue: 0.0001
        maxValue: 0.5
"""

#: scikit-learn: lists, values with blanks, a grid.
SCIKIT_LEARN = """
trainingInput:
  scheduling:
    maxRunningTime: 3600s
  hyperparameters:
    goal: MAXIMIZE
    hyperparameterMetricTag: my_metric_tag
    maxTrials: 4
    maxParallelTrials: 4
    algorithm: GRID_SEARCH
    params:
      - parameterName: n_estimators
        type: DISCRETE
        discreteValues:
          - 10
          - 50
      - parameterName: booster
        type: CATEGORICAL
        categoricalValues: ["gb tree", dart]
"""

#: A container of one's own.
CONTAINER = """
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-highcpu-1
  masterConfig:
    imageUri: {image}
    containerCommand: [python3, {program}]
    containerArgs: [--epochs, "3"]
  hyperparameters:
    goal: MAXIMIZE
    hyperparameterMetricTag: my_accuracy
    maxTrials: 2
    params:
      - parameterName: lr
        type: DOUBLE
        minValue: 1.0e-04
        maxValue: 1.0e-01
        scaleType: UNIT_LOG_SCALE
"""


class Gcloud:
    """Runs `gcloud ai-platform` for one project, with a configuration of its own in `folder`."""

    def __init__(self, server: RunningServer, project: str, folder: Path) -> None:
        self._folder = folder
        self._env = {key: value for key, value in os.environ.items() if not key.startswith("CLOUDSDK_")} | {
            "CLOUDSDK_CONFIG": str(folder / "config"),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_ML": f"{server.url}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING": f"{server.url}/",
            "CLOUDSDK_AI_PLATFORM_REGION": "global",
            "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(server.home / "token"),
            "CLOUDSDK_CORE_PROJECT": project,
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
            "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
            "CLOUDSDK_SURVEY_DISABLE_PROMPTS": "true",
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    @staticmethod
    def is_installed() -> bool:
        return shutil.which("gcloud") is not None

    def __call__(self, *words: str, status: int = 0) -> tuple[str, str]:
        """Returns the output and the errors of a command that must exit with `status`."""
        done = subprocess.run(
            ["gcloud", "ai-platform", *words],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=180,
            cwd=self._folder,
        )
        assert done.returncode == status, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout, done.stderr


@pytest.fixture(scope="module")
def gcloud(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Gcloud:
    if not Gcloud.is_installed():
        pytest.skip("gcloud is not installed here, and Debian has no package of it")
    return Gcloud(framework_server, PROJECT, tmp_path_factory.mktemp("gcloud"))


@pytest.fixture(scope="module")
def jobs(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Submitter:
    return Submitter(framework_server, PROJECT, tmp_path_factory.mktemp("trainers"))


@pytest.mark.parametrize(
    ("job", "config"),
    [("census", CENSUS), ("iris", IRIS), ("scikit_learn", SCIKIT_LEARN)],
    ids=["census", "iris", "scikit_learn"],
)
def test_a_search_of_a_package(gcloud: Gcloud, jobs: Submitter, tmp_path: Path, job: str, config: str) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "__init__.py").touch()
    (tmp_path / "trainer" / "task.py").write_text(TRAINER)
    (tmp_path / PACKAGE).write_bytes(wheel(tmp_path / "trainer"))
    uri = jobs.upload(tmp_path / PACKAGE, f"{job}/{PACKAGE}")
    (tmp_path / "config.yaml").write_text(config)
    trainer = ("--packages", uri, "--module-name", "trainer.task", "--job-dir", f"gs://{jobs.bucket}/{job}")
    where = ("--region", "us-central1", "--runtime-version", "python", "--config", f"{tmp_path}/config.yaml")
    gcloud("jobs", "submit", "training", job, *trainer, *where)
    check(gcloud, jobs.wait(job, {"SUCCEEDED"}))


def test_a_search_of_containers(gcloud: Gcloud, jobs: Submitter, podman: Podman, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TRAINER)
    program = jobs.upload(tmp_path / "task.py", "task.py").replace("gs://", "/gcs/")
    (tmp_path / "config.yaml").write_text(CONTAINER.format(image=podman.base(), program=program))
    gcloud("jobs", "submit", "training", "container", "--region", "us-central1", "--config", f"{tmp_path}/config.yaml")
    check(gcloud, jobs.wait("container", {"SUCCEEDED"}))


def check(gcloud: Gcloud, job: Mapping[str, Any]) -> None:
    """Compare what gcloud shows of a job with what it has to show."""
    hyperparameters, trials = job["trainingInput"]["hyperparameters"], job["trainingOutput"]["trials"]
    assert len(trials) == hyperparameters["maxTrials"]
    sign = 1 if hyperparameters["goal"] == "MAXIMIZE" else -1
    values = [sign * trial["finalMetric"]["objectiveValue"] for trial in trials]
    assert values == sorted(values, reverse=True), "the best trial comes first"
    described, _ = gcloud("jobs", "describe", job["jobId"])
    assert described == "\n".join(yaml_lines(job)) + "\n"
    summary, _ = gcloud("jobs", "describe", job["jobId"], "--summarize")
    assert summary == "\n".join(summary_lines(job)) + "\n"


def yaml_lines(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield the YAML of an object: names sorted, lists as they are, doubles with six digits."""
    for name, each in sorted(value.items()):
        if isinstance(each, Mapping):
            yield f"{name}:"
            yield from (f"  {line}" for line in yaml_lines(each))
        elif isinstance(each, list):
            yield f"{name}:"
            for item in each:
                lines = yaml_lines(item) if isinstance(item, Mapping) else [_scalar(item)]
                yield from (f"{'  ' if number else '- '}{line}" for number, line in enumerate(lines))
        else:
            yield f"{name}: {_scalar(each)}"


#: what YAML would read as a number or as a time
_NOT_TEXT = re.compile(r"[-+.\d]+(?:e[-+]?\d+)?|\d{4}-\d\d-\d\dT.*Z")


def _scalar(value: bool | float | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(float(f"{value:.6g}"))
    quoted = isinstance(value, str) and _NOT_TEXT.fullmatch(value)
    return f"'{value}'" if quoted else str(value)


def summary_lines(job: Mapping[str, Any]) -> Iterator[str]:
    times = [job[name] for name in ("createTime", "startTime", "endTime")]
    heads = ["JOB_ID", "CREATE_TIME", "START_TIME", "END_TIME", "STATE"]
    yield from box("Job Overview", heads, [[job["jobId"], *times, job["state"]]])
    output = job["trainingOutput"]
    counts = [output["completedTrialCount"], str(output["consumedMLUnits"])]
    yield from _indented(box("Training Output Summary", ["TRIALS", "ML_UNITS"], [counts]))
    rows = []
    for trial in sorted(output["trials"], key=lambda each: str(each["trialId"])):
        final = trial["finalMetric"]
        first, *rest = (f"{name}={value}" for name, value in sorted(trial["hyperparameters"].items()))
        rows.append([trial["trialId"], _scalar(final["objectiveValue"]), final["trainingStep"], first])
        rows += [["", "", "", each] for each in rest]
    heads = ["TRIAL", "OBJECTIVE_VALUE", "STEP", "HYPERPARAMETERS"]
    yield from _indented(box("Training Output Trials", heads, rows))


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def box(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table with a title. Columns are widened evenly for a title that is longer than they are."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    if sum(widths) < len(title):
        pad = (len(title) + len(widths) - 1) // len(widths)
        widths = [width + pad for width in widths]
    inner = sum(widths) + 3 * len(widths) - 1
    yield f"┌{'─' * inner}┐"
    yield f"│{title.center(inner)}│"
    yield f"├{'┬'.join('─' * (width + 2) for width in widths)}┤"
    yield f"│{'│'.join(head.center(width + 2) for head, width in zip(heads, widths, strict=True))}│"
    yield f"├{'┼'.join('─' * (width + 2) for width in widths)}┤"
    for row in rows:
        yield f"│{'│'.join(f' {cell:{width}} ' for cell, width in zip(row, widths, strict=True))}│"
    yield f"└{'┴'.join('─' * (width + 2) for width in widths)}┘"
