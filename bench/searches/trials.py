"""Part `trials`: tuning jobs whose trials do nothing, beside the same trials of Ray Tune."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from control import PROJECT, a_server, training
from report import Row
from trainshed.runtimes.uv import find_uv
from trainshed.testing.cache import CACHE
from trainshed.testing.workloads.submitter import Submitter

PEER = Path(__file__).resolve().parents[1] / "peers" / "ray_tune.py"
EMPTY = """
import sys
import hypertune
x = float(sys.argv[sys.argv.index("--x") + 1])
hypertune.HyperTune().report_hyperparameter_tuning_metric("score", -((x - 0.3) ** 2), 1)
"""


def empty_trials(*, count: int, fast_count: int, ray: bool) -> list[Row]:
    with a_server(slots=8) as (_, jobs):
        jobs.submit("first", EMPTY, args=["--x", "0"])  # builds the runtime and installs the package
        jobs.wait("first")
        seconds, gaps = search(jobs, "two", count, 2)
        fast_s, _ = search(jobs, "four", fast_count, 4)
    peer = f"Ray Tune: {ray_tune_s(count):.1f} s" if ray else ""
    return [
        Row(what=f"{count} empty trials, two at a time", value=f"{seconds:.1f} s", against=peer, aim="3 s"),
        Row(
            what="from the end of a trial to the start of the next one, median / worst",
            value=f"{statistics.median(gaps):.2f} / {max(gaps):.2f} s",
            aim="0.2 s",
        ),
        Row(what=f"{fast_count} empty trials, four at a time", value=f"{fast_count / fast_s:.1f}/s", aim="10/s"),
    ]


def search(jobs: Submitter, job: str, count: int, parallel: int) -> tuple[float, list[float]]:
    """Run a search. Returns its seconds from request to end, and those between the trials of one slot."""
    params = [{"parameterName": "x", "type": "DOUBLE", "minValue": 0, "maxValue": 1}]
    tuning = {
        "hyperparameterMetricTag": "score",
        "params": params,
        "maxTrials": count,
        "maxParallelTrials": parallel,
    }
    given = {**training(jobs, "first"), "args": [], "hyperparameters": tuning}
    began = time.perf_counter()
    jobs.server.call("POST", f"/v1/projects/{PROJECT}/jobs", {"jobId": job, "trainingInput": given})
    body = jobs.wait(job, {"SUCCEEDED"})
    seconds = time.perf_counter() - began
    return seconds, waits(body["trainingOutput"]["trials"], parallel)


def waits(trials: list[dict[str, Any]], parallel: int) -> list[float]:
    """Seconds from the end of trials to the start of those that took their slots, in order."""
    starts = sorted(datetime.fromisoformat(trial["startTime"]) for trial in trials)[parallel:]
    ends = sorted(datetime.fromisoformat(trial["endTime"]) for trial in trials)
    return [(start - end).total_seconds() for start, end in zip(starts, ends, strict=False)]


def ray_tune_s(count: int) -> float:
    """Seconds that Ray Tune needs for the same trials, without import and start."""
    folder = CACHE / "bench" / "ray-tune"
    python, stamp = folder / "bin" / "python", folder / "complete"
    if not stamp.exists():
        uv = str(find_uv())
        subprocess.run([uv, "venv", "--quiet", "--clear", str(folder)], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), "ray[tune]"], check=True)
        stamp.touch()
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AIR_NEW_OUTPUT": "0"}
    output = subprocess.run(
        [str(python), str(PEER), str(count)], env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return float(json.loads(output.splitlines()[-1])["seconds"])
