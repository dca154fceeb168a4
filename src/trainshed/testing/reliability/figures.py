"""Figures of long runs with faults: added up in docs/reliability.json and shown in docs/reliability.md.

A row keeps the digest of the code that its runs tested (`code_under_test.py` has what that is). Runs of other code
start the row anew, so its figures are of one state of the code. `python -m trainshed.testing.reliability.figures`
writes the table of the page anew, and adds the figures of other checkouts: files like docs/reliability.json.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainshed.node.files import write_file
from trainshed.testing.reliability.code_under_test import code_digest
from trainshed.testing.reliability.rows import PAGE, ROOT, with_section

#: What runs count, in the order of the table's columns.
COUNTS = {
    "lost": "acknowledged and not there afterwards, or not whole",
    "doubled": "done twice: rows, launches of one attempt, log lines",
    "5xx": "responses that are the server's own fault; 503 and 507 are refusals and do not count",
    "survivors": "processes or files that should have been gone",
}
_KEY = re.compile(r"F\d\d(?: [^|\n]+)?")


def record(
    row: str, *, runs: int, counts: Mapping[str, int], hours: float, case: str = "", page: Path = PAGE
) -> dict[str, Any]:
    """Add the figures of a run to a row. Returns the sums.

    `counts` has some of `COUNTS`; what is left out was not measured. `case` tells apart runs of one row that are
    counted on their own, such as `PostgreSQL`. A soak test calls this after each round, so the rounds of an interrupted
    run count. Safe for threads and processes.
    """
    key = f"{row} {case}".strip()
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no row.")
    if unknown := set(counts) - set(COUNTS):
        raise ValueError(f"Unknown counts: {', '.join(sorted(unknown))}.")
    if runs < 0 or hours < 0 or any(count < 0 for count in counts.values()):
        raise ValueError("Figures only grow.")
    figure = {
        "runs": runs,
        "hours": round(hours, 4),
        "counts": dict(counts),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "digest": code_digest(key),
    }
    return _add(key, figure, page)


def _add(key: str, figure: dict[str, Any], page: Path) -> dict[str, Any]:
    """Add a figure to its row, or let it replace the row if that is of other code. Returns the sums."""
    with _locked(page.parent):
        figures = read(page)
        before = figures.get(key, {})
        if before.get("digest") == figure["digest"]:
            counts = before["counts"]
            added = {name: counts.get(name, 0) + count for name, count in figure["counts"].items()}
            figure = {
                **figure,
                "runs": before["runs"] + figure["runs"],
                "hours": round(before["hours"] + figure["hours"], 4),
                "counts": {**counts, **added},
            }
        figures[key] = figure
        _write(page, figures)
        return figure


def add_file(path: Path, *, page: Path = PAGE) -> list[str]:
    """Add the figures of a checkout of the same code. Returns the rows that are of other code and were left out."""
    figures: dict[str, Any] = json.loads(path.read_bytes())
    other = [key for key, figure in figures.items() if figure["digest"] != code_digest(key)]
    for key in sorted(set(figures) - set(other)):
        _add(key, figures[key], page)
    return other


def read(page: Path = PAGE) -> dict[str, Any]:
    """All figures, by row and case. Empty if nothing was recorded yet."""
    try:
        figures: dict[str, Any] = json.loads(page.with_suffix(".json").read_bytes())
    except FileNotFoundError:
        return {}
    return figures


def _write(page: Path, figures: dict[str, Any]) -> None:
    text = json.dumps(figures, indent=2, sort_keys=True) + "\n"
    write_file(page.with_suffix(".json"), text.encode(), 0o644)
    write_file(page, with_section(page.read_text(), "figures", table(figures)).encode(), 0o644)


def table(figures: Mapping[str, Any]) -> str:
    """The figures as a table, or a sentence if there are none."""
    if not figures:
        return "No long run is recorded yet."
    lines = [
        f"| row | runs | hours | {' | '.join(COUNTS)} | commit | date |",
        f"|---|--:|--:|{'--:|' * len(COUNTS)}---|---|",
    ]
    for key, figure in sorted(figures.items()):
        counts = (f"{figure['counts'][name]:,}" if name in figure["counts"] else "–" for name in COUNTS)
        amounts = f"{figure['runs']:,} | {figure['hours']:.2f} | {' | '.join(counts)}"
        lines.append(f"| {key} | {amounts} | `{figure['commit']}` | {figure['date']} |")
    return "\n".join(lines)


def commit(root: Path = ROOT) -> str:
    """The commit that is checked out, with a `+` if its source was changed. Returns `unknown` without Git."""
    try:
        head = _git(root, "rev-parse", "--short=10", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", "src/trainshed")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder. Blocks while another process or thread has it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for key in add_file(Path(name)):
            sys.stderr.write(f"{key} of {name} is of other code, so it is left out.\n")
    with _locked(PAGE.parent):
        _write(PAGE, read())
