"""Kills the server at random moments under load, starts it again, and checks what clients saw.

python -m trainshed.testing.reliability.kills --rounds 100 --seed 1
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import click

from trainshed.testing.cache import link_runtimes
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.checker import Violation
from trainshed.testing.reliability.history import OperationOutcome
from trainshed.testing.reliability.load import Load, prepare
from trainshed.testing.reliability.reports import FaultReport, run_rounds
from trainshed.testing.reliability.verdict import GRACE_S, judge

ROUNDS_PER_BATCH = 10  #: between two checks, with resources of their own
MIN_LIFE_S, MAX_LIFE_S = 0.3, 3.0  #: of a server, from its first response to SIGKILL
JOBS_PER_ROUND = 3


def run_batch(
    server: RunningServer, scratch: Path, *, seed: int, batch: int, rounds: int, max_life_s: float = MAX_LIFE_S
) -> FaultReport:
    """Kill a running server `rounds` times under load and check it at rest. The server runs afterwards."""
    started_s = time.monotonic()
    chance = random.Random(f"{seed}/{batch}")
    stamps = scratch / f"stamps-{batch}"
    prepare(server, scratch)
    report = FaultReport("kills", rounds)
    load = Load(server, stamps, seed=seed, batch=batch, max_jobs=JOBS_PER_ROUND * rounds)
    load.start()
    try:
        for _ in range(rounds):
            time.sleep(chance.uniform(MIN_LIFE_S, max_life_s))
            load.pause()
            server.kill()
            began_s = time.monotonic()
            server.start()
            report.restarts_s.append(time.monotonic() - began_s)
            load.resume()
    except BaseException:
        load.abandon()
        raise
    load.stop()
    report.violations = judge(load, load.quiesce(), server, stamps)
    operations = load.history.operations
    report.operations, report.jobs = len(operations), len(load.jobs)
    report.unknown = sum(each.outcome is OperationOutcome.UNKNOWN for each in operations)
    report.seconds = time.monotonic() - started_s
    return report


def run(rounds: int, seed: int, folder: Path, tell: Callable[[FaultReport], None]) -> list[Violation]:
    """Run batches on one state folder in `folder`, and tell of each. Returns all violations."""
    home = link_runtimes(folder / "home")
    server = RunningServer(home, {"grace_s": GRACE_S}).start()
    violations: list[Violation] = []
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


@click.command()
@click.option("--rounds", default=100, show_default=True, help="How often to kill the server.")
@click.option("--seed", default=1, show_default=True, help="For what the clients do and when the server is killed.")
@click.option("--record", "recorded", is_flag=True, help="Add the figures to docs/reliability.md.")
def main(rounds: int, seed: int, recorded: bool) -> None:
    """Kill the server at random moments under load. Keeps the state folder if something is wrong."""
    run_rounds("F02", rounds, lambda folder, tell: run(rounds, seed, folder, tell), recorded=recorded)


if __name__ == "__main__":
    main()
