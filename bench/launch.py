"""Starting a gang: from submit to the first training step of all of it, warm, cold, and by hand with a shell script.

python bench/launch.py               # about six minutes
python bench/launch.py --rounds 1    # quicker, and noisier
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from report import Row, publish
from trainshed.control.launches import free_ports
from trainshed.testing.engines import wait_for
from trainshed.testing.jobs import Submitter
from trainshed.testing.servers import RunningServer

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "runtimes"
PROJECT = "bench-launch"
RUNTIME = "2.21"
PATIENT_S = 50

#: Between-graph replication on asynchronous parameter servers, on data of MNIST's shape. Prints when what happened.
TRAINER = """
import argparse, json, os, time

parser = argparse.ArgumentParser()
parser.add_argument("--job-dir")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--wait_s", type=float, default=30.0)
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
from tensorflow.python.training import session_manager

mark("imported")
tf.disable_v2_behavior()
spec = tf.train.ClusterSpec(cluster)
threads = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
server = tf.train.Server(spec, job_name=task["type"], task_index=task["index"], config=threads)
mark("server")
if task["type"] == "ps":
    server.join()
original = session_manager.SessionManager.__init__
session_manager.SessionManager.__init__ = lambda self, *a, **k: original(
    self, *a, **dict(k, recovery_wait_secs=args.wait_s))
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
no_hooks = dict(log_step_count_steps=None, save_summaries_steps=None, save_checkpoint_secs=None)
with tf.train.MonitoredTrainingSession(server.target, is_chief=chief, config=threads, **no_hooks) as session:
    while at < args.steps or time.time() - began < args.at_least_s:
        rows = random.randint(0, 2000, 100)
        _, at = session.run([train, step], {x: images[rows], y: labels[rows]})
        count += 1
        if count == 1:
            mark("first step", step=int(at))
