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


def publish(bench: str, rows: Sequence[Row]) -> None:
    """Print the table and put it in the page."""
    table = "\n".join(
        [
            f"Measured on {datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, Python {platform.python_version()}.",
            "",
            "| what | measured | against | ratio | aim |",
            "|---|---|---|---|---|",
            *(f"| {r.what} | {r.value} | {r.against} | {r.ratio} | {r.aim} |" for r in rows),
        ]
    )
    sys.stdout.write(f"{table}\n")
    begin, end = f"<!-- {bench} begins -->", f"<!-- {bench} ends -->"
    page = PAGE.read_text()
    pattern = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"{PAGE} has no place for {bench}: add the lines {begin} and {end}.")
    PAGE.write_text(pattern.sub(lambda _: f"{begin}\n{table}\n{end}", page))
