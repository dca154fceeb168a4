"""The wall clock jumps while jobs run: no time limit fires, no duration is negative, and lists keep their order."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from trainshed.testing.cache import link_runtimes
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.processes.wall_clock import WallClock
from trainshed.testing.workloads.submitter import Submitter

YEAR_S, HOUR_S = 365 * 24 * 3600, 3600

#: Arguments: a file that ends it. Prints the year and hour that it sees, which shows that the jump has reached it.
TRAINER = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    print("now", int(time.time()), flush=True)
    time.sleep(0.05)
"""


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    return WallClock(tmp_path)


@pytest.fixture
def timed_server(tmp_path: Path, clock: WallClock) -> Iterator[RunningServer]:
    running = RunningServer(
        link_runtimes(tmp_path / "home"),
        {"job_environment": ",".join(clock.environment)},
        environment=clock.environment,
    ).start()
    yield running
    running.kill()
    running.end_jobs()


def seen_by(jobs: Submitter, job: str) -> datetime:
    """The last time that a trainer printed."""
    lines = [line for line in jobs.lines(job) if line.startswith("now ")]
    return datetime.fromtimestamp(int(lines[-1].split()[1])) if lines else datetime.min


def time_of(body: dict[str, str], field: str) -> datetime:
    return datetime.fromisoformat(body[field])


@pytest.mark.fault("F09")
def test_a_clock_that_jumps_ends_nothing_and_mixes_up_nothing(
    timed_server: RunningServer, clock: WallClock, tmp_path: Path
) -> None:
    jobs = Submitter(timed_server, "clocks", tmp_path)
    ends = {name: tmp_path / f"{name}.end" for name in ("before", "ahead", "behind")}
    limit = {"scheduling": {"maxRunningTime": "3600s"}}

    jobs.submit("before", TRAINER, args=[str(ends["before"])], **limit)
    jobs.wait("before", {"RUNNING"})
    eventually(lambda: seen_by(jobs, "before"), lambda seen: seen != datetime.min)

    clock.jump(YEAR_S)  # more than any time limit
    begun = datetime.now()
    eventually(lambda: seen_by(jobs, "before"), lambda seen: seen > begun + timedelta(days=300))
    jobs.submit("ahead", TRAINER, args=[str(ends["ahead"])], **limit)
    jobs.wait("ahead", {"RUNNING"})
    assert jobs.get("before")["state"] == "RUNNING"

    clock.jump(-HOUR_S)
    eventually(lambda: seen_by(jobs, "ahead"), lambda seen: seen < begun)
    jobs.submit("behind", TRAINER, args=[str(ends["behind"])], **limit)
    jobs.wait("behind", {"RUNNING"})
    assert [jobs.get(name)["state"] for name in ends] == ["RUNNING"] * 3

    for end in ends.values():
        end.touch()
    done = {name: jobs.wait(name, {"SUCCEEDED"}) for name in ends}
    for body in done.values():
        assert time_of(body, "createTime") <= time_of(body, "startTime") <= time_of(body, "endTime")
    listed = timed_server.call("GET", "/v1/projects/clocks/jobs")["jobs"]
    assert [job["jobId"] for job in listed] == ["behind", "ahead", "before"]

    timed_server.kill()  # and the next server agrees
    timed_server.start()
    listed = timed_server.call("GET", "/v1/projects/clocks/jobs")["jobs"]
    assert {job["jobId"]: job for job in listed} == done
    assert [job["jobId"] for job in listed] == ["behind", "ahead", "before"]
