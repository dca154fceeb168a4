"""`trainshed local train`: real processes, their exit status, and that none of them is left."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainshed.errors import CannotProceedError
from trainshed.local.train import check_ports
from trainshed.testing.clusters import gangs
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer

TRAINSHED = str(Path(sys.executable).with_name("trainshed"))
SAMPLES = Path(__file__).resolve().parents[2] / "samples"

#: writes its pid and TF_CONFIG into the folder that it is given, then does as its role is told
TRAINER = """
import argparse, json, os, signal, subprocess, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("--job-dir")
parser.add_argument("--first", default="0")
parser.add_argument("--worker", default="wait")
args = parser.parse_args()
config = json.loads(os.environ["TF_CONFIG"])
role = config["task"].get("type", "alone")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
todo = args.worker if role == "worker" else "wait" if role == "ps" else args.first
if todo == "wait":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready as", role, flush=True)  # before the others see its file, and may end it
os.makedirs(args.job_dir, exist_ok=True)
name = "%s-%d" % (role, config["task"].get("index", 0))
with open(os.path.join(args.job_dir, name + ".new"), "w") as file:
    json.dump({"pids": [os.getpid(), child.pid], "config": config}, file)
os.rename(file.name, os.path.join(args.job_dir, name + ".json"))
if todo == "wait":
    time.sleep(600)
while role == "chief" and len([n for n in os.listdir(args.job_dir) if n.endswith(".json")]) < 4:
    time.sleep(0.05)
