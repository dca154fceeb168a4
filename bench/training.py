"""Whole trainings: the MNIST samples as jobs of Trainshed, and the same code as processes started by hand.

python bench/training.py                           # the documents' runs, about an hour and a half on two cores
python bench/training.py --only BASIC sync         # some of them; what the table has of the others stays
python bench/training.py --steps 500 --epochs 1    # shorter
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from report import Row, publish
from trainshed.node.process.ports import free_ports
from trainshed.runtimes.builds import EnvironmentDir
from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.testing.processes.servers import MeasuredServer, RunningServer

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "samples"
CACHE = ROOT / ".cache" / "runtimes"
TRAINSHED = Path(sys.executable).with_name("trainshed")
RUNTIME = "2.21"
PROJECT = "bench-training"
BUCKET = f"gs://{PROJECT}-ml"
NAMES = ("STANDARD_1", "BASIC", "sync")
_ACCURACY = re.compile(r"(?:Final metrics after .*accuracy: |Test accuracy: )([\d.]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A sample, its gang, and how much of it is trained."""

    name: str  #: for `--only`
    sample: str
    tier: str  #: as a flag of the command line
    gang: tuple[tuple[str, int], ...]
    amount: str  #: in words
    steps: int
    args: tuple[str, ...]
    data: Path
    aim: str


@dataclass(frozen=True, slots=True)
class Result:
    seconds: float
    accuracy: float


def accuracy_in(text: str) -> float:
    found = _ACCURACY.findall(text)
    if not found:
        raise RuntimeError(f"The trainer told of no accuracy:\n{text[-2000:]}")
    return float(found[-1])


def as_a_job(server: RunningServer, training: Training) -> Result:
    """Submit it and wait for its end."""
    name = f"{training.sample}_{time.time_ns()}"
    sample = SAMPLES / training.sample
    flags = (
        f"--package-path={sample / 'trainer'} --module-name=trainer.task --staging-bucket={BUCKET} "
        f"--job-dir={BUCKET}/{name} --runtime-version={RUNTIME} {training.tier} --stream-logs -- "
        f"--data_dir={BUCKET}/{training.data.name}"
    ).split()
    command: list[str | Path] = [TRAINSHED, "jobs", "submit", "training", name, *flags, *training.args]
    began = time.perf_counter()
    done = subprocess.run(
        command, env=server.env() | {"TRAINSHED_PROJECT": PROJECT}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-3000:])
    return Result(time.perf_counter() - began, accuracy_in(done.stderr))


def by_hand(training: Training) -> Result:
    """Start the same processes as a person would, and wait for the first of them."""
    cluster: dict[str, list[str]] = {}
    members = [(role, index) for role, count in training.gang for index in range(count)]
    for (role, _), port in zip(members, free_ports(len(members)), strict=True):
        cluster.setdefault(role, []).append(f"127.0.0.1:{port}")
    threads = str(max(1, (os.cpu_count() or 1) // len(members)))
    python = EnvironmentDir(CACHE / CATALOGUE[RUNTIME].key).python
    with tempfile.TemporaryDirectory() as output, tempfile.TemporaryFile("w+") as log:
        options = [f"--data_dir={training.data}", *training.args, f"--job-dir={output}"]
        command: list[str | Path] = [python, "-m", "trainer.task", *options]
        began = time.perf_counter()
        processes: list[subprocess.Popen[bytes]] = []
        for role, index in members:
            config = {"cluster": cluster, "task": {"type": role, "index": index}}
            env = os.environ | {"TF_CONFIG": json.dumps(config), "OMP_NUM_THREADS": threads}
            sink = log if not processes else subprocess.DEVNULL
            processes.append(
                subprocess.Popen(command, cwd=SAMPLES / training.sample, env=env, stdout=sink, stderr=sink)
            )
        status = processes[0].wait()
        seconds = time.perf_counter() - began
        for process in processes[1:]:
            process.terminate()
            process.wait()
        log.seek(0)
        text = log.read()
    if status != 0:
        raise RuntimeError(text[-3000:])
    return Result(seconds, accuracy_in(text))


def row(training: Training, job: Result, hand: Result) -> Row:
    return Row(
        what=f"`{training.sample}`, {training.amount}",
        value=f"{job.accuracy:.2%} in {job.seconds:.0f} s, {training.steps / job.seconds:.1f} steps/s",
        against=f"by hand: {hand.accuracy:.2%} in {hand.seconds:.0f} s, {training.steps / hand.seconds:.1f} steps/s",
        ratio=f"{job.seconds / hand.seconds:.2f}",
        aim=training.aim,
    )


def trainings(args: argparse.Namespace, records: Path) -> list[Training]:
    gangs = {"STANDARD_1": (("chief", 1), ("worker", 4), ("ps", 3)), "BASIC": (("chief", 1),)}
    asynchronous = [
        Training(
            name=tier,
            sample="mnist_async",
            tier=f"--scale-tier={tier}",
            gang=gang,
            amount=f"{args.steps:,} steps, {tier}",
            steps=args.steps,
            args=(f"--train_steps={args.steps}",),
            data=records,
            aim="98.7 %; 99.2 %",
        )
        for tier, gang in gangs.items()
    ]
    synchronous = Training(
        name="sync",
        sample="mnist_sync",
        tier=f"--config={SAMPLES / 'mnist_sync' / 'config' / 'config.yaml'}",
        gang=(("chief", 1), ("worker", 1)),
        amount=f"{args.epochs} epochs, chief + 1 worker",
        steps=args.epochs * 60_000 // 64,
        args=(f"--epochs={args.epochs}",),
        data=SAMPLES / "data" / "mnist",
        aim="98.96 %",
    )
    return [each for each in (*asynchronous, synchronous) if each.name in args.only]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="which trainings")
    parser.add_argument("--steps", type=int, default=5000, help="of mnist_async")
    parser.add_argument("--epochs", type=int, default=8, help="of mnist_sync")
    args = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / "home"
        home.mkdir()
        (home / "runtimes").symlink_to(CACHE)
        records = Path(scratch) / "records"
        make = SAMPLES / "mnist_async" / "scripts" / "create_records.py"
        subprocess.run([sys.executable, make, "--output-dir", records], check=True, stdout=subprocess.DEVNULL)
        server = MeasuredServer(home).start()
        try:
            env = server.env() | {"TRAINSHED_PROJECT": PROJECT}
            subprocess.run([TRAINSHED, "buckets", "mb", BUCKET], env=env, check=True)
            for folder in (records, SAMPLES / "data" / "mnist"):
                subprocess.run([TRAINSHED, "buckets", "cp", "-r", folder, BUCKET], env=env, check=True)
            for training in trainings(args, records):  # published one by one, because all of them take long
                publish("training", [row(training, as_a_job(server, training), by_hand(training))], keep=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
