"""Kills the server, its search process, supervisors and trials at random moments of searches, and counts the trials.

python -m trainshed.testing.reliability.searches --rounds 1000 --seed 1
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import psutil

from trainshed.domain.jobs.states import TERMINAL_STATES
from trainshed.engines.local.search_process import COMMAND
from trainshed.testing.cache import link_runtimes
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.checker import Violation
from trainshed.testing.reliability.reports import FaultReport, run_rounds
from trainshed.testing.reliability.searches.checks import STEPS, check_search, check_searches, check_suggestions
from trainshed.testing.reliability.stamps import Life, processes_of, read_lives, supervisor_pid
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "searches"
ROUNDS_PER_BATCH = 20  #: between two checks, with searches of their own
MIN_PAUSE_S, MAX_PAUSE_S = 0.1, 1.2  #: between two kills
TRIALS = 6  #: of one search
SLOTS = 4
MAX_KILLS = 2  #: of one trial, by its supervisor or its process: it starts three times
GRACE_S = 2
FAULTS = ("server", "searcher", "supervisor", "trial")
_ENDED_TIMEOUT_S = 300.0

#: Arguments: the file of stamps, then those of a trial. Reports one value in each step, as hypertune does.
TRAINER = f"""
import json, os, sys, time
name = [os.environ["TRAINSHED_JOB"], os.path.basename(os.environ["TRAINSHED_ATTEMPT"]), os.getpid()]
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def stamp(event):
    os.write(fd, (json.dumps([*name, event, time.monotonic(), time.time()]) + "\\n").encode())
stamp("start")
x, path = float(sys.argv[sys.argv.index("--x") + 1]), os.environ["CLOUD_ML_HP_METRIC_FILE"]
os.makedirs(os.path.dirname(path), exist_ok=True)
lines = []
for step in range(1, {STEPS} + 1):
    value = -(x - 0.3) ** 2 - ({STEPS} - step) / 100
    report = {{"timestamp": time.time(), "global_step": str(step), "trial": os.environ["CLOUD_ML_TRIAL_ID"],
              "score": repr(value)}}
    lines.append(json.dumps(report) + "\\n")
    with open(path, "w") as out:
        out.writelines(lines)
    time.sleep(0.15)
    stamp("alive")
stamp("stop")
"""
HYPERPARAMETERS = {
    "hyperparameterMetricTag": "score",
    "maxTrials": TRIALS,
    "params": [{"parameterName": "x", "type": "DOUBLE", "minValue": 0.0, "maxValue": 1.0}],
}


@dataclass(slots=True)
class Searches:
    """The searches of one batch, and what was done to them."""

    server: RunningServer
    stamps: Path
    jobs: dict[str, int] = field(default_factory=dict)  #: by id: the trials at a time
    kills: Counter[str] = field(default_factory=Counter)  #: by the job of a trial
    struck: Counter[str] = field(default_factory=Counter)  #: by fault
    points: dict[tuple[str, int], Mapping[str, str]] = field(default_factory=dict)  #: of each trial that was seen
    violations: list[Violation] = field(default_factory=list)

    def trials(self, job: str) -> list[dict[str, Any]]:
        """The trials of a search now. Notes a trial whose values have changed."""
        answer = self.server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/{job}/trials")
        for trial in answer["trials"]:
            point, number = trial["hyperparameters"], trial["trial"]
            if self.points.setdefault((job, number), point) != point:
                text = f"trial {number} of {job} had {self.points[job, number]}, and has {point}"
                self.violations.append(Violation("doubled", text))
        return list(answer["trials"])

    def ended(self) -> bool:
        return all(self._state(job) in TERMINAL_STATES for job in self.jobs)

    def _state(self, job: str) -> str:
        return str(self.server.call("GET", f"/v1/projects/{PROJECT}/jobs/{job}")["state"])

    def running(self) -> list[Life]:
        """The trials' processes that run, as far as they may still be killed."""
        alive = [life for life in read_lives(self.stamps) if not life.stopped and psutil.pid_exists(life.pid)]
        return [life for life in alive if self.kills[life.job] < MAX_KILLS]


def strike(searches: Searches, fault: str, chance: random.Random) -> float:
    """Kill one thing, if there is one. Returns the seconds that a restart of the server took."""
    if fault == "server":
        searches.struck[fault] += 1
        searches.server.kill()
        began_s = time.monotonic()
        searches.server.start()
        return time.monotonic() - began_s
    if fault == "searcher":
        for child in psutil.Process(searches.server.pid).children():
            with suppress(psutil.NoSuchProcess):
                if tuple(child.cmdline()) == COMMAND:
                    child.kill()
                    searches.struck[fault] += 1
        return 0.0
    eventually(lambda: searches.running() or searches.ended(), within_s=_ENDED_TIMEOUT_S)
    running = searches.running()
    if not running:
        return 0.0
    life = chance.choice(running)
    folder = searches.server.home / "jobs" / PROJECT / life.job / life.attempt
    pid = life.pid if fault == "trial" else supervisor_pid(folder)
    if pid is None:
        return 0.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if str(folder) in " ".join([*process.cmdline(), *process.environ().values()]):  # not a stranger with its pid
            searches.kills[life.job] += 1
            searches.struck[fault] += 1
            process.kill()
    return 0.0