print("done", file=sys.stderr)
sys.exit(int(todo))
"""


class Trainer:
    """A package, and the command line that runs it in a state folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        self.home = folder / "home"
        package = folder / "code" / "trainer"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "task.py").write_text(TRAINER)
        (folder / "bin").mkdir()
        (folder / "bin" / "python").symlink_to(sys.executable)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TRAINSHED_")}
        self.env = clean | {
            "TRAINSHED_HOME": str(self.home),
            "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
        }
        self.words = ["--package-path", str(package), "--module-name", "trainer.task"]

    def start(self, *flags: str, user: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        command = [TRAINSHED, "local", "train", *self.words, "--job-dir", str(self.out), *flags, "--", *user]
        return subprocess.Popen(
            command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def notes(self, count: int) -> dict[str, dict[str, object]]:
        """What so many processes wrote about themselves, by role and number."""
        found = eventually(lambda: list(self.out.glob("*.json")), lambda found: len(found) >= count, within_s=180)
        return {path.stem: json.loads(path.read_text()) for path in found}

    def pids(self, count: int) -> list[int]:
        return [int(str(pid)) for note in self.notes(count).values() for pid in note["pids"]]  # type: ignore[attr-defined]


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    return Trainer(tmp_path)


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if gangs.alive(pid)]


def gang() -> tuple[str, ...]:
    """Flags for one parameter server and two workers, on ports that were free a moment ago."""
    for start in range(21000 + os.getpid() % 5000, 32000, 10):  # below those that the system hands out
        with contextlib.suppress(CannotProceedError):
            check_ports(start, 4)
            break
    return ("--distributed", "--parameter-server-count", "1", "--worker-count", "2", "--start-port", str(start))


@pytest.mark.parametrize("status", [0, 7])
def test_it_ends_with_the_trainers_status_and_leaves_nothing(trainer: Trainer, status: int) -> None:
    running = trainer.start(user=("--first", str(status)))
    out, err = running.communicate(timeout=240)
    assert running.returncode == status, err
    assert out == "ready as alone\n"  # as it was written, without a prefix
    assert "done" in err
    [note] = trainer.notes(1).values()
    assert note["config"] == {
        "job": {"job_name": "trainer.task", "args": ["--first", str(status), "--job-dir", str(trainer.out)]},
        "task": {},
        "cluster": {},
        "environment": "cloud",
    }
    assert alive(trainer.pids(1)) == []


def test_a_gang_ends_with_its_first_replica(trainer: Trainer) -> None:
    running = trainer.start(*gang(), user=("--first", "5"))
    out, err = running.communicate(timeout=240)
    assert running.returncode == 5, err
    assert sorted(line for line in out.splitlines() if "ready" in line) == [
        "[master-replica-0] ready as chief",
        "[ps-replica-0] ready as ps",
        "[worker-replica-0] ready as worker",
        "[worker-replica-1] ready as worker",
    ]
    assert "[master-replica-0] done" in err
    assert alive(trainer.pids(4)) == []


def test_a_worker_that_fails_ends_all(trainer: Trainer) -> None:
    running = trainer.start(*gang(), user=("--first", "wait", "--worker", "3"))
    _, err = running.communicate(timeout=240)
    assert running.returncode == 3, err
    assert re.search(r"worker-replica-\d failed with exit status 3", err)
    assert alive([pid for path in trainer.out.glob("*.json") for pid in json.loads(path.read_text())["pids"]]) == []


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all(trainer: Trainer, distributed: bool, number: signal.Signals) -> None:
    running = trainer.start(*(gang() if distributed else ()), user=("--first", "wait"))
    pids = trainer.pids(4 if distributed else 1)
    running.send_signal(number)
    running.communicate(timeout=240)
    assert running.returncode == 128 + number
    assert alive(pids) == []


def test_replicas_do_not_outlive_a_command_that_is_killed(trainer: Trainer) -> None:
    running = trainer.start(*gang(), user=("--first", "wait"))
    own = [int(str(note["pids"][0])) for note in trainer.notes(4).values()]  # type: ignore[index]
    everything = trainer.pids(4)
    running.kill()
    running.communicate(timeout=240)
    eventually(lambda: alive(own), lambda left: not left)
    for pid in set(everything) - set(own):  # what the trainers detached is nobody's any more
        os.kill(pid, signal.SIGKILL)


def test_addresses_of_buckets_here_become_paths(trainer: Trainer) -> None:
    (trainer.home / "buckets" / "my-data").mkdir(parents=True)
    trainer.out = trainer.home / "buckets" / "my-data" / "model"
    command = [TRAINSHED, "local", "train", *trainer.words, "--job-dir", "gs://my-data/model"]
    done = subprocess.run(command, env=trainer.env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    [note] = trainer.notes(1).values()
    assert note["config"]["job"]["args"] == ["--job-dir", str(trainer.out)]  # type: ignore[index]


def test_flags_of_a_cluster_without_one_are_ignored_aloud(trainer: Trainer) -> None:
    _, err = trainer.start("--worker-count", "3").communicate(timeout=240)
    assert "--worker-count is ignored if --distributed is not provided.\nDid you mean" in err


def test_a_trainer_without_job_dir_is_warned_of_and_explained(trainer: Trainer, tmp_path: Path) -> None:
    code = "import argparse\nargparse.ArgumentParser().parse_args()\n"
    (tmp_path / "code" / "trainer" / "task.py").write_text(code)
    running = trainer.start()
    _, err = running.communicate(timeout=240)
    assert running.returncode == 2
    before, _, after = err.partition("unrecognized arguments: --job-dir /")
    assert "WARNING: Nothing in" in before
    assert 'parser.add_argument("--job-dir")' in after


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "runtime", ["2.21", pytest.param("1.15", marks=pytest.mark.soak)]
)  # the path is the same, TensorFlow 1 is what differs
def test_a_sample_trains_on_a_runtime_without_a_server(
    framework_server: RunningServer, trainer: Trainer, runtime: str
) -> None:
    trainer.home.mkdir()
    (trainer.home / "runtimes").symlink_to(framework_server.home / "runtimes")
    iris = SAMPLES / "iris"
    command = [TRAINSHED, "local", "train", "--runtime-version", runtime, "--package-path", str(iris / "trainer")]
    command += ["--module-name", "trainer.task", "--job-dir", str(trainer.out), "--", "--outdir", str(trainer.out)]
    command += ["--train_steps", "10", "--train_file", "data/iris_training.csv", "--test_file", "data/iris_test.csv"]
    done = subprocess.run(command, env=trainer.env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Saving dict for global step 10" in done.stderr
    assert len(list(trainer.out.glob("export/exporter/*/saved_model.pb"))) == 1
