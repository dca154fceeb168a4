"""Starting a gang: from submit to the first training step of all of it, warm, cold, and by hand with a shell script.

python bench/launch.py               # about ten minutes
python bench/launch.py --rounds 1    # quicker, and noisier
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import Row, publish
from trainshed.node.process.ports import free_ports
from trainshed.runtimes.builds import EnvironmentDir
from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import MeasuredServer, RunningServer
from trainshed.testing.workloads.submitter import Submitter

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "runtimes"
PROJECT = "bench-launch"
RUNTIME = "2.21"
PATIENT_S = 50
FOR_EVER = 1_000_000_000
TRAINING = 3  #: replicas of the gang that train
WINDOW_S = 1.0
SETTLE_S = 0.3
RUN_TIMEOUT_S = 300.0
JOB, ONE_SESSION, OWN_SESSIONS = "a job", "by hand", "by hand, each with setsid"

#: Between-graph replication on asynchronous parameter servers, on data of MNIST's shape. Prints when what happened, and
#: keeps the number of its steps in a file.
TRAINER = """
import argparse, json, os, struct, time

parser = argparse.ArgumentParser()
parser.add_argument("--job-dir")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--counts", default=".")
parser.add_argument("--at_least_s", type=float, default=0.0)
args = parser.parse_args()
config = json.loads(os.environ["TF_CONFIG"])
cluster, task = config["cluster"], config["task"]
chief = task["type"] in ("master", "chief")
name = "%s/%d" % ("master" if chief else task["type"], task["index"])

def mark(what, **more):
    print("MARK " + json.dumps(dict(more, who=name, what=what, t=time.time())), flush=True)

began = time.time()
mark("first line")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow.compat.v1 as tf

mark("imported")
tf.disable_v2_behavior()
spec = tf.train.ClusterSpec(cluster)
threads = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
server = tf.train.Server(spec, job_name=task["type"], task_index=task["index"], config=threads)
mark("server")
if task["type"] == "ps":
    server.join()
# tuned here
here = "/job:%s/task:%d" % (task["type"], task["index"])
with tf.device(tf.train.replica_device_setter(cluster=spec, worker_device=here)):
    step = tf.train.get_or_create_global_step()
    x, y = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.int32, [None])
    def weights(name, *shape):
        return tf.get_variable(name, shape, initializer=tf.random_normal_initializer(stddev=0.05))
    hidden = tf.nn.relu(tf.matmul(x, weights("w1", 784, 128)) + weights("b1", 128))
    logits = tf.matmul(hidden, weights("w2", 128, 10)) + weights("b2", 10)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
threads.device_filters.extend(["/job:ps", here])
random = np.random.RandomState(task["index"] + 7 * chief)
images, labels = random.rand(2000, 784).astype("float32"), random.randint(0, 10, 2000)
count = at = 0
counter = os.open(os.path.join(args.counts, name.replace("/", "-")), os.O_WRONLY | os.O_CREAT)
no_hooks = dict(log_step_count_steps=None, save_summaries_steps=None, save_checkpoint_secs=None)
with tf.train.MonitoredTrainingSession(server.target, is_chief=chief, config=threads, **no_hooks) as session:
    while at < args.steps or time.time() - began < args.at_least_s:
        rows = random.randint(0, 2000, 100)
        _, at = session.run([train, step], {x: images[rows], y: labels[rows]})
        count += 1
        os.pwrite(counter, struct.pack("q", count), 0)
        if count == 1:
            mark("first step", step=int(at))
