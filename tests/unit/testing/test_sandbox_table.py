"""The table of the probe: it has each way, and says what the tests ask for."""

from __future__ import annotations

import json

import pytest

from trainshed.testing.reliability.sandbox_table import FOUND, PAGE, columns, page
from trainshed.testing.workloads import probe

WAYS: dict[str, list[str]] = json.loads(FOUND.read_text())["ways"]


def test_the_page_is_the_table_of_what_was_found() -> None:
    assert PAGE.read_text() == page(json.loads(FOUND.read_text())), (
        "Write it anew: python -m trainshed.testing.reliability.sandbox_table page > docs/sandbox-probe.md"
    )


def test_it_has_each_way_of_the_probe() -> None:
    assert list(WAYS) == list(probe.WAYS), (
        "Run the probe again, as root: python -m trainshed.testing.reliability.sandbox_table measure"
    )
    assert len(WAYS) >= 125


@pytest.mark.parametrize("column", columns())
def test_no_way_leads_out_of_the_full_level_and_without_a_sandbox_they_do(column: str) -> None:
    out = {way for way, succeeded in WAYS.items() if column in succeeded}
    if column.startswith("full"):
        assert out == set()
    elif column.startswith("none"):
        lacking = probe.MACHINE_WAYS | (probe.ROOT_WAYS if column.endswith("user") else set())
        assert set(WAYS) - out <= lacking
