"""The Ray engine: a gang beside the local engine and bare Ray actors, and many jobs on three nodes.

python bench/ray.py                        # about a quarter of an hour on two cores
python bench/ray.py --rounds 1 --jobs 20   # quicker, and noisier
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from launch import trainer
from report import Row, publish
from trainshed.runtimes.builds import EnvironmentDir
from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.testing.clusters.ray import NodeSize, RayCluster, ray_environment
from trainshed.testing.processes.servers import MeasuredServer, RunningServer
from trainshed.testing.workloads.submitter import Submitter

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "runtimes"
PROJECT = "bench-ray"
RUNTIME = "2.21"
LOCAL, RAY, BARE = "local", "ray", "bare"
STEPS = 2000
MAX_CONCURRENT_JOBS = 12  #: small jobs that fit on the three nodes
RUN_TIMEOUT_S = 1800.0
POLL_INTERVAL_S = 1.0  #: of the states of many jobs
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")

SMALL = "import time; time.sleep(0.2); print('done')"

#: What a user of Ray would write for the same gang: a placement group, and an actor a replica that starts the trainer.
BARE_GANG = """
import json, sys, time
import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

ray.init(sys.argv[1], logging_level="error", log_to_driver=False)
python, source, arguments = sys.argv[2], sys.argv[3], sys.argv[4:]

class Replica:
    def address(self):
        import socket
        with socket.socket() as free:
            free.bind(("", 0))
            return "%s:%d" % (ray.util.get_node_ip_address(), free.getsockname()[1])

    def start(self, config, python, source, arguments):
        import os, subprocess, tempfile
        self.folder = tempfile.mkdtemp()
        with open(self.folder + "/task.py", "w") as file:
            file.write(source)
        env = {"PATH": "/usr/bin:/bin", "HOME": self.folder, "TF_CONFIG": config, "OMP_NUM_THREADS": "1"}
        command = [python, "-m", "task", *arguments]
        self.process = subprocess.Popen(command, cwd=self.folder, env=env, stdout=subprocess.PIPE, text=True)

    def lines(self):
        return self.process.communicate()[0].splitlines()

began = time.time()
group = placement_group([{"CPU": 1}] * 4, strategy="SPREAD")
ray.get(group.ready())
who = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)]
places = [PlacementGroupSchedulingStrategy(group, number) for number in range(4)]
actors = [ray.remote(Replica).options(num_cpus=1, scheduling_strategy=place).remote() for place in places]
cluster = {}
for (role, _), address in zip(who, ray.get([actor.address.remote() for actor in actors])):
    cluster.setdefault(role, []).append(address)
configs = [json.dumps({"cluster": cluster, "task": {"type": role, "index": index}}) for role, index in who]
ray.get([actor.start.remote(config, python, source, arguments) for actor, config in zip(actors, configs)])
lines = [line for told in ray.get([actor.lines.remote() for actor in actors[:3]]) for line in told]
for actor in actors:
    ray.kill(actor)
remove_placement_group(group)
print(json.dumps({"began": began, "lines": lines}))
"""

#: The same work as the small jobs, as actors that each start a Python.
BARE_JOBS = """
import sys, time
import ray
ray.init(sys.argv[1], logging_level="error", log_to_driver=False)
count, python, source = int(sys.argv[2]), sys.argv[3], sys.argv[4]

class Job:
    def run(self, python, source):
        import subprocess
        return subprocess.run([python, "-c", source], capture_output=True, text=True, check=True).stdout

began = time.perf_counter()
actors = [ray.remote(Job).options(num_cpus=1).remote() for _ in range(count)]
waiting = {actor.run.remote(python, source): actor for actor in actors}
while waiting:
    done, _ = ray.wait(list(waiting))
    for ref in done:
        assert ray.get(ref) == "done\\n"
        ray.kill(waiting.pop(ref))
