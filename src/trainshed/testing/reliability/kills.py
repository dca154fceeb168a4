"""Kills the server, or PostgreSQL below it, at random moments under load, and checks what clients saw.

python -m trainshed.testing.reliability.kills --rounds 100 --seed 1
python -m trainshed.testing.reliability.kills --rounds 100 --seed 1 --database postgresql
python -m trainshed.testing.reliability.kills --rounds 100 --seed 1 --database postgresql --target database
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from trainshed.testing.cache import link_runtimes
from trainshed.testing.processes.commit_proxy import CommitProxy, Cut, commit_proxy
from trainshed.testing.processes.postgresql import Postgresql, running_postgresql
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.checker import Violation
from trainshed.testing.reliability.history import OperationOutcome
from trainshed.testing.reliability.load import Load, prepare
from trainshed.testing.reliability.reports import FaultReport, run_rounds
from trainshed.testing.reliability.verdict import GRACE_S, judge

ROUNDS_PER_BATCH = 10  #: between two checks, with resources of their own
MIN_LIFE_S, MAX_LIFE_S = 0.3, 3.0  #: of a server, from its first response to SIGKILL
JOBS_PER_ROUND = 3
CUTS_PER_ROUND = 8
MAX_OUTAGE_S = 1.0  #: from the kill of PostgreSQL to its next start

#: A fault: strikes, repairs, and returns the seconds that the repair took.
Strike = Callable[[Load, random.Random], float]


def kill_server(server: RunningServer) -> Strike:
    """Kill the server and start it again."""

    def strike(load: Load, chance: random.Random) -> float:
        load.pause()
        server.kill()
        began_s = time.monotonic()
        server.start()
        load.resume()
        return time.monotonic() - began_s

    return strike


def break_database(postgresql: Postgresql, proxy: CommitProxy) -> Strike:
    """Kill PostgreSQL and start it again, or cut some of its connections when they commit."""

    def strike(load: Load, chance: random.Random) -> float:
        if chance.random() < 0.5:
            for _ in range(CUTS_PER_ROUND):
                proxy.cut_next(chance.choice(list(Cut)))
            return 0.0
        postgresql.kill()
        time.sleep(chance.uniform(0.0, MAX_OUTAGE_S))
        began_s = time.monotonic()
        postgresql.start()
        return time.monotonic() - began_s

    return strike


def run_batch(
    server: RunningServer,
    scratch: Path,
    *,
    seed: int,
    batch: int,
    rounds: int,
    max_life_s: float = MAX_LIFE_S,
    strike: Strike | None = None,
) -> FaultReport:
    """Strike a running server `rounds` times under load, with SIGKILL unless `strike` is something else, and check it
    at rest. The server runs afterwards."""
    strike = strike or kill_server(server)
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
            report.restarts_s.append(strike(load, chance))
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


@contextmanager
def _target(folder: Path, database: str, target: str) -> Iterator[tuple[RunningServer, Strike]]:
    """A server that is not started yet, and what strikes it."""
    home, settings = link_runtimes(folder / "home"), {"grace_s": GRACE_S}
    if database == "sqlite":
        server = RunningServer(home, settings)
        yield server, kill_server(server)
        return
    with running_postgresql() as postgresql, commit_proxy(postgresql) as proxy:
        url = proxy.url(postgresql.create_database("kills"))
        server = RunningServer(home, {**settings, "database": url})
        yield server, kill_server(server) if target == "server" else break_database(postgresql, proxy)


def run(
    rounds: int,
    seed: int,
    folder: Path,
    tell: Callable[[FaultReport], None],
    *,
    database: str = "sqlite",
    target: str = "server",
) -> list[Violation]:
    """Run batches on one state folder in `folder`, and tell of each. Returns all violations."""
    violations: list[Violation] = []
    with _target(folder, database, target) as (server, strike):
        server.start()
        try:
            for batch, start in enumerate(range(0, rounds, ROUNDS_PER_BATCH)):
                count = min(ROUNDS_PER_BATCH, rounds - start)
                report = run_batch(server, folder, seed=seed, batch=batch, rounds=count, strike=strike)
                violations += report.violations
                tell(report)
        finally:
            server.kill()
            server.end_jobs()
    return violations


@click.command()
@click.option("--rounds", default=100, show_default=True, help="How often to strike.")
@click.option("--seed", default=1, show_default=True, help="For what the clients do and when a fault strikes.")
@click.option("--database", type=click.Choice(["sqlite", "postgresql"]), default="sqlite", show_default=True)
@click.option("--target", type=click.Choice(["server", "database"]), default="server", show_default=True)
@click.option("--record", "recorded", is_flag=True, help="Add the figures to docs/reliability.md.")
def main(rounds: int, seed: int, database: str, target: str, recorded: bool) -> None:
    """Kill the server, or break PostgreSQL, at random moments. Keeps the state folder if something is wrong."""
    if target == "database" and database == "sqlite":
        raise click.UsageError("SQLite has no process of its own.")

    def all_rounds(folder: Path, tell: Callable[[FaultReport], None]) -> list[Violation]:
        return run(rounds, seed, folder, tell, database=database, target=target)

    row = "F06" if target == "database" else "F02"
    case = "PostgreSQL" if (row, database) == ("F02", "postgresql") else ""
    run_rounds(row, rounds, all_rounds, case=case, recorded=recorded)


if __name__ == "__main__":
    main()
