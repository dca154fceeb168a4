"""Whole trainings: the MNIST samples as jobs of Trainshed, and the same code as processes started by hand.

python bench/training.py                           # the documents' runs, about half an hour on two cores
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from report import Row, publish
from trainshed.control.launches import free_ports
from trainshed.testing.servers import RunningServer

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "samples"
CACHE = ROOT / ".cache" / "runtimes"
TRAINSHED = Path(sys.executable).with_name("trainshed")
PROJECT = "bench-training"
BUCKET = f"gs://{PROJECT}-ml"
_ACCURACY = re.compile(r"(?:Final metrics after .*accuracy: |Test accuracy: )([\d.]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A sample, its gang, and how much of it is trained."""

    sample: str
    config: str
    gang: tuple[tuple[str, int], ...]
    amount: str  #: in words
    steps: int
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    seconds: float
    accuracy: float


def accuracy_in(text: str) -> float:
    found = _ACCURACY.findall(text)
    if not found:
        raise RuntimeError(f"The trainer told of no accuracy:\n{text[-2000:]}")
    return float(found[-1])


def as_a_job(server: RunningServer, training: Training, data: str) -> Result:
    """Submit it and wait for its end."""
    name = f"{training.sample}_{time.time_ns()}"
    sample = SAMPLES / training.sample
    flags = (
        f"--package-path={sample / 'trainer'} --module-name=trainer.task --staging-bucket={BUCKET} "
        f"--job-dir={BUCKET}/{name} --runtime-version=2.21 --config={sample / training.config} --stream-logs -- "
        f"--data_dir={data}"
    ).split()
    command: list[str | Path] = [TRAINSHED, "jobs", "submit", "training", name, *flags, *training.args]
    began = time.perf_counter()
    done = subprocess.run(
        command, env=server.env() | {"TRAINSHED_PROJECT": PROJECT}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-3000:])
    return Result(time.perf_counter() - began, accuracy_in(done.stderr))


def by_hand(python: Path, training: Training, data: Path) -> Result:
    """Start the same processes as a person would, and wait for the first of them."""
    cluster: dict[str, list[str]] = {}
    members = [(role, index) for role, count in training.gang for index in range(count)]
    for (role, _), port in zip(members, free_ports(len(members)), strict=True):
        cluster.setdefault(role, []).append(f"127.0.0.1:{port}")
    threads = str(max(1, (os.cpu_count() or 1) // len(members)))
    with tempfile.TemporaryDirectory() as output, tempfile.TemporaryFile("w+") as log:
        options = [f"--data_dir={data}", *training.args, f"--job-dir={output}"]
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


def row(training: Training, job: Result, hand: Result, aim: str) -> Row:
    return Row(
        what=f"`{training.sample}`, {training.amount}",
        value=f"{job.accuracy:.2%} in {job.seconds:.0f} s, {training.steps / job.seconds:.1f} steps/s",
        against=f"by hand: {hand.accuracy:.2%} in {hand.seconds:.0f} s, {training.steps / hand.seconds:.1f} steps/s",
        ratio=f"{job.seconds / hand.seconds:.2f}",
        aim=aim,
    )


def measured(server: RunningServer, training: Training, data: Path, aim: str) -> Row:
    [python] = CACHE.glob("2.21-*/bin/python")
    job = as_a_job(server, training, f"{BUCKET}/{data.name}")
    return row(training, job, by_hand(python, training, data), aim)


def trainings(args: argparse.Namespace) -> Sequence[tuple[Training, str]]:
    asynchronous = Training(
        sample="mnist_async",
        config="config/config_small.yaml",
        gang=(("chief", 1), ("worker", 2), ("ps", 1)),
        amount=f"{args.steps:,} steps, 1 ps + 1 master + 2 workers",
        steps=args.steps,
        args=(f"--train_steps={args.steps}",),
    )
    synchronous = Training(
        sample="mnist_sync",
        config="config/config.yaml",
        gang=(("chief", 1), ("worker", 1)),
        amount=f"{args.epochs} epochs, chief + 1 worker",
        steps=args.epochs * 60_000 // 64,
        args=(f"--epochs={args.epochs}",),
    )
    return (asynchronous, "98.7 %; 99.2 %"), (synchronous, "98.96 %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
        server = RunningServer(home).start()
        try:
            env = server.env() | {"TRAINSHED_PROJECT": PROJECT}
            subprocess.run([TRAINSHED, "buckets", "mb", BUCKET], env=env, check=True)
            for folder in (records, SAMPLES / "data" / "mnist"):
                subprocess.run([TRAINSHED, "buckets", "cp", "-r", folder, BUCKET], env=env, check=True)
            [(asynchronous, aim), (synchronous, sync_aim)] = trainings(args)
            publish(
                "training",
                [
                    measured(server, asynchronous, records, aim),
                    measured(server, synchronous, SAMPLES / "data" / "mnist", sync_aim),
                ],
            )
        finally:
            server.stop()


if __name__ == "__main__":
    main()
