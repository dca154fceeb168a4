"""Runs conformance suites, and writes docs/conformance.md.

python -m trainshed.testing.conformance [SUITE...]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import click

from trainshed.testing.conformance import figures
from trainshed.testing.conformance.environments import ROOT
from trainshed.testing.conformance.suites import NAMES, OUTCOMES, Installed, Suite, load
from trainshed.testing.conformance.targets import TARGETS


@click.command()
@click.argument("names", metavar="[SUITE]...", nargs=-1, type=click.Choice(NAMES))
@click.option("--again", is_flag=True, help="Run also what was recorded for the source that is checked out.")
@click.option("--keep", is_flag=True, help="Keep the folders of the runs, and print where they are.")
def main(names: tuple[str, ...], again: bool, keep: bool) -> None:
    """Run all suites, or those that are named, against each of their servers.

    What a suite did is recorded when it ends, so a run that was interrupted goes on where it stopped.

    \b
    Example:
      python -m trainshed.testing.conformance airflow --again
    """
    broken = [name for name in names or NAMES if not _run_suite(load(name), again=again, keep=keep)]
    figures.write(figures.read())
    if broken:
        click.echo(f"Not run to the end: {', '.join(broken)}", err=True)
        sys.exit(1)


def _run_suite(suite: Suite, *, again: bool, keep: bool) -> bool:
    """Run it against its servers. Returns False if it could not be installed or run to its end; other suites go on."""
    todo = [target for target in suite.targets if again or not figures.recorded(suite, target)]
    if not todo:
        click.echo(f"{suite.name}: recorded for this source already; --again runs it.")
        return True
    try:
        installed = suite.install(ROOT / suite.name)
        for target in todo:
            _run(suite, target, installed, keep=keep)
    except Exception as exc:  # noqa: BLE001 - a suite is foreign code, and the others are to run
        click.echo(f"{suite.name}: {type(exc).__name__}: {exc}", err=True)
        return False
    return True


def _run(suite: Suite, target: str, installed: Installed, *, keep: bool) -> None:
    folder = Path(tempfile.mkdtemp(prefix=f"{suite.name}-"))
    try:
        (folder / "work").mkdir()
        with TARGETS[target](folder) as server:
            cases = suite.run(installed, server, folder / "work")
    finally:
        if not keep:
            shutil.rmtree(folder)
    figures.record(suite, target, installed, cases)
    counts = ", ".join(f"{sum(case.outcome == each for case in cases)} {each}" for each in OUTCOMES)
    click.echo(f"{suite.name} at {target}: {counts}" + (f"; kept in {folder}" if keep else ""))


if __name__ == "__main__":
    main()