mark("done", step=int(at), steps=count)
"""

#: Workers ask every 0.1 s whether the master is ready, and not every 30 s.
TUNED = """
from tensorflow.python.training import session_manager
original = session_manager.SessionManager.__init__
session_manager.SessionManager.__init__ = lambda self, *a, **k: original(self, *a, **dict(k, recovery_wait_secs=0.1))
"""


def trainer(*, tuned: bool) -> str:
    return TRAINER.replace("# tuned here\n", TUNED if tuned else "")


@dataclass(frozen=True)
class Run:
    """What one run of the gang took."""

    first_step_s: float  #: from the start to the first step of the last replica


def measured(began: float, lines: list[str]) -> Run:
    marks = [json.loads(line.removeprefix("MARK ")) for line in lines if line.startswith("MARK ")]
    firsts = [mark["t"] for mark in marks if mark["what"] == "first step"]
    assert len(firsts) == TRAINING, marks
    return Run(max(firsts) - began)


class Standing:
    """A gang that trains without end, but stands still, with all that belongs to it, except in its windows."""

    def __init__(self, pids: Sequence[int], counts: Path) -> None:
        self._pids = pids
        self._counts = counts
        self._all(signal.SIGSTOP)

    def window(self) -> float:
        """Let it train for a moment: how many steps a second all replicas together took."""
        self._all(signal.SIGCONT)
        time.sleep(SETTLE_S)
        before, began = steps_in(self._counts), time.perf_counter()
        time.sleep(WINDOW_S)
        rate = (steps_in(self._counts) - before) / (time.perf_counter() - began)
        self._all(signal.SIGSTOP)
        return rate

    def resume(self) -> None:
        self._all(signal.SIGCONT)

    def _all(self, number: int) -> None:
        for pid in self._pids:
            os.kill(pid, number)


def steps_in(counts: Path) -> int:
    return sum(struct.unpack("q", file.read_bytes())[0] for file in counts.iterdir() if file.stat().st_size)


def wait_until_all_train(counts: Path) -> None:
    eventually(
        lambda: sum(file.stat().st_size > 0 for file in counts.iterdir()), TRAINING.__eq__, within_s=RUN_TIMEOUT_S
    )
    time.sleep(2.0)


class Shell:
    """The gang as a shell script starts it: four processes in the background, wait for the three that train."""

    def __init__(self, python: Path, scratch: Path) -> None:
        self._python = python
        self._scratch = scratch
        self._count = 0

    def run(self, arguments: list[str], *, tuned: bool = True) -> Run:
        folder, script = self._script(arguments, tuned=tuned)
        began = time.time()
        subprocess.run(["bash", "-c", script], check=True)
        return measured(began, [line for log in folder.glob("*.log") for line in log.read_text().splitlines()])

    @contextmanager
    def standing(self, *, before: str = "") -> Iterator[Standing]:
        """`before` is what a command is started with, such as setsid."""
        counts = self._scratch / f"counts by hand {before}"
        counts.mkdir()
        folder, script = self._script([f"--steps={FOR_EVER}", f"'--counts={counts}'"], tuned=True, before=before)
        process = subprocess.Popen(["bash", "-c", script], stderr=subprocess.DEVNULL)
        try:
            wait_until_all_train(counts)
            yield Standing([int(pid) for pid in (folder / "pids").read_text().split()], counts)
        finally:
            for pid in (folder / "pids").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            process.wait()

    def _script(self, arguments: list[str], *, tuned: bool, before: str = "") -> tuple[Path, str]:
        self._count += 1
        folder = self._scratch / f"by_hand_{self._count}"
        folder.mkdir()
        (folder / "task.py").write_text(trainer(tuned=tuned))
        ports = free_ports(4)
        cluster = {
            "chief": [f"127.0.0.1:{ports[0]}"],
            "worker": [f"127.0.0.1:{port}" for port in ports[1:3]],
            "ps": [f"127.0.0.1:{ports[3]}"],
        }
        lines = [f"cd {folder}"]
        for number, (kind, index) in enumerate((("ps", 0), ("chief", 0), ("worker", 0), ("worker", 1))):
            config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})
            command = " ".join([before, str(self._python), "-m", "task", *arguments])
            lines.append(f"TF_CONFIG='{config}' {command} > {kind}{index}.log 2>&1 &")
            lines += [f"pid{number}=$!", f"echo $pid{number} >> pids"]
        return folder, "\n".join([*lines, "wait $pid1 $pid2 $pid3", "kill $pid0"])


class Gang:
    """The same gang as a job on a server of its own."""

    def __init__(self, server: RunningServer, scratch: Path) -> None:
        self._jobs = Submitter(server, PROJECT, scratch)
        self._server = server
        self._scratch = scratch
        self._count = 0
        self._given = {tuned: self._first(tuned=tuned) for tuned in (True, False)}

    def _first(self, *, tuned: bool) -> dict[str, Any]:
        """Submit the trainer once, so that it is uploaded and installed."""
        name = f"first_{tuned}"
        machines = dict.fromkeys(("masterType", "workerType", "parameterServerType"), "standard")
        counts = {"workerCount": "2", "parameterServerCount": "1"}
        source = trainer(tuned=tuned)
        self._jobs.submit(name, source, runtimeVersion=RUNTIME, scaleTier="CUSTOM", **machines, **counts)
        return dict(self._jobs.wait(name, {"SUCCEEDED"}, timeout_s=900)["trainingInput"])

    def run(self, arguments: list[str], *, start: str, tuned: bool = True) -> Run:
        began = time.time()
        name = self._submit(arguments, tuned=tuned)
        events = self._events(name, until="ended")
        assert events[0]["start"] == start, events[0]
        assert events[-1]["outcome"] == "SUCCEEDED", events[-1]
        return measured(began, self._jobs.lines(name))

    @contextmanager
    def standing(self) -> Iterator[Standing]:
        """With it, the supervisor and the server stand still."""
        counts = self._scratch / "counts of the job"
        counts.mkdir()
        name = self._submit([f"--steps={FOR_EVER}", f"--counts={counts}"], tuned=True)
        wait_until_all_train(counts)
        started = [each for each in self._events(name, until="running") if each["event"].endswith("_started")]
        standing = Standing([self._server.pid, *(each["pid"] for each in started)], counts)
        try:
            yield standing
        finally:
            standing.resume()
            self._server.call("POST", f"/v1/projects/{PROJECT}/jobs/{name}:cancel", {})
            self._events(name, until="ended")

    def _submit(self, arguments: list[str], *, tuned: bool) -> str:
        self._count += 1
        name = f"run_{self._count}"
        given = self._given[tuned] | {"args": arguments}
        self._server.call("POST", f"/v1/projects/{PROJECT}/jobs", {"jobId": name, "trainingInput": given})
        return name

    def _events(self, name: str, *, until: str) -> list[dict[str, Any]]:
        """The journal, once it has this event. The server is not asked: to answer would take time from the training."""
        journal = self._jobs.attempt(name) / "journal.jsonl"
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while True:
            lines = journal.read_text().splitlines() if journal.exists() else []
            events = [json.loads(line) for line in lines]
            if any(event["event"] == until for event in events):
                return events
            assert time.monotonic() < deadline, events
            time.sleep(0.5)


@contextmanager
def a_gang(**settings: object) -> Iterator[Gang]:
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / "home"
        home.mkdir()
        CACHE.mkdir(parents=True, exist_ok=True)
        (home / "runtimes").symlink_to(CACHE)
        open_files = {"sandbox": "none"}  # trainers count their steps in files that the benchmark reads
        server = MeasuredServer(home, {**open_files, **settings}).start()
        try:
            gang = Gang(server, Path(scratch) / "trainers")
            if settings["warm_start"] == "auto":
                eventually(lambda: list(home.glob("warm/*/socket")), within_s=120.0)
            yield gang
        finally:
            server.stop()


def median(runs: list[Run]) -> float:
    return float(statistics.median(run.first_step_s for run in runs))


def throughput(gang: Gang, shell: Shell, windows: int) -> dict[str, list[float]]:
    """Steps a second of a job, and of the same processes by hand, in one session and in one each, in turn.

    All three are alive all the time, and one of them moves.
    """
    rates: dict[str, list[float]] = {JOB: [], ONE_SESSION: [], OWN_SESSIONS: []}
    with gang.standing() as job, shell.standing() as together, shell.standing(before="setsid") as apart:
        turns = list(zip(rates, (job, together, apart), strict=True))
        for number in range(windows):
            for name, standing in turns if number % 2 else reversed(turns):
                rates[name].append(standing.window())
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each start is measured, in turn")
    parser.add_argument("--windows", type=int, default=60, help="in how many moments training is measured, in turn")
    args = parser.parse_args()
    hand: list[Run] = []
    warm: list[Run] = []
    cold: list[Run] = []
    patient = [f"--at_least_s={PATIENT_S}"]  # or the master is done before the workers begin
    with (
        a_gang(warm_start="auto") as warm_gang,
        a_gang(warm_start="off") as cold_gang,
        tempfile.TemporaryDirectory() as scratch,
    ):
        shell = Shell(EnvironmentDir(CACHE / CATALOGUE[RUNTIME].key).python, Path(scratch))
        for _ in range(args.rounds):
            hand.append(shell.run(["--steps=2000"]))
            warm.append(warm_gang.run(["--steps=2000"], start="warm"))
            cold.append(cold_gang.run(["--steps=2000"], start="cold"))
        untuned = [
            shell.run(patient, tuned=False),
            warm_gang.run(patient, start="warm", tuned=False),
            cold_gang.run(patient, start="cold", tuned=False),
        ]
        rates = throughput(warm_gang, shell, args.windows)
    publish("launch", [*start_rows(hand, warm, cold), *untuned_rows(*untuned), *training_rows(rates)])


def _row(what: str, measured_s: float, hand_s: float, aim: str = "") -> Row:
    ratio, against = f"{measured_s / hand_s:.2f}", f"by hand: {hand_s:.2f} s"
    return Row(what=what, value=f"{measured_s:.2f} s", against=against, ratio=ratio, aim=aim)


def start_rows(hand: list[Run], warm: list[Run], cold: list[Run]) -> list[Row]:
    return [
        _row("submit to the first step of all replicas, warm", median(warm), median(hand), "0.43"),
        _row("the same, cold", median(cold), median(hand)),
    ]


def untuned_rows(hand: Run, warm: Run, cold: Run) -> list[Row]:
    what = "with TensorFlow's own wait of 30 s"
    return [
        _row(f"the same, warm, {what}", warm.first_step_s, hand.first_step_s),
        _row(f"the same, cold, {what}", cold.first_step_s, hand.first_step_s),
    ]


def training_rows(rates: dict[str, list[float]]) -> list[Row]:
    return [_training_row(rates[JOB], rates[name], name) for name in (ONE_SESSION, OWN_SESSIONS)]


def _training_row(job: list[float], other: list[float], name: str) -> Row:
    ratios = [mine / theirs for mine, theirs in zip(job, other, strict=True)]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    return Row(
        what="training, warm, all replicas together",
        value=f"{statistics.median(job):.0f} steps/s",
        against=f"{name}: {statistics.median(other):.0f} steps/s",
        ratio=f"{statistics.median(ratios):.3f} ± {error:.3f}",
        aim="within 1 %",
    )


if __name__ == "__main__":
    main()
