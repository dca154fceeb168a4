"""Prediction with three models in two precisions: the whole server against the bound in the same precision.

python bench/serving_models.py              # about 10 minutes
python bench/serving_models.py --models cnn # one of the models

It fails if requests are not batched, because the rows of several connections claim that they are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from load import ask_for_wrk
from report import Row, publish
from serving import BOUND, CACHE, PEERS, RUNTIME, Body, Measured, Target, finish, interpreter, measure, running
from trainshed.testing.processes.servers import MeasuredServer, RunningServer
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "bench-models"
PRECISIONS = ("f32", "bf16")
SHAPES = ((1, 1), (1, 16), (1, 64))  #: instances a request, concurrency
AIM = "0.95 of the bound"
#: the shape of one instance, and what the model is
MODELS: dict[str, tuple[tuple[int, ...], str]] = {
    "sample": ((784,), "the MNIST sample's network"),
    "cnn": ((28, 28, 1), "a Keras network with two convolutions"),
    "tabular": ((13,), "a Keras network over 13 numbers"),
}


def body_of(shape: tuple[int, ...]) -> Body:
    """Instances with as many digits as pixels of one byte have, divided by 255."""
    values = (np.arange(int(np.prod(shape))) * 31 % 256 / 255).round(6).reshape(shape).tolist()
    return lambda count: json.dumps({"instances": [values] * count}).encode()


def save(name: str, folder: Path) -> Path:
    """Write a model of peers/model.py. Returns its folder."""
    path = folder / name
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
    subprocess.run([interpreter(), PEERS / "model.py", path, name], check=True, env=quiet)
    return path


@contextmanager
def running_server(scratch: Path) -> Iterator[RunningServer]:
    home = scratch / "home"
    home.mkdir()
    (home / "runtimes").symlink_to(CACHE / "runtimes")
    server = MeasuredServer(home).start()
    try:
        yield server
    finally:
        server.stop()


def deploy(server: RunningServer, bucket: Submitter, model: Path, precision: str) -> dict[str, Any]:
    """Create a version that is named as its precision. Returns its details. Raises `RuntimeError` if it batches not."""
    parent = f"/v1/projects/{PROJECT}/models/{model.name}"
    body = {
        "name": precision,
        "deploymentUri": f"gs://{bucket.bucket}/{model.name}/",
        "runtimeVersion": RUNTIME,
        "servingOptions": {"precision": precision.upper()},
    }
    finish(server, server.call("POST", f"{parent}/versions", body))
    details: dict[str, Any] = server.call("GET", f"/trainshed{parent}/versions/{precision}")
    if not details["batching"]:
        raise RuntimeError(f"{model.name} in {precision}: {details['invariance']['message']}")
    return details


def target_of(server: RunningServer, model: str, details: dict[str, Any], body: Body) -> Target:
    precision = details["version"]["name"].rpartition("/")[2]
    url = f"{server.url}/v1/projects/{PROJECT}/models/{model}/versions/{precision}:predict"
    pids = [server.pid, *(host["pid"] for host in details["hosts"])]
    return Target(
        f"Trainshed in {precision}", url, body, server.token, 0.0, lambda: [psutil.Process(pid) for pid in pids]
    )


def rows_of(name: str, details: Sequence[dict[str, Any]], found: Sequence[Measured]) -> list[Row]:
    """The rows of one model: Trainshed and the bound take turns in `found`."""
    rows = []
    for instances, concurrency in SHAPES:
        for at, precision in enumerate(PRECISIONS):
            ours, bound = (each.loads[instances, concurrency] for each in found[2 * at : 2 * at + 2])
            value = f"{ours.rate:,.0f}/s, p50 / p99 {ours.p50_ms:.1f} / {ours.p99_ms:.1f} ms"
            against = f"{bound.rate:,.0f}/s, {bound.p50_ms:.1f} / {bound.p99_ms:.1f} ms"
            what = f"{MODELS[name][1]}, {precision}, concurrency {concurrency}"
            rows.append(Row(what=what, value=value, against=against, ratio=f"{ours.rate / bound.rate:.2f}", aim=AIM))
    for precision, each in zip(PRECISIONS, details, strict=True):
        difference = f"in batches {each['invariance']['difference']:.1e}"
        if loss := each["precision"]:
            agreement = (
                "" if loss["agreement"] is None else f", {loss['agreement']:.1%} of the largest values are the same"
            )
            difference += f"; from f32 {loss['difference']:.1e}{agreement}"
        rows.append(Row(what=f"{MODELS[name][1]}, {precision}, differences", value=difference))
    return rows


def measured_rows(
    name: str, server: RunningServer, bucket: Submitter, scratch: Path, *, rounds: int, seconds: float
) -> list[Row]:
    body = body_of(MODELS[name][0])
    model = save(name, scratch)
    for file in (each for each in model.rglob("*") if each.is_file()):
        bucket.upload(file, f"{name}/{file.relative_to(model)}")
    server.call("POST", f"/v1/projects/{PROJECT}/models", {"name": name})
    details, targets = [], []
    with ExitStack() as stack:
        for precision in PRECISIONS:
            details.append(deploy(server, bucket, model, precision))
            targets.append(target_of(server, name, details[-1], body))
            bound = replace(BOUND, name=f"the bound in {precision}", body=body, arguments=(precision,))
            targets.append(stack.enter_context(running(bound, model, scratch)))
        found = measure(targets, rounds=rounds, seconds=seconds, shapes=SHAPES)
    return rows_of(name, details, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each load is put on each")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long a load lasts")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    args = parser.parse_args()
    ask_for_wrk()
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder)) as server:
        scratch = Path(folder)
        bucket = Submitter(server, PROJECT, scratch / "trainers")
        rows: list[Row] = []
        for name in args.models:
            rows += measured_rows(name, server, bucket, scratch, rounds=args.rounds, seconds=args.seconds)
    publish("serving-models", rows, keep=len(args.models) < len(MODELS))


if __name__ == "__main__":
    main()
