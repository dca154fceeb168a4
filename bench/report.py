"""Tables of measurements: printed, and kept in docs/performance.md between the marks of their bench."""

from __future__ import annotations

import platform
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement, what it is compared with in the same run, and what we aim for."""

    what: str
    value: str
    against: str = ""
    ratio: str = ""
    aim: str = ""


def percentiles_ms(seconds: Sequence[float]) -> str:
    """`p50 / p99` in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return f"{cuts[49] * 1000:.1f} / {cuts[98] * 1000:.1f} ms"


def publish(bench: str, rows: Sequence[Row], *, keep: bool = False) -> None:
    """Print the table and put it in the page. `keep`: also the rows there that are about something else."""
    begin, end = f"<!-- {bench} begins -->", f"<!-- {bench} ends -->"
    page = PAGE.read_text()
    found = re.search(f"{re.escape(begin)}(.*){re.escape(end)}", page, re.DOTALL)
    if found is None:
        raise SystemExit(f"{PAGE} has no place for {bench}: add the lines {begin} and {end}.")
    lines = [f"| {r.what} | {r.value} | {r.against} | {r.ratio} | {r.aim} |" for r in rows]
    if keep:
        again = tuple(f"| {r.what} |" for r in rows)
        lines = [*(line for line in _rows(found[1]) if not line.startswith(again)), *lines]
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
    PAGE.write_text(f"{page[: found.start()]}{begin}\n{table}\n{end}{page[found.end() :]}")


def _rows(table: str) -> list[str]:
    return [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| what |")]
