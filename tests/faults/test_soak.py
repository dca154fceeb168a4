"""A server that runs under load with faults, and is never restarted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.cache import link_runtimes
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.load import prepare
from trainshed.testing.reliability.reports import FaultReport, record_report
from trainshed.testing.reliability.soak.batches import Soak, run
from trainshed.testing.reliability.soak.faults import SoakFaults
from trainshed.testing.reliability.soak.leaks import HeldResources
from trainshed.testing.reliability.verdict import GRACE_S

SOAK_HOURS = 8.0


@pytest.fixture
def hardened(tmp_path: Path) -> Iterator[RunningServer]:
    running = RunningServer(link_runtimes(tmp_path / "home"), {"grace_s": GRACE_S}).start()
    yield running
    running.kill()
    running.end_jobs()


@pytest.mark.fault("F18")
def test_a_batch_of_faults_leaves_nothing_behind(hardened: RunningServer, tmp_path: Path) -> None:
    soak = Soak(hardened, tmp_path, seed=1, interval_s=0.2)
    report = soak.run_batch(0, faults=4)
    assert [str(each) for each in report.violations] == []
    assert report.operations > 0


@pytest.mark.soak  # one batch of four is in every run
@pytest.mark.timeout(0)
@pytest.mark.fault("F18")
def test_hours_with_a_fault_every_ten_seconds_leave_nothing_behind(tmp_path: Path) -> None:
    reports: list[FaultReport] = []

    def tell(report: FaultReport) -> None:
        record_report("F18", report)
        reports.append(report)

    violations = run(SOAK_HOURS, 1, tmp_path, tell)
    assert [str(each) for each in violations] == []
    assert sum(report.seconds for report in reports) >= SOAK_HOURS * 3600


@pytest.mark.soak  # each is in a long run, and some of them are in every one
def test_every_fault_strikes(hardened: RunningServer, tmp_path: Path) -> None:
    prepare(hardened, tmp_path)
    faults = SoakFaults(hardened, tmp_path / "stamps", random.Random(1), batch=0)
    for strike in faults.strikes.values():
        strike()
    faults.end_victims()
    states = [hardened.call("GET", f"/v1/projects/reliability/jobs/{job}")["state"] for job in faults.victims]
    assert states == ["FAILED", "SUCCEEDED"]  # without its supervisor; after a restart
    assert faults.errors == []


def test_what_has_grown_is_told() -> None:
    before = HeldResources(files=10, threads=10, memory_bytes=100 << 20, zombies=0)
    assert before.leaks(HeldResources(files=40, threads=40, memory_bytes=200 << 20, zombies=0)) == []
    after = HeldResources(files=100, threads=100, memory_bytes=300 << 20, zombies=1)
    assert [str(each).split(" ", 2)[2].split(",")[0] for each in before.leaks(after)] == [
        "files",
        "threads",
        "bytes of memory",
        "zombies",
    ]
