"""What came of rounds of a fault: a report for people, the figures of its row, and a command's output."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from trainshed.testing.reliability.checker import Violation
from trainshed.testing.reliability.figures import record
from trainshed.testing.reliability.verdict import counted


@dataclass(slots=True)
class FaultReport:
    """What came of some rounds."""

    fault: str  #: what a round is, in the plural
    rounds: int = 0
    seconds: float = 0.0
    operations: int = 0
    unknown: int = 0  #: operations whose outcome the client does not know
    jobs: int = 0
    restarts_s: list[float] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    details: str = ""  #: what else there is to say

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in counted(self.violations).items())
        load = f", {self.operations} operations ({self.unknown} unknown), {self.jobs} jobs" if self.operations else ""
        slowest = f"; slowest restart {max(self.restarts_s):.1f} s" if self.restarts_s else ""
        details = f"; {self.details}" if self.details else ""
        return f"{self.rounds} {self.fault}{load}; {counts}{slowest}{details}"


def record_report(row: str, report: FaultReport, *, case: str = "") -> None:
    """Add a report to the figures of a fault row."""
    record(row, case=case, runs=report.rounds, counts=counted(report.violations), hours=report.seconds / 3600)


def run_rounds(
    row: str,
    rounds: int,
    run: Callable[[Path, Callable[[FaultReport], None]], Sequence[Violation]],
    *,
    recorded: bool,
    case: str = "",
) -> None:
    """Run the rounds in a folder of their own, and print each report. Exits with 1, and keeps the folder, if a promise
    was broken."""
    folder = Path(tempfile.mkdtemp(prefix=f"{row}-"))
    done = 0

    def tell(report: FaultReport) -> None:
        nonlocal done
        done += report.rounds
        click.echo(f"[{done}/{rounds}] {report}")
        for each in report.violations:
            click.echo(f"  {each}", err=True)
        if recorded:
            record_report(row, report, case=case)

    if run(folder, tell):
        click.echo(f"The files are kept: {folder}", err=True)
        sys.exit(1)
    shutil.rmtree(folder)