mark("done", step=int(at), steps=count)
"""


@dataclass(frozen=True)
class Run:
    """What one run of the gang took."""

    first_step_s: float  #: from the start to the first step of the last replica
    steps_per_s: float  #: of all replicas together, once all of them train


def measured(began: float, lines: list[str]) -> Run:
    marks = [json.loads(line.removeprefix("MARK ")) for line in lines if line.startswith("MARK ")]
    first = {mark["who"]: mark for mark in marks if mark["what"] == "first step"}
    done = {mark["who"]: mark for mark in marks if mark["what"] == "done"}
    last = max(first.values(), key=lambda mark: mark["t"])
    end = min(done.values(), key=lambda mark: mark["t"])
    return Run(last["t"] - began, (end["step"] - last["step"]) / (end["t"] - last["t"]))


def by_hand(python: Path, folder: Path, arguments: list[str]) -> Run:
    """The gang as a shell script starts it: four processes in the background, wait for the three that train."""
    folder.mkdir()
    (folder / "task.py").write_text(TRAINER)
    ports = free_ports(4)
    cluster = {
        "chief": [f"127.0.0.1:{ports[0]}"],
        "worker": [f"127.0.0.1:{port}" for port in ports[1:3]],
        "ps": [f"127.0.0.1:{ports[3]}"],
    }
    lines = ["cd " + str(folder)]
    for number, (kind, index) in enumerate((("ps", 0), ("chief", 0), ("worker", 0), ("worker", 1))):
        config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})
        command = " ".join([str(python), "-m", "task", *arguments])
        lines.append(f"TF_CONFIG='{config}' {command} > {kind}{index}.log 2>&1 &")
        lines.append(f"pid{number}=$!")
    lines += ["wait $pid1 $pid2 $pid3", "kill $pid0"]
    began = time.time()
    subprocess.run(["bash", "-c", "\n".join(lines)], check=True)
    return measured(began, [line for log in folder.glob("*.log") for line in log.read_text().splitlines()])


class Gang:
    """The same gang as a job on a server of its own."""

    def __init__(self, server: RunningServer, scratch: Path) -> None:
        self._jobs = Submitter(server, PROJECT, scratch)
        self._server = server
        self._count = 0
        machines = dict.fromkeys(("masterType", "workerType", "parameterServerType"), "standard")
        counts = {"workerCount": "2", "parameterServerCount": "1"}
        self._jobs.submit(
            "first", TRAINER, args=["--wait_s=0.1"], runtimeVersion=RUNTIME, scaleTier="CUSTOM", **machines, **counts
        )
        self._jobs.wait("first", {"SUCCEEDED"}, timeout_s=900)
        self._given = dict(self._jobs.get("first")["trainingInput"])

    def run(self, arguments: list[str], *, start: str) -> Run:
        self._count += 1
        name = f"run_{self._count}"
        given = self._given | {"args": arguments}
        began = time.time()
        self._server.call("POST", f"/v1/projects/{PROJECT}/jobs", {"jobId": name, "trainingInput": given})
        self._jobs.wait(name, {"SUCCEEDED"})
        journal = (self._jobs.attempt(name) / "journal.jsonl").read_text().splitlines()
        assert json.loads(journal[0])["start"] == start, journal[0]
        return measured(began, self._jobs.lines(name))


@contextmanager
def a_gang(**settings: object) -> Iterator[Gang]:
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / "home"
        home.mkdir()
        CACHE.mkdir(parents=True, exist_ok=True)
        (home / "runtimes").symlink_to(CACHE)
        server = RunningServer(home, settings).start()
        try:
            gang = Gang(server, Path(scratch) / "trainers")
            if settings["warm_start"] == "auto":
                wait_for(lambda: list(home.glob("warm/*/socket")), bool, within_s=120.0)
            yield gang
        finally:
            server.stop()


def median(runs: list[Run], field: str) -> float:
    return float(statistics.median(getattr(run, field) for run in runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each way is measured, in turn")
    parser.add_argument("--steps", type=int, default=6000, help="training steps of a run")
    args = parser.parse_args()
    tuned = [f"--steps={args.steps}", "--wait_s=0.1"]
    hand: list[Run] = []
    warm: list[Run] = []
    cold: list[Run] = []
    with (
        a_gang(warm_start="auto") as warm_gang,
        a_gang(warm_start="off") as cold_gang,
        tempfile.TemporaryDirectory() as t,
    ):
        python = next(CACHE.glob(f"{RUNTIME}-*/bin/python"))
        for number in range(args.rounds):
            hand.append(by_hand(python, Path(t) / str(number), tuned))
            warm.append(warm_gang.run(tuned, start="warm"))
            cold.append(cold_gang.run(tuned, start="cold"))
        patient = [f"--at_least_s={PATIENT_S}"]  # or the master is done before the workers begin
        untuned = by_hand(python, Path(t) / "untuned", patient), warm_gang.run(patient, start="warm")
    publish("launch", rows(hand, warm, cold, untuned))


def rows(hand: list[Run], warm: list[Run], cold: list[Run], untuned: tuple[Run, Run]) -> list[Row]:
    by_hand_s, by_hand_rate = median(hand, "first_step_s"), median(hand, "steps_per_s")
    against = f"by hand: {by_hand_s:.2f} s"
    warm_s, cold_s, rate = median(warm, "first_step_s"), median(cold, "first_step_s"), median(warm, "steps_per_s")
    return [
        Row(
            what="submit to the first step of all replicas, warm",
            value=f"{warm_s:.2f} s",
            against=against,
            ratio=f"{warm_s / by_hand_s:.2f}",
            aim="0.43",
        ),
        Row(
            what="the same, cold",
            value=f"{cold_s:.2f} s",
            against=against,
            ratio=f"{cold_s / by_hand_s:.2f}",
        ),
        Row(
            what="the same, warm, with TensorFlow's own wait of 30 s",
            value=f"{untuned[1].first_step_s:.2f} s",
            against=f"by hand: {untuned[0].first_step_s:.2f} s",
            ratio=f"{untuned[1].first_step_s / untuned[0].first_step_s:.2f}",
        ),
        Row(
            what="training, warm, all replicas together",
            value=f"{rate:.0f} steps/s",
            against=f"by hand: {by_hand_rate:.0f} steps/s",
            ratio=f"{rate / by_hand_rate:.3f}",
            aim="within 1 %",
        ),
    ]


if __name__ == "__main__":
    main()
