"""Runs the tests of a suite with the pytest of its own environment, and reads what came of them."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainshed.testing.conformance.suites import Case
from trainshed.testing.conformance.targets import Target

_MESSAGE_CHARACTERS = 300
#: exit statuses of pytest after which the report has all tests: all passed, some failed
_WHOLE = (0, 1)


def run_pytest(
    command: Sequence[str | Path],
    *,
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    shell_of: Target | None = None,
) -> list[Case]:
    """Run a command line of pytest in a folder, or there in the shell of a target.

    Raises `RuntimeError` if it did not run to the end.
    """
    report = folder / "report.xml"
    words = [*map(str, command), f"--junitxml={report}", "-o", "junit_family=xunit2"]
    if shell_of is not None:
        words = shell_of.in_shell(*words)
    output = folder / "output.txt"
    with open(output, "wb") as stream:
        done = subprocess.run(
            words, cwd=folder, env=dict(environment), stdout=stream, stderr=stream, timeout=timeout_s, check=False
        )
    if done.returncode not in _WHOLE or not report.exists():
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{output.read_text(errors='replace')[-3000:]}")
    return read_report(report.read_text())


def read_report(text: str) -> list[Case]:
    """Return the cases of a JUnit report. An error of a fixture is a failure of its test."""
    cases: dict[str, Case] = {}
    for element in ElementTree.fromstring(text).iter("testcase"):  # noqa: S314 - pytest wrote it just now
        case = _case(element)
        before = cases.get(case.name)
        if before is None or before.outcome == "passed":  # a test and the end of its fixture are two elements
            cases[case.name] = case
    return list(cases.values())


def _case(element: ElementTree.Element) -> Case:
    name = ".".join(filter(None, (element.get("classname"), element.get("name"))))
    for tag, outcome in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        if (found := element.find(tag)) is not None:
            lines = (found.get("message") or found.text or "").strip().splitlines()
            return Case(name, outcome, lines[0][:_MESSAGE_CHARACTERS] if lines else "")
    return Case(name, "passed")
