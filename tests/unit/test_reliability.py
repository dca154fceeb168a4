"""Every fault row of docs/reliability.md has a test or is open, and the page shows what was recorded."""

from __future__ import annotations

import re

import pytest

from trainshed.testing.reliability import figures
from trainshed.testing.reliability.rows import (
    OPEN_ROWS,
    PAGE,
    TESTS,
    between,
    marked_rows,
    open_table,
    rows_of,
    shown_rows,
    with_section,
)

TEXT = PAGE.read_text()
ROWS = rows_of(TEXT)


def test_the_page_has_every_row_once_and_in_order() -> None:
    assert list(ROWS) == [f"F{number:02}" for number in range(1, 76)]
    assert [row for row, cells in ROWS.items() if not all(cell.endswith(".") for cell in cells)] == []
    assert re.findall(r"^\| (I\d+) \|", TEXT, re.MULTILINE) == [f"I{number}" for number in range(1, 13)]


def test_every_row_has_a_test_or_is_open() -> None:
    shown = shown_rows(TESTS)
    assert {row: places for row, places in shown.items() if row not in ROWS} == {}, "rows that the page does not have"
    assert sorted(set(ROWS) - set(shown) - set(OPEN_ROWS)) == [], "rows without a test"
    assert {row: shown[row] for row in OPEN_ROWS if row in shown} == {}, (
        "rows that a test shows, and are listed as open"
    )
    assert sorted(set(OPEN_ROWS) - set(ROWS)) == [], "open rows that the page does not have"


def test_the_page_shows_the_open_rows() -> None:
    expected = open_table(OPEN_ROWS)
    assert between(TEXT, "open") == expected, "run: python -m trainshed.testing.reliability.rows"


def test_the_page_shows_the_recorded_figures() -> None:
    recorded = figures.read()
    expected = figures.table(recorded)
    assert between(TEXT, "figures") == expected, "run: python -m trainshed.testing.reliability.figures"
    assert [key for key in recorded if key[:3] not in ROWS] == []
    assert [name for name, what in figures.COUNTS.items() if f"| {name} | {what} |" not in TEXT] == []


def test_markers_are_found_wherever_they_stand() -> None:
    source = """
pytestmark = pytest.mark.fault("F01")
@pytest.mark.fault("F02", "F03")
def test_one(): ...
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.fault("F04"))])
class TestTwo:
    @pytest.mark.fault("F05")
    async def test_three(self): ...
@fault("F06")
@pytest.mark.soak
def test_four(): ...
"""
    assert sorted(row for row, _ in marked_rows(source)) == ["F01", "F02", "F03", "F04", "F05"]


@pytest.mark.parametrize("written", ["fault()", "fault(ROW)", "fault(1)", "fault(row='F01')"])
def test_a_marker_without_a_plain_row_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="row"):
        list(marked_rows(f"mark = pytest.mark.{written}"))


def test_a_row_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="F01 twice"):
        rows_of("| F01 | A. | B. |\n| F01 | A. | B. |\n")


def test_a_section_is_replaced_and_must_be_there() -> None:
    page = with_section("a\n<!-- x begins -->\nold\n<!-- x ends -->\nb\n", "x", "new")
    assert page == "a\n<!-- x begins -->\n\nnew\n\n<!-- x ends -->\nb\n"
    assert between(page, "x") == "new"
    with pytest.raises(ValueError, match="no section y"):
        with_section(page, "y", "new")


def test_a_line_of_figures_is_no_row() -> None:
    assert rows_of("| F01 | A. | B. |\n| F01 | 30 | 0.02 | 0 | 0 | 0 | 0 | `f598080328` | 2026-11-18 |\n") == {
        "F01": ("A.", "B.")
    }
