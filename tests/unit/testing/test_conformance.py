"""The runner of conformance suites: what is recorded, what the page shows, how reports are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainshed.testing.conformance import __main__ as runner
from trainshed.testing.conformance import figures
from trainshed.testing.conformance.pytest_results import read_report
from trainshed.testing.conformance.suites import NAMES, Case, Installed, Suite, load
from trainshed.testing.conformance.targets import TARGETS, Target
from trainshed.testing.reliability.rows import between

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_good"/>
<testcase classname="tests.test_a" name="test_bad"><failure message="assert 1 == 2&#10;more"/></testcase>
<testcase classname="tests.test_a" name="test_left_out"><skipped message="not here"/></testcase>
<testcase classname="tests.test_a" name="test_good_until_its_end"/>
<testcase classname="tests.test_a" name="test_good_until_its_end"><error message="the fixture failed"/></testcase>
</testsuite></testsuites>"""
PAGE = "<!-- results begins -->\n<!-- results ends -->\n<!-- failures begins -->\n<!-- failures ends -->\n"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    page = tmp_path / "conformance.md"
    page.write_text(PAGE)
    monkeypatch.setattr(figures, "PAGE", page)
    monkeypatch.setattr(figures, "source_tree", lambda: "tree of the test")
    return page


def suite_of(cases: list[Case]) -> Suite:
    return Suite(
        name=NAMES[0],
        title="A client",
        install=lambda folder: Installed(Path("python"), {"client": "1.0"}),
        run=lambda installed, target, folder: cases,
        reasons={r"tests\.test_a\..*": "the reason"},
    )


def test_a_report_of_pytest_has_one_case_for_each_test() -> None:
    assert read_report(REPORT) == [
        Case("tests.test_a.test_good", "passed"),
        Case("tests.test_a.test_bad", "failed", "assert 1 == 2"),
        Case("tests.test_a.test_left_out", "skipped", "not here"),
        Case("tests.test_a.test_good_until_its_end", "failed", "the fixture failed"),
    ]


def test_runs_are_added_up_and_the_last_one_is_shown(page: Path) -> None:
    installed = Installed(Path("python"), {"client": "1.0"})
    good, bad = Case("tests.test_a.x", "passed"), Case("tests.test_a.x", "failed", "no")
    suite = suite_of([])
    figures.record(suite, "trainshed", installed, [good, bad])
    figures.record(suite, "trainshed", installed, [good, good])
    figure = figures.read()[figures.key(suite.name, "trainshed")]
    assert figure["runs"] == 2
    assert figure["sums"] == {"passed": 3, "failed": 1, "skipped": 0}
    assert figure["last"] == {"passed": 2, "failed": 0, "skipped": 0}
    assert "| client 1.0 | trainshed | 2 | 0 | 0 | 2 | 3, 1 |" in page.read_text()
    assert figures.recorded(suite, "trainshed")
    assert not figures.recorded(suite, "another")


def test_what_is_recorded_for_this_source_is_not_run_again(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    @contextmanager
    def server(folder: Path) -> Iterator[Target]:
        yield Target(name="trainshed", url="http://127.0.0.1:1")

    def run(installed: Installed, target: Target, folder: Path) -> list[Case]:
        runs.append(target.url)
        if len(runs) == 1:
            raise RuntimeError("It ended before its end.")
        return [Case("tests.test_a.x", "passed")]

    suite = Suite(name=NAMES[0], title="A client", install=suite_of([]).install, run=run)
    for module in (runner, figures):
        monkeypatch.setattr(module, "load", lambda name: suite)
    monkeypatch.setattr(runner, "TARGETS", {"trainshed": server})
    call = CliRunner().invoke
    assert (first := call(runner.main, [NAMES[0]])).exit_code == 1
    assert "It ended before its end." in first.output
    assert figures.read() == {}, "a run that did not come to its end counts for nothing"
    assert "1 passed, 0 failed" in call(runner.main, [NAMES[0]]).output
    assert "already" in call(runner.main, [NAMES[0]]).output
    assert len(runs) == 2
    assert "1 passed" in call(runner.main, [NAMES[0], "--again"]).output


def test_the_page_shows_what_is_recorded_and_every_failure_has_a_reason() -> None:
    recorded = figures.read()
    text = figures.PAGE.read_text()
    assert between(text, "results") == figures.table(recorded), "run: python -m trainshed.testing.conformance"
    assert between(text, "failures") == figures.failures(recorded), "run: python -m trainshed.testing.conformance"
    suites = {suite.name: suite for suite in map(load, NAMES)}
    known = {figures.key(suite.name, target) for suite in suites.values() for target in suite.targets}
    assert set(recorded) <= known
    unexplained = [
        f"{key}: {case}"
        for key, figure in recorded.items()
        for case in figure["failures"]
        if key.endswith(" trainshed") and not suites[key.partition(" ")[0]].reason(case)
    ]
    assert unexplained == [], "say in `reasons` of the suite why they fail"


def test_each_suite_names_servers_that_there_are() -> None:
    assert {target for name in NAMES for target in load(name).targets} <= set(TARGETS)
