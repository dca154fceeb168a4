"""Batches of a soak: a load with faults, then quiet, when everything is checked and the server must hold what it held.

python -m trainshed.testing.reliability.soak --hours 8 --seed 1
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import click

from trainshed.testing.cache import link_runtimes
from trainshed.testing.loop_watch import blocked_loops
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.checker import Violation
from trainshed.testing.reliability.history import OperationOutcome
from trainshed.testing.reliability.load import Load, prepare
from trainshed.testing.reliability.reports import FaultReport, run_rounds
from trainshed.testing.reliability.soak.faults import SoakFaults
from trainshed.testing.reliability.soak.leaks import HeldResources, held_resources
from trainshed.testing.reliability.verdict import GRACE_S, judge

ROW = "F18"
FAULTS_PER_BATCH = 6
INTERVAL_S = 10.0  #: between two faults
JOBS_PER_FAULT = 1


class Soak:
    """One server, which is never restarted. What it holds after the first batch is what it may hold after any other."""

    def __init__(self, server: RunningServer, scratch: Path, *, seed: int, interval_s: float = INTERVAL_S) -> None:
        self._server = server
        self._scratch = scratch
        self._seed = seed
        self._interval_s = interval_s
        self._base: HeldResources | None = None
        self._blocked = 0  #: lines of the loop's watch that were reported

    def run_batch(self, batch: int, *, faults: int = FAULTS_PER_BATCH) -> FaultReport:
        """Run the load with some faults, and check everything at rest."""
        started_s, chance = time.monotonic(), random.Random(f"{self._seed}/{batch}")
        stamps, victims = (self._scratch / f"{name}-{batch}" for name in ("stamps", "victims"))
        prepare(self._server, self._scratch)
        load = Load(self._server, stamps, seed=self._seed, batch=batch, max_jobs=JOBS_PER_FAULT * faults)
        strikes = SoakFaults(self._server, victims, chance, batch=batch)
        names = chance.sample(list(strikes.strikes) * (faults // len(strikes.strikes) + 1), faults)
        load.start()
        try:
            for name in names:
                began_s = time.monotonic()
                strikes.strikes[name]()
                time.sleep(max(0.0, self._interval_s - (time.monotonic() - began_s)))
        except BaseException:
            load.abandon()
            raise
        load.stop()
        strikes.end_victims()
        report = FaultReport("faults", faults)
        report.violations = judge(load, load.quiesce(), self._server, stamps)
        report.violations += [Violation("5xx", each) for each in strikes.errors]
        report.violations += self._leaks(report)
        operations = load.history.operations
        report.operations, report.jobs = len(operations), len(load.jobs) + len(strikes.victims)
        report.unknown = sum(each.outcome is OperationOutcome.UNKNOWN for each in operations)
        report.details += f"; {', '.join(f'{name} {count}' for name, count in sorted(Counter(names).items()))}"
        report.seconds = time.monotonic() - started_s
        return report

    def _leaks(self, report: FaultReport) -> list[Violation]:
        held = held_resources(self._server)
        report.details = str(held)
        blocked = blocked_loops(self._server.home)[self._blocked :]
        self._blocked += len(blocked)
        if self._base is None:
            self._base = held
        found = [Violation("5xx", f"the event loop was blocked for {each}") for each in blocked]
        return found + self._base.leaks(held)


def run(
    hours: float, seed: int, folder: Path, tell: Callable[[FaultReport], None], *, interval_s: float = INTERVAL_S
) -> list[Violation]:
    """Run batches on one server for so long, and tell of each. Returns all violations."""
    violations: list[Violation] = []
    server = RunningServer(link_runtimes(folder / "home"), {"grace_s": GRACE_S}).start()
    soak, end_s, batch = Soak(server, folder, seed=seed, interval_s=interval_s), time.monotonic() + hours * 3600, 0
    try:
        while time.monotonic() < end_s:
            report = soak.run_batch(batch)
            violations += report.violations
            tell(report)
            batch += 1
    finally:
        server.kill()
        server.end_jobs()
    return violations


@click.command()
@click.option("--hours", default=1.0, show_default=True, help="How long to go on.")
@click.option("--seed", default=1, show_default=True, help="For what the clients do and which faults strike.")
@click.option("--interval", "interval_s", default=INTERVAL_S, show_default=True, help="Seconds from fault to fault.")
@click.option("--record", "recorded", is_flag=True, help="Add the figures to docs/reliability.md.")
def main(hours: float, seed: int, interval_s: float, recorded: bool) -> None:
    """Run a server under load with faults. Keeps the state folder if something is wrong."""
    faults = round(hours * 3600 / interval_s)
    run_rounds(
        ROW, faults, lambda folder, tell: run(hours, seed, folder, tell, interval_s=interval_s), recorded=recorded
    )


if __name__ == "__main__":
    main()
