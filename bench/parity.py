"""Parity of the engines: three samples from one spec, on this machine and on a Ray cluster of three nodes, compared.

make parity                              # about a quarter of an hour on two cores
python bench/parity.py --only taxi       # one of them

Each sample is trained twice on the local engine, which tells how much two runs differ by chance, and once on Ray. Ends
with 1 if they differ in state, files or events, or if a curve is further off than chance explains.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from report import CLUSTERS, replace_between
from trainshed.testing.clusters.ray import RAY_VERSION, NodeSize, RayCluster, ray_environment
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.parity import (
    CurveDistance,
    Difference,
    Outcome,
    curve_distances,
    differences,
    happened,
    plain_file,
    plain_text,
)

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "samples"
CACHE = ROOT / ".cache" / "runtimes"
TRAINSHED = Path(sys.executable).with_name("trainshed")
PROJECT = "parity"
BUCKET = f"{PROJECT}-ml"
LOCAL, RAY = "local", "ray"
RUNTIME = "2.21"
RUN_TIMEOUT_S = 1500.0
MAX_SHOWN_POINTS = 20  #: of a curve
#: machine types of the samples request much more than the machine has
SHARE = 0.25
NODE = NodeSize(cpus=16, memory_gb=128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One spec: `config` and `args` of `jobs submit training`, with `{bucket}` and `{job}` in them."""

    name: str
    config: str
    args: tuple[str, ...]


SPECS = (
    Sample(
        name="mnist_async",
        config="config/config_small.yaml",
        args=(
            "--data_dir=gs://{bucket}/records",
            "--output_dir=gs://{bucket}/{job}",
            "--train_steps=200",
            "--eval_interval_secs=600",
        ),
    ),
    Sample(
        name="mnist_sync",
        config="config/config.yaml",
        args=("--data_dir=gs://{bucket}/mnist", "--epochs=3", "--steps_per_epoch=40"),
    ),
    Sample(
        name="taxi",
        config="config_ps.yaml",
        args=(
            "--train-files=gs://{bucket}/taxi/taxi_train.csv",
            "--eval-files=gs://{bucket}/taxi/taxi_eval.csv",
            "--train-size=12025",
            "--num-epochs=3",
            "--batch-size=128",
            "--learning-rate=0.001",
            "--hidden-units=128,0,0",
            "--layer-sizes-scale-factor=0.5",
            "--num-layers=3",
        ),
    ),
)


class Course:
    """A server with the data of all samples, for jobs on either engine. `place` says where the nodes are."""

    def __init__(self, server: RunningServer, scratch: Path, place: str) -> None:
        self.place = place
        self._server = server
        self._count = 0
        records = scratch / "records"
        make = SAMPLES / "mnist_async" / "scripts" / "create_records.py"
        subprocess.run([sys.executable, make, "--output-dir", records], check=True, stdout=subprocess.DEVNULL)
        self._trainshed("buckets", "mb", f"gs://{BUCKET}")
        for name, folder in (
            ("records", records),
            ("mnist", SAMPLES / "data" / "mnist"),
            ("taxi", SAMPLES / "data" / "taxi"),
        ):
            files = sorted(path for path in folder.iterdir() if path.suffix != ".md")
            self._trainshed("buckets", "cp", *files, f"gs://{BUCKET}/{name}/")

    def run(self, sample: Sample, engine: str) -> Outcome:
        """Submit a sample to an engine and wait until it ends."""
        self._count += 1
        job = f"{sample.name}_{engine}_{self._count}"
        folder = SAMPLES / sample.name
        self._trainshed(
            *("jobs", "submit", "training", job, f"--labels=trainshed-engine={engine}"),
            *("--package-path", folder / "trainer", "--module-name=trainer.task", "--region=us-central1"),
            *(f"--job-dir=gs://{BUCKET}/{job}", f"--staging-bucket=gs://{BUCKET}", f"--runtime-version={RUNTIME}"),
            *("--config", folder / sample.config, "--"),
            *(word.format(bucket=BUCKET, job=job) for word in sample.args),
        )
        self._wait(job)
        return self._outcome(job)

    def last_words(self, job: str) -> str:
        answer = self._server.call("GET", f"{self._path(job)}/logs")
        return "\n".join(f"{entry.get('replica', '')}\t{entry['message']}" for entry in answer["entries"][-40:])

    def _wait(self, job: str) -> None:
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while (state := self._server.call("GET", f"/v1/projects/{PROJECT}/jobs/{job}")["state"]) not in (
            *("SUCCEEDED", "FAILED", "CANCELLED"),
        ):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{job} is {state} after {RUN_TIMEOUT_S:.0f} s:\n{self.last_words(job)}")
            time.sleep(0.5)
        if state != "SUCCEEDED":
            sys.stderr.write(f"{job}: {state}\n{self.last_words(job)}\n")

    def _outcome(self, job: str) -> Outcome:
        details = self._server.call("GET", self._path(job))
        stats = self._server.call("GET", f"{self._path(job)}/stats?points=1000")
        below = self._server.home / "buckets" / BUCKET / job
        journal = self._server.home / "jobs" / PROJECT / job / "1" / "journal.jsonl"
        events = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
        told = [plain_text(each["message"], job) for each in details["events"] if each["severity"] != "WARNING"]
        return Outcome(
            state=details["job"]["state"],
            files=frozenset(plain_file(str(path.relative_to(below))) for path in below.rglob("*") if path.is_file()),
            events=(*told, *happened(events)),
            curves={_curve_name(each): _curve(each) for each in stats["metrics"] if each["name"] != "steps_per_s"},
            seconds=float(stats["elapsedSeconds"] or 0.0),
        )

    def _path(self, job: str) -> str:
        return f"/trainshed/v1/projects/{PROJECT}/jobs/{job}"

    def _trainshed(self, *words: object) -> None:
        env = self._server.env() | {"TRAINSHED_PROJECT": PROJECT}
        command = [str(word) for word in (TRAINSHED, *words)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-3000:]}")


