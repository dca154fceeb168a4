"""Fault rows: those of docs/reliability.md, those that tests show, and those that are open.

A test names the rows that it shows: `@pytest.mark.fault("F19")`. `python -m trainshed.testing.reliability.rows` writes
the open rows into the page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
PAGE = ROOT / "docs" / "reliability.md"
TESTS = ROOT / "tests"
MARKER = "fault"

#: Rows that no test shows as a whole yet, each with what is missing.
OPEN_ROWS: dict[str, str] = {}

_ROW = re.compile(r"^\| (F\d\d) \| ([^|\n]+) \| ([^|\n]+) \|$", re.MULTILINE)


def rows_of(page: str) -> dict[str, tuple[str, str]]:
    """Return the fault and what holds, by the id of the row. Raises `ValueError` if an id is there twice."""
    rows: dict[str, tuple[str, str]] = {}
    for row, fault, holds in _ROW.findall(page):
        if row in rows:
            raise ValueError(f"The page has {row} twice.")
        rows[row] = (fault, holds)
    return rows


def shown_rows(tests: Path) -> dict[str, list[str]]:
    """Return the places of the markers below a folder of tests, as `file:line`, by the id of the row."""
    places: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("*.py")):
        for row, line in marked_rows(path.read_text(encoding="utf-8"), path.name):
            places.setdefault(row, []).append(f"{path.relative_to(tests).as_posix()}:{line}")
    return places


def marked_rows(source: str, name: str = "test") -> Iterator[tuple[str, int]]:
    """Yield row and line of each marker in a module. Raises `ValueError` if a row is not a plain string."""
    for node in ast.walk(ast.parse(source, name)):
        if not (isinstance(node, ast.Call) and _is_marker(node.func)):
            continue
        if not node.args or node.keywords:
            raise ValueError(f"{name}:{node.lineno}: the marker takes ids of rows.")
        for argument in node.args:
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                raise ValueError(f"{name}:{node.lineno}: the id of a row is a plain string.")
            yield argument.value, node.lineno


def _is_marker(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == MARKER
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "mark"
    )


def between(page: str, name: str) -> str:
    """Return what a page has between the markers of a section. Raises `ValueError` without them."""
    begins, ends = _markers(name)
    _, found, rest = page.partition(begins)
    inside, closed, _ = rest.partition(ends)
    if not found or not closed:
        raise ValueError(f"The page has no section {name}.")
    return inside.strip("\n")


def with_section(page: str, name: str, text: str) -> str:
    """Return the page with another text between the markers of a section."""
    begins, ends = _markers(name)
    between(page, name)
    before, _, rest = page.partition(begins)
    return f"{before}{begins}\n\n{text}\n\n{ends}{rest.partition(ends)[2]}"


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- {name} begins -->", f"<!-- {name} ends -->"


def open_table(open_rows: dict[str, str]) -> str:
    """The open rows as a table, or a sentence if there is none."""
    if not open_rows:
        return "None: every row has a test that shows it."
    lines = ["| row | what is missing |", "|---|---|"]
    return "\n".join([*lines, *(f"| {row} | {missing} |" for row, missing in sorted(open_rows.items()))])


if __name__ == "__main__":
    PAGE.write_text(with_section(PAGE.read_text(), "open", open_table(OPEN_ROWS)))
