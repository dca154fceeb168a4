"""Figures of long runs with faults: added up in docs/reliability.json and shown in docs/reliability.md.

A row keeps the digest of the code that its runs tested. Runs of other code start the row anew, so its figures are of
one state of the code. `python -m trainshed.testing.reliability.figures` writes the table of the page anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainshed.node.files import write_file
from trainshed.testing.reliability.rows import PAGE, ROOT, with_section

SOURCE = ROOT / "src" / "trainshed"

#: What runs count, in the order of the table's columns.
COUNTS = {
    "lost": "acknowledged and not there afterwards, or not whole",
    "doubled": "done twice: rows, launches of one attempt, log lines",
    "5xx": "responses that are the server's own fault; 503 and 507 are refusals and do not count",
    "survivors": "processes or files that should have been gone",
}
#: Parts of the source that are not under test.
_NOT_UNDER_TEST = ("testing", "console")
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
    digest = code_digest()
    with _locked(page.parent):
        figures = read(page)
        before = figures.get(key, {})
        if before.get("digest") != digest:
            before = {}
        sums = {name: before.get("counts", {}).get(name, 0) + count for name, count in counts.items()}
        figures[key] = {
            "runs": before.get("runs", 0) + runs,
            "hours": round(before.get("hours", 0.0) + hours, 4),
            "counts": {**before.get("counts", {}), **sums},
            "commit": commit(),
            "date": datetime.now(UTC).date().isoformat(),
            "digest": digest,
        }
        _write(page, figures)
        added: dict[str, Any] = figures[key]
        return added


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


def code_digest(source: Path = SOURCE) -> str:
    """A digest of the code under test: all files of the program but test code and the console."""
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        if parts[0] in _NOT_UNDER_TEST or "__pycache__" in parts or not path.is_file():
            continue
        content = path.read_bytes()
        digest.update(f"{'/'.join(parts)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


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
    with _locked(PAGE.parent):
        _write(PAGE, read())
