"""Tables of measurements: printed, and kept in a page of docs/ between the marks of their bench."""

from __future__ import annotations

import platform
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "performance.md"
CLUSTERS = DOCS / "clusters.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement, its comparison from the same run, and the target."""

    what: str
    value: str
    against: str = ""
    ratio: str = ""
    aim: str = ""


def percentiles_ms(seconds: Sequence[float]) -> str:
    """`p50 / p99` in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return f"{cuts[49] * 1000:.1f} / {cuts[98] * 1000:.1f} ms"


def show(rows: Sequence[Row]) -> None:
    """Print rows, and nothing more: of runs that are too small for the page."""
    sys.stdout.write("".join(f"{line}\n" for line in _lines(rows)))


def _lines(rows: Sequence[Row]) -> list[str]:
    return [f"| {r.what} | {r.value} | {r.against} | {r.ratio} | {r.aim} |" for r in rows]


def publish(bench: str, rows: Sequence[Row], *, keep: bool = False) -> None:
    """Print the table and put it in the page. `keep`: also the rows there that are about something else."""
    lines = _lines(rows)
    if keep:
        again = tuple(f"| {r.what} |" for r in rows)
        lines = [*(line for line in _rows(between(PAGE, bench)) if not line.startswith(again)), *lines]
    table = "\n".join(
        [
            f"Measured on {datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, Python {platform.python_version()}.",
            "",
            "| what | measured | against | ratio | aim |",
            "|---|---|---|---|---|",
            *lines,
        ]
    )
    sys.stdout.write(f"{table}\n")
    replace_between(PAGE, bench, table)


def replace_between(path: Path, bench: str, text: str) -> None:
    """Replace the text between the marks of a bench in a page."""
    found = _place(path, bench)
    before, after = path.read_text()[: found.start(1)], path.read_text()[found.end(1) :]
    path.write_text(f"{before}\n{text}\n{after}")


def between(path: Path, bench: str) -> str:
    """The current text between the marks."""
    return _place(path, bench)[1]


def _place(path: Path, bench: str) -> re.Match[str]:
    begin, end = f"<!-- {bench} begins -->", f"<!-- {bench} ends -->"
    found = re.search(f"{re.escape(begin)}(.*){re.escape(end)}", path.read_text(), re.DOTALL)
    if found is None:
        raise SystemExit(f"{path} has no place for {bench}: add the lines {begin} and {end}.")
    return found


def _rows(table: str) -> list[str]:
    return [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| what |")]
