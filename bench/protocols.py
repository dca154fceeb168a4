"""One version asked by each protocol, beside Triton with the same requests.

python bench/protocols.py                # about 6 minutes; installs Triton on the first run
python bench/protocols.py --peers none   # Trainshed alone

The protocols take turns. On a machine that is busy with other things, rates differ much from turn to turn. The
processor time of a request differs little, so there is a ratio of it, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from load import ask_for_wrk, drive
from report import Row, publish
from serving import (
    OTHERS,
    PEERS,
    PROJECT,
    Target,
    as_instances,
    as_tensor,
    interpreter,
    rows_of,
    running,
    trainshed,
)

SHAPES = ((1, 1), (1, 16), (32, 16))  #: instances a request, concurrency
FIRST = "ml v1"
TRITON = next(system for system in OTHERS if system.name == "Triton")
AIMS = {"V2, JSON": "0.90", "V2, binary": "more than 1", "TensorFlow Serving, rows": "0.90", "MLflow": "0.90"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to ask a model: where, and with which body for a number of instances."""

    name: str
    url: str
    bodies: Mapping[int, bytes]
    json_lengths: Mapping[int, int]  #: of the JSON before binary tensors; 0 without any
    target: Target  #: what answers

    def drive(self, instances: int, concurrency: int, seconds: float) -> Turn:
        before = _cpu_s(self.target)
        load = drive(
            self.url,
            self.bodies[instances],
            concurrency=concurrency,
            seconds=seconds,
            token=self.target.token,
            json_length=self.json_lengths[instances],
        )
        return Turn(load.rate, load.p50_ms, load.p99_ms, (_cpu_s(self.target) - before) / (load.rate * seconds) * 1000)


@dataclass(frozen=True, slots=True)
class Turn:
    """One load on one way, or the medians of several."""

    rate: float  #: requests per second
    p50_ms: float
    p99_ms: float
    cpu_ms: float  #: of all processes that answer, for one request


def _cpu_s(target: Target) -> float:
    """The processor time of all that answers. A host in a sandbox is a child of the process that the server knows."""
    processes = {each for root in target.processes() for each in (root, *root.children(recursive=True))}
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


def binary(count: int) -> tuple[bytes, int]:
    """A body with a binary tensor, and the length of its JSON. The answer is binary, as tritonclient asks for it."""
    values = [value for row in rows_of(count) for value in row]
    tensor = {"name": "inputs", "shape": [count, 784], "datatype": "FP32", "parameters": {}}
    tensor["parameters"] = {"binary_data_size": 4 * len(values)}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return head + struct.pack(f"<{len(values)}f", *values), len(head)


def as_split(count: int) -> bytes:
    """A data frame without names of columns, for MLflow's protocol."""
    return json.dumps({"dataframe_split": {"data": rows_of(count)}}).encode()


def way(name: str, url: str, target: Target) -> Way:
    """The way of this name, at a URL."""
    counts = {instances for instances, _ in SHAPES}
    if name.endswith("binary"):
        made = {count: binary(count) for count in counts}
        bodies, lengths = ({count: each[at] for count, each in made.items()} for at in (0, 1))
        return Way(name=name, url=url, bodies=bodies, json_lengths=lengths, target=target)  # type: ignore[arg-type]
    body = as_tensor if name.endswith("JSON") else as_split if name == "MLflow" else as_instances
    return Way(
        name=name,
        url=url,
        bodies={count: body(count) for count in counts},
        json_lengths=dict.fromkeys(counts, 0),
        target=target,
    )


def ways_of(target: Target) -> list[Way]:
    """All ways to the version v1 of the model `mnist`."""
    paths = {
        FIRST: f"/v1/projects/{PROJECT}/models/mnist/versions/v1:predict",
        "V2, JSON": f"/v1/projects/{PROJECT}/v2/models/mnist/versions/v1/infer",
        "V2, binary": f"/v1/projects/{PROJECT}/v2/models/mnist/versions/v1/infer",
        "TensorFlow Serving, rows": f"/tfserving/projects/{PROJECT}/v1/models/mnist/versions/v1:predict",
        "MLflow": f"/mlflow/projects/{PROJECT}/models/mnist/versions/v1/invocations",
    }
    root = target.url.partition("/v1/")[0]
    return [way(name, f"{root}{path}", target) for name, path in paths.items()]


Found = dict[tuple[int, int], dict[str, list[Turn]]]  #: turns, by shape and by name of a way


def measure(ways: Sequence[Way], *, rounds: int, seconds: float) -> Found:
    """The turns of each way. Every second round goes the other way round."""
    found: Found = {}
    for shape in SHAPES:
        turns: dict[str, list[Turn]] = {each.name: [] for each in ways}
        for each in ways:
            each.drive(*shape, 1)
        for number in range(rounds):
            for each in ways if number % 2 == 0 else ways[::-1]:
                turn = each.drive(*shape, seconds)
                turns[each.name].append(turn)
                sys.stderr.write(f"{each.name}, {shape[0]} x {shape[1]}: {turn.rate:,.0f}/s, {turn.cpu_ms:.2f} ms\n")
        found[shape] = turns
    return found


def table(found: Found) -> list[Row]:
    """A row for each shape and way, with ratios to the first way in the same round, as medians over the rounds."""
    rows = []
    for (instances, concurrency), ways in found.items():
        what = f"{'1 instance' if instances == 1 else f'{instances} instances'} a request, concurrency {concurrency}"
        for name, turns in ways.items():
            rate, p50_ms, p99_ms, cpu_ms = (
                statistics.median(getattr(turn, field) for turn in turns)
                for field in ("rate", "p50_ms", "p99_ms", "cpu_ms")
            )
            value = f"{rate:,.0f}/s, p50 / p99 {p50_ms:.1f} / {p99_ms:.1f} ms; {cpu_ms:.2f} ms of processor time"
            rows.append(
                Row(what=what, value=value, against=name, ratio=_ratios(turns, ways[FIRST]), aim=AIMS.get(name, ""))
            )
    return rows


def _ratios(turns: Sequence[Turn], first: Sequence[Turn]) -> str:
    """Of the rates, and of the requests in the same processor time: more than 1 is better than the first way."""
    if turns is first:
        return ""
    pairs = list(zip(turns, first, strict=True))
    by_rate = statistics.median(turn.rate / other.rate for turn, other in pairs)
    by_cpu = statistics.median(other.cpu_ms / turn.cpu_ms for turn, other in pairs)
    return f"{by_rate:.2f}; {by_cpu:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="how often each load is put on each way")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a load lasts")
    parser.add_argument("--peers", default=TRITON.name, help=f"{TRITON.name}, or `none`")
    args = parser.parse_args()
    ask_for_wrk()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        scratch = Path(folder)
        model = scratch / "model"
        subprocess.run(
            [interpreter(), PEERS / "model.py", model], check=True, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
        )
        ours = stack.enter_context(trainshed(model, scratch))
        ways = ways_of(ours)
        if args.peers == TRITON.name:
            peer = stack.enter_context(running(TRITON, model, scratch))
            ways += [way(f"{TRITON.name}, {form}", peer.url, peer) for form in ("JSON", "binary")]
        found = measure(ways, rounds=args.rounds, seconds=args.seconds)
    publish("protocols", table(found))


if __name__ == "__main__":
    main()