def _curve_name(metric: dict[str, Any]) -> str:
    return f"{'evaluated ' if metric['evaluation'] else ''}{metric['name']}"


def _curve(metric: dict[str, Any]) -> list[tuple[float, float]]:
    by_step = {float(step): float(value) for step, value in zip(metric["step"], metric["value"], strict=True)}
    return sorted(by_step.items())


@contextmanager
def course() -> Iterator[Course]:
    """A cluster, and a server that uses it."""
    python = ray_environment(CACHE)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        home = scratch / "home"
        home.mkdir()
        (home / "runtimes").symlink_to(CACHE)
        with RayCluster(python, scratch / "cluster", size=NODE, runtimes=CACHE) as cluster:
            settings = cluster.settings() | {"ray_placement": "spread", "ray_cpu_share": SHARE, "warm_start": "off"}
            place = "in network namespaces of their own" if cluster.network.isolated else "on loopback addresses"
            server = RunningServer(home, settings).start()
            try:
                yield Course(server, scratch, place)
            finally:
                server.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A sample on both engines."""

    sample: str
    local: Outcome
    again: Outcome  #: local too
    ray: Outcome
    found: Sequence[Difference]
    curves: Sequence[CurveDistance]

    @property
    def ok(self) -> bool:
        return not self.found and all(curve.ok for curve in self.curves) and self.local.state == "SUCCEEDED"

    def row(self) -> str:
        curves = "; ".join(f"{each.name} {each.measured:.3f} ({each.noise:.3f})" for each in self.curves)
        same = "the same" if not self.found else f"{len(self.found)} differences"
        return (
            f"| `{self.sample}` | {self.local.state} / {self.ray.state} | {len(self.ray.files)} | "
            f"{len(self.ray.events)} | {same} | {curves} | {self.local.seconds:.0f} s / {self.ray.seconds:.0f} s |"
        )


def shown(verdict: Verdict) -> Iterator[str]:
    """The curves themselves, if they are short."""
    for name in verdict.local.curves:
        for where, run in (("local", verdict.local), ("local again", verdict.again), ("Ray", verdict.ray)):
            curve = run.curves.get(name, ())
            points = " ".join(f"{step:g}:{value:.4g}" for step, value in curve[:: 1 + len(curve) // MAX_SHOWN_POINTS])
            yield f"{verdict.sample}, {name}, {where}: {points}"


def compare(course: Course, sample: Sample) -> Verdict:
    first, again, other = (course.run(sample, engine) for engine in (LOCAL, LOCAL, RAY))
    return Verdict(
        sample=sample.name,
        local=first,
        again=again,
        ray=other,
        found=differences(first, other),
        curves=curve_distances(first, again, other),
    )


def table(verdicts: Sequence[Verdict], place: str) -> str:
    """The text of the page."""
    lines = [
        f"Run on {datetime.now(UTC):%Y-%m-%d} with Ray {RAY_VERSION}, on a head and two nodes {place}.",
        "",
        "| sample | state, local / Ray | files | events | files and events | curves: off by (by chance) | time |",
        "|---|---|---|---|---|---|---|",
        *(verdict.row() for verdict in verdicts),
    ]
    told = [f"* `{verdict.sample}`: {each}" for verdict in verdicts for each in verdict.found]
    return "\n".join([*lines, *(["", "Differences (local | Ray):", "", *told] if told else [])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[sample.name for sample in SPECS], help="this sample, and leave the page")
    args = parser.parse_args()
    chosen = [sample for sample in SPECS if args.only in (None, sample.name)]
    with course() as running:
        verdicts = [compare(running, sample) for sample in chosen]
    text = table(verdicts, running.place)
    lines = [line for verdict in verdicts for line in shown(verdict)]
    sys.stdout.write("\n".join([text, *lines, ""]))
    if args.only is None:
        replace_between(CLUSTERS, "parity", text)
    for verdict in verdicts:
        for curve in verdict.curves:
            if not curve.ok:
                off = f"is off by {curve.measured:.3f}, and {curve.allowed:.3f} is allowed"
                sys.stdout.write(f"{verdict.sample}: {curve.name} {off}\n")
    sys.exit(0 if all(verdict.ok for verdict in verdicts) else 1)


if __name__ == "__main__":
    main()
