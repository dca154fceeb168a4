"""Takes a server through every crash point with every action, and checks what it does afterwards.

python -m trainshed.testing.reliability.crashes
python -m trainshed.testing.reliability.crashes --database postgresql --action kill --action fail
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from trainshed.node.crashpoints import ACTIONS, KILL
from trainshed.testing.cache import link_runtimes
from trainshed.testing.processes.postgresql import running_postgresql
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.checker import Violation
from trainshed.testing.reliability.crash.scenarios import SCENARIOS, go_through
from trainshed.testing.reliability.crash.world import World
from trainshed.testing.reliability.reports import FaultReport, run_rounds

DATABASES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


@contextmanager
def world_on(database: str, folder: Path) -> Iterator[World]:
    """The world of the scenarios, on a database of this kind. Its server does not run."""
    home = link_runtimes(folder / "home")
    if database == "sqlite":
        yield from _world(RunningServer(home), folder)
        return
    with running_postgresql() as postgresql:
        yield from _world(RunningServer(home, {"database": postgresql.create_database("crashes")}), folder)


def _world(server: RunningServer, folder: Path) -> Iterator[World]:
    world = World(server, folder)
    try:
        yield world
    finally:
        server.kill()
        server.end_jobs()


def run(
    database: str,
    points: Sequence[str],
    actions: Sequence[str],
    folder: Path,
    tell: Callable[[FaultReport], None],
) -> list[Violation]:
    """Take a server through these points with each action, and tell of each. Returns all violations."""
    violations: list[Violation] = []
    with world_on(database, folder) as world:
        for action in actions:
            if action != KILL:
                world.server.start()
            for point in points:
                began_s = time.monotonic()
                found: list[Violation] = []
                try:
                    go_through(world, point, action)
                except AssertionError as exc:
                    [place] = traceback.extract_tb(exc.__traceback__)[-1:]
                    found = [Violation("lost", f"{point} with {action}: {place.name}: {place.line} {exc}")]
                violations += found
                tell(FaultReport(f"{action} at {point}", 1, time.monotonic() - began_s, violations=found))
            if action != KILL:
                world.server.kill()
    return violations


@click.command()
@click.option("--database", type=click.Choice(list(DATABASES)), default="sqlite", show_default=True)
@click.option("--point", "points", multiple=True, type=click.Choice(list(SCENARIOS)), help="All without this.")
@click.option("--action", "actions", multiple=True, type=click.Choice(ACTIONS), help="All without this.")
@click.option("--record", "recorded", is_flag=True, help="Add the figures to docs/reliability.md.")
def main(database: str, points: Sequence[str], actions: Sequence[str], recorded: bool) -> None:
    """Kill, delay or fail every named step of a server once. Keeps the state folder if something is wrong."""
    points, actions = points or list(SCENARIOS), actions or ACTIONS

    def all_points(folder: Path, tell: Callable[[FaultReport], None]) -> list[Violation]:
        return run(database, points, actions, folder, tell)

    run_rounds("F01", len(points) * len(actions), all_points, case=DATABASES[database], recorded=recorded)


if __name__ == "__main__":
    main()
