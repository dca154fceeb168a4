"""A server, its search process, supervisors and trials that are killed at random moments of searches."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.testing.reliability.reports import FaultReport, record_report
from trainshed.testing.reliability.searches.kills import run, run_batch, started

SOAK_KILLS = 1000
QUICK_KILLS = 6


@pytest.mark.fault("F73")
def test_no_trial_is_lost_or_repeated_by_kills(tmp_path: Path) -> None:
    server = started(tmp_path)
    try:
        report = run_batch(server, tmp_path, seed=1, batch=0, rounds=QUICK_KILLS)
        assert [str(each) for each in report.violations] == []
        assert report.rounds > QUICK_KILLS // 2, "most kills found something to kill"
    finally:
        server.kill()
        server.end_jobs()


@pytest.mark.soak  # six kills are in every run
@pytest.mark.timeout(0)
@pytest.mark.fault("F73")
def test_no_trial_is_lost_or_repeated_by_a_thousand_kills(tmp_path: Path) -> None:
    reports: list[FaultReport] = []

    def tell(report: FaultReport) -> None:
        record_report("F73", report)
        reports.append(report)

    assert [str(each) for each in run(SOAK_KILLS, 1, tmp_path, tell)] == []
    assert sum(report.rounds for report in reports) > SOAK_KILLS // 2