def run_batch(server: RunningServer, scratch: Path, *, seed: int, batch: int, rounds: int) -> FaultReport:
    """Strike `rounds` times while searches run on a running server, and check them at their ends."""
    started_s, chance = time.monotonic(), random.Random(f"{seed}/{batch}")
    faults = chance.sample(FAULTS * (rounds // len(FAULTS) + 1), rounds)
    folder = scratch / f"batch-{batch}"
    folder.mkdir()
    searches = Searches(server, folder / "stamps")
    submitter = Submitter(server, PROJECT, folder, bucket=f"{PROJECT}-bucket")
    report = FaultReport("kills")
    for number, fault in enumerate(faults):
        if not searches.jobs or searches.ended():
            for parallel in (1, chance.choice((2, 3))):
                job = f"search_{batch}_{number}_{parallel}"
                spec = {**HYPERPARAMETERS, "maxParallelTrials": parallel}
                submitter.submit(job, TRAINER, args=[str(searches.stamps)], hyperparameters=spec)
                searches.jobs[job] = parallel
        time.sleep(chance.uniform(MIN_PAUSE_S, MAX_PAUSE_S))
        for job in searches.jobs:
            searches.trials(job)
        restart_s = strike(searches, fault, chance)
        report.restarts_s += [restart_s] if restart_s else []
    report.violations = _verdict(searches)
    report.rounds = searches.struck.total()
    report.fault = f"kills ({', '.join(f'{name} {count}' for name, count in sorted(searches.struck.items()))})"
    report.jobs = len(searches.jobs)
    report.operations = len(searches.points)
    report.seconds = time.monotonic() - started_s
    return report


def _verdict(searches: Searches) -> list[Violation]:
    """Wait for the ends of all searches, and say what is wrong with them."""
    try:
        eventually(searches.ended, within_s=_ENDED_TIMEOUT_S, interval_s=0.1)
    except AssertionError:
        return [*searches.violations, Violation("lost", "a search that does not end")]
    lives = read_lives(searches.stamps)
    found = searches.violations
    for job, parallel in searches.jobs.items():
        body = searches.server.call("GET", f"/v1/projects/{PROJECT}/jobs/{job}")
        if parallel == 1:
            found += check_suggestions(body, searches.trials(job), seed=f"projects/{PROJECT}/jobs/{job}")
        found += check_search(body, searches.trials(job), lives, parallel=parallel, kills=searches.kills)
    found += check_searches(lives, searches.jobs)
    try:
        eventually(lambda: processes_of(searches.server.home / "jobs"), lambda left: not left, within_s=20)
    except AssertionError as exc:
        found.append(Violation("survivors", f"processes of trials that have ended: {exc}"))
    return found


def run(rounds: int, seed: int, folder: Path, tell: Callable[[FaultReport], None]) -> Sequence[Violation]:
    """Run batches on one state folder in `folder`, and tell of each. Returns all violations."""
    violations: list[Violation] = []
    server = started(folder)
    try:
        for batch, start in enumerate(range(0, rounds, ROUNDS_PER_BATCH)):
            count = min(ROUNDS_PER_BATCH, rounds - start)
            report = run_batch(server, folder, seed=seed, batch=batch, rounds=count)
            violations += report.violations
            tell(report)
    finally:
        server.kill()
        server.end_jobs()
    return violations


def started(folder: Path) -> RunningServer:
    """A running server with a bucket for the packages of searches."""
    settings = {"slots": SLOTS, "grace_s": GRACE_S}
    server = RunningServer(link_runtimes(folder / "home"), settings).start()
    server.call("POST", f"/storage/v1/b?project={PROJECT}", {"name": f"{PROJECT}-bucket"})
    return server


@click.command()
@click.option("--rounds", default=100, show_default=True, help="How often to kill something.")
@click.option("--seed", default=1, show_default=True, help="For what is killed, and when.")
@click.option("--record", "recorded", is_flag=True, help="Add the figures to docs/reliability.md.")
def main(rounds: int, seed: int, recorded: bool) -> None:
    """Kill processes of searches at random moments. Keeps the state folder if something is wrong."""
    run_rounds("F73", rounds, lambda folder, tell: run(rounds, seed, folder, tell), recorded=recorded)
