"""A server that is killed at random moments under load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.cache import link_runtimes
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.kills import run, run_batch
from trainshed.testing.reliability.reports import FaultReport, record_report
from trainshed.testing.reliability.verdict import GRACE_S

SOAK_KILLS = 1000


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[RunningServer]:
    running = RunningServer(link_runtimes(tmp_path / "home"), {"grace_s": GRACE_S}).start()
    yield running
    running.kill()
    running.end_jobs()


@pytest.mark.fault("F02")
def test_nothing_is_lost_or_done_twice_by_kills_under_load(victim: RunningServer, tmp_path: Path) -> None:
    report = run_batch(victim, tmp_path, seed=1, batch=0, rounds=2, max_life_s=1.0)
    assert [str(each) for each in report.violations] == []
    assert report.operations > 0


@pytest.mark.soak  # two kills are in every run
@pytest.mark.timeout(0)
@pytest.mark.fault("F02")
def test_nothing_is_lost_or_done_twice_by_a_thousand_kills(tmp_path: Path) -> None:
    reports: list[FaultReport] = []

    def tell(report: FaultReport) -> None:
        record_report("F02", report)
        reports.append(report)

    violations = run(SOAK_KILLS, 1, tmp_path, tell)
    assert [str(each) for each in violations] == []
    assert sum(report.rounds for report in reports) == SOAK_KILLS