print(time.perf_counter() - began)
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One gang: from the start to the first step of its last replica, and how fast all of them were from then on."""

    first_step_s: float
    steps_per_s: float


def measured(began: float, lines: Sequence[str]) -> Run:
    marks = [json.loads(line.removeprefix("MARK ")) for line in lines if line.startswith("MARK ")]
    firsts = {mark["who"]: mark["t"] for mark in marks if mark["what"] == "first step"}
    ends = {mark["who"]: mark for mark in marks if mark["what"] == "done"}
    assert len(firsts) == 3, marks
    rates = [end["steps"] / (end["t"] - firsts[who]) for who, end in ends.items()]
    return Run(max(firsts.values()) - began, sum(rates))


class Bench:
    """A server on a cluster, and ways to have the same done on it."""

    def __init__(self, server: RunningServer, cluster: RayCluster, scratch: Path) -> None:
        self._server = server
        self._cluster = cluster
        self._jobs = Submitter(server, PROJECT, scratch)
        self._count = 0
        self._given: dict[str, dict[str, Any]] = {}

    def gang_as_a_job(self, engine: str) -> Run:
        machines = dict.fromkeys(("masterType", "workerType", "parameterServerType"), "n1-standard-4")
        counts = {"workerCount": "2", "parameterServerCount": "1"}
        given = self._uploaded("gang", trainer(tuned=True), scaleTier="CUSTOM", **machines, **counts)
        began = time.time()
        job = self._submit(given | {"args": [f"--steps={STEPS}"]}, engine)
        self._jobs.wait(job, {"SUCCEEDED"}, timeout_s=RUN_TIMEOUT_S)
        return measured(began, self._jobs.lines(job))

    def gang_as_actors(self) -> Run:
        python = EnvironmentDir(CACHE / CATALOGUE[RUNTIME].key).python
        words = (self._cluster.client_address, str(python), trainer(tuned=True), f"--steps={STEPS}")
        told = json.loads(self._cluster.python(BARE_GANG, *words, timeout_s=RUN_TIMEOUT_S).splitlines()[-1])
        return measured(told["began"], told["lines"])

    def small_jobs(self, count: int, engine: str, *, meanwhile: Callable[[], None] | None = None) -> Many:
        """Submit them at once. `meanwhile` is called when a third of them has ended."""
        given = self._uploaded("small", SMALL, runtimeVersion="python")
        began = time.time()
        with ThreadPoolExecutor(4) as pool:
            names = list(pool.map(lambda _: self._submit(given, engine), range(count)))
        if meanwhile:
            self._wait(names, count // 3)
            meanwhile()
        self._wait(names, count)
        details = [self._server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/{name}") for name in names]
        return Many(
            seconds=max(datetime.fromisoformat(each["job"]["endTime"]).timestamp() for each in details) - began,
            succeeded=sum(each["job"]["state"] == "SUCCEEDED" for each in details),
            told=sum("done" in self._jobs.lines(name) for name in names),
            restarted=sum(bool(each["restarts"]) or each["attempt"] > 1 for each in details),
        )

    def small_actors(self, count: int) -> float:
        """Seconds."""
        python = EnvironmentDir(CACHE / CATALOGUE["python"].key).python
        words = (self._cluster.client_address, str(count), str(python), SMALL)
        return float(self._cluster.python(BARE_JOBS, *words, timeout_s=RUN_TIMEOUT_S).split()[-1])

    def _uploaded(self, name: str, source: str, **training: Any) -> dict[str, Any]:
        """The trainingInput of a job with this source, which has run once: all that is cached is there."""
        if name not in self._given:
            training.setdefault("runtimeVersion", RUNTIME)
            self._jobs.submit(f"first_{name}", source, **training)
            self._given[name] = dict(
                self._jobs.wait(f"first_{name}", {"SUCCEEDED"}, timeout_s=RUN_TIMEOUT_S)["trainingInput"]
            )
        return self._given[name]

    def _submit(self, given: dict[str, Any], engine: str) -> str:
        self._count += 1
        name = f"run_{self._count}_{time.time_ns()}"
        body = {"jobId": name, "trainingInput": given, "labels": {"trainshed-engine": engine}}
        self._server.call("POST", f"/v1/projects/{PROJECT}/jobs", body)
        return name

    def _wait(self, names: Sequence[str], count: int) -> None:
        """Wait until `count` jobs have ended. Polls rarely: the poller uses the same two cores."""
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while (ended := self._ended(names)) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{ended} of {len(names)} small jobs have ended after {RUN_TIMEOUT_S:g} s")
            time.sleep(POLL_INTERVAL_S)

    def _ended(self, names: Sequence[str]) -> int:
        """How many have. They are the newest ones, which come first."""
        left, ended, token = set(names), 0, ""
        while left:
            page = self._server.call("GET", f"/v1/projects/{PROJECT}/jobs?pageSize=100&pageToken={token}")
            jobs = [job for job in page["jobs"] if job["jobId"] in left]
            ended += sum(job["state"] in ENDED for job in jobs)
            left -= {job["jobId"] for job in jobs}
            token = page.get("nextPageToken", "")
        return ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    seconds: float
    succeeded: int
    told: int  #: jobs whose log has all that they printed
    restarted: int


@contextmanager
def bench() -> Iterator[tuple[Bench, RayCluster]]:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        home = scratch / "home"
        home.mkdir()
        (home / "runtimes").symlink_to(CACHE)
        size = NodeSize(cpus=MAX_CONCURRENT_JOBS // 3, memory_gb=128)
        with RayCluster(ray_environment(CACHE), scratch / "cluster", size=size, runtimes=CACHE) as cluster:
            settings = cluster.settings() | {"ray_placement": "spread", "ray_cpu_share": 0.25, "warm_start": "off"}
            settings |= {"sandbox": "none"}  # trainers count their steps in files that the benchmark reads
            server = MeasuredServer(home, settings).start()
            try:
                yield Bench(server, cluster, scratch / "trainers"), cluster
            finally:
                server.close()


def gang_rows(runs: dict[str, list[Run]]) -> list[Row]:
    starts = {name: statistics.median(run.first_step_s for run in each) for name, each in runs.items()}
    rates = {name: statistics.median(run.steps_per_s for run in each) for name, each in runs.items()}
    words = {LOCAL: "the local engine, cold", BARE: "bare Ray actors"}
    return [
        *(
            Row(
                what="submit to the first step of all replicas, on Ray",
                value=f"{starts[RAY]:.2f} s",
                against=f"{what}: {starts[name]:.2f} s",
                ratio=f"{starts[RAY] / starts[name]:.2f}",
            )
            for name, what in words.items()
        ),
        *(
            Row(
                what="training on Ray, all replicas together",
                value=f"{rates[RAY]:.0f} steps/s",
                against=f"{what}: {rates[name]:.0f} steps/s",
                ratio=f"{rates[RAY] / rates[name]:.2f}",
            )
            for name, what in words.items()
        ),
    ]


def many_rows(count: int, quiet: Many, hurt: Many, local: Many, actors_s: float) -> list[Row]:
    return [
        Row(
            what=f"{count} small jobs on three nodes",
            value=f"{count / quiet.seconds:.2f}/s",
            against=f"{against}: {count / seconds:.2f}/s",
            ratio=f"{seconds / quiet.seconds:.2f}",
        )
        for against, seconds in (("bare Ray actors", actors_s), ("the local engine", local.seconds))
    ] + [
        Row(
            what="the same while one of the nodes is killed",
            value=f"{count / hurt.seconds:.2f}/s; {hurt.succeeded} succeeded, {hurt.told} have their whole log",
            against=f"no node killed: {count / quiet.seconds:.2f}/s",
            ratio=f"{quiet.seconds / hurt.seconds:.2f}",
            aim=f"none lost; {hurt.restarted} were started again",
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each gang is started, in turn")
    parser.add_argument("--jobs", type=int, default=200, help="small jobs")
    args = parser.parse_args()
    runs: dict[str, list[Run]] = {LOCAL: [], RAY: [], BARE: []}
    with bench() as (running, cluster):
        running.gang_as_a_job(RAY)  # so that the nodes have everything
        for _ in range(args.rounds):
            runs[BARE].append(running.gang_as_actors())
            runs[RAY].append(running.gang_as_a_job(RAY))
            runs[LOCAL].append(running.gang_as_a_job(LOCAL))
        rows = gang_rows(runs)
        publish("ray", rows)
        actors_s = running.small_actors(args.jobs)
        local = running.small_jobs(args.jobs, LOCAL)
        quiet = running.small_jobs(args.jobs, RAY)
        hurt = running.small_jobs(args.jobs, RAY, meanwhile=lambda: cluster.kill_node(cluster.nodes[0]))
        publish("ray", [*rows, *many_rows(args.jobs, quiet, hurt, local, actors_s)])
    if not quiet.succeeded == hurt.succeeded == hurt.told == args.jobs:
        raise SystemExit(f"Jobs were lost: {quiet}, and while a node was killed: {hurt}")


if __name__ == "__main__":
    main()
