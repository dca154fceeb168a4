"""Figures of conformance runs: added up in docs/conformance.json, and shown in docs/conformance.md."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from trainshed.node.files import write_file
from trainshed.testing.conformance.suites import NAMES, OUTCOMES, Case, Installed, Suite, load
from trainshed.testing.reliability.figures import commit
from trainshed.testing.reliability.rows import ROOT, with_section

PAGE = ROOT / "docs" / "conformance.md"
NOTHING = "Nothing is recorded yet: `make conformance` runs the suites and writes this table."
Figures = dict[str, dict[str, Any]]


def source_tree() -> str:
    """The digest of the source that is checked out. Empty if it has changes, or without Git."""
    try:
        if commit().endswith("+"):
            return ""
        command = ["git", "-C", str(ROOT), "rev-parse", "HEAD:src/trainshed"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def key(suite: str, target: str) -> str:
    return f"{suite} {target}"


def record(suite: Suite, target: str, installed: Installed, cases: Sequence[Case]) -> None:
    """Add a run. Its own figures replace those of the run before; the sums go on."""
    figures = read()
    before = figures.get(key(suite.name, target), {})
    counts = Counter(case.outcome for case in cases)
    sums = before.get("sums", {})
    figures[key(suite.name, target)] = {
        "runs": before.get("runs", 0) + 1,
        "sums": {outcome: sums.get(outcome, 0) + counts[outcome] for outcome in OUTCOMES},
        "last": {outcome: counts[outcome] for outcome in OUTCOMES},
        "failures": {case.name: case.message for case in cases if case.outcome == "failed"},
        "versions": dict(installed.versions),
        "commit": commit(),
        "tree": source_tree(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    write(figures)


def recorded(suite: Suite, target: str) -> bool:
    """Tell whether the last run was of the source that is checked out."""
    tree = source_tree()
    return bool(tree) and read().get(key(suite.name, target), {}).get("tree") == tree


def read() -> Figures:
    """All figures, by suite and target. Empty if nothing was recorded yet."""
    try:
        figures: Figures = json.loads(PAGE.with_suffix(".json").read_bytes())
    except FileNotFoundError:
        return {}
    return figures


def write(figures: Figures) -> None:
    """Write the figures, and the page's two tables."""
    text = json.dumps(figures, indent=2, sort_keys=True) + "\n"
    write_file(PAGE.with_suffix(".json"), text.encode(), 0o644)
    shown = with_section(PAGE.read_text(), "results", table(figures))
    write_file(PAGE, with_section(shown, "failures", failures(figures)).encode(), 0o644)


def table(figures: Figures) -> str:
    """The last run of each suite at each target, and the sums of all runs."""
    lines = [
        "| suite | versions | server | passed | failed | skipped | runs | passed, failed in all | commit | date |",
        "|---|---|---|--:|--:|--:|--:|--:|---|---|",
    ]
    for suite, target, figure in _in_order(figures):
        versions = ", ".join(f"{name} {version}" for name, version in figure["versions"].items())
        last = " | ".join(f"{figure['last'][outcome]:,}" for outcome in OUTCOMES)
        sums = f"{figure['sums']['passed']:,}, {figure['sums']['failed']:,}"
        where = f"`{figure['commit']}` | {figure['date']}"
        lines.append(f"| {suite.title} | {versions} | {target} | {last} | {figure['runs']:,} | {sums} | {where} |")
    return "\n".join(lines) if len(lines) > 2 else NOTHING


def failures(figures: Figures) -> str:
    """Every failure of the last runs at this server, with its reason."""
    lines = ["| suite | test | why |", "|---|---|---|"]
    for suite, target, figure in _in_order(figures):
        if target != "trainshed":
            continue
        lines += [
            f"| {suite.name} | `{case}` | {suite.reason(case) or 'not explained yet'} |" for case in figure["failures"]
        ]
    return "\n".join(lines) if len(lines) > 2 else "None."


def _in_order(figures: Mapping[str, Any]) -> Iterator[tuple[Suite, str, dict[str, Any]]]:
    for suite in map(load, NAMES):
        for target in suite.targets:
            if (figure := figures.get(key(suite.name, target))) is not None:
                yield suite, target, figure
