"""Limits of user code: what takes too much is ended with its own reason, and nothing is left. Real processes."""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trainshed.config import Settings
from trainshed.domain.jobs.failure import Failure
from trainshed.domain.jobs.failure_text import diagnose, error_message
from trainshed.engines.base import Replica
from trainshed.engines.local.limits import CGROUPS, WATCHED, UserCodeLimits, find_limits
from trainshed.engines.local.sandbox import Sandbox
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.cells import SYSTEM_PYTHON, USER, Cellblock, cellblock
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.stamps import processes_of
from trainshed.testing.workloads import hogs
from trainshed.testing.workloads.submitter import Submitter

IS_ROOT = os.geteuid() == 0
MB = 1_000_000
SETTINGS = Settings(
    memory_limit_gb=0.1, process_limit=40, open_file_limit=100, file_size_limit_gb=0.005, disk_limit_gb=0.05
)
WAYS = [
    pytest.param((0, CGROUPS), id="root-cgroups", marks=pytest.mark.skipif(not IS_ROOT, reason="needs root")),
    pytest.param((0, WATCHED), id="root-watched", marks=pytest.mark.skipif(not IS_ROOT, reason="needs root")),
    pytest.param((USER if IS_ROOT else os.geteuid(), WATCHED), id="user-watched"),
]


class LimitedBlock:
    """Attempts with small limits, at one of their levels."""

    def __init__(self, block: Cellblock, level: str) -> None:
        self.block = block
        found = find_limits(block.home, SETTINGS, 1 << 34)
        if level == CGROUPS and found.level != CGROUPS:
            pytest.skip(f"here are no control groups: {found.reason}")
        self.limits = found if level == CGROUPS else replace(found, level=WATCHED, folders={})

    def fail(self, name: str, code: str, level: str = "full", limits: UserCodeLimits | None = None) -> Failure:
        """Run a trainer that fails. Returns why."""
        spec = self.block.spec(name, code)
        sandbox = Sandbox(home=self.block.home, level=self.block.level(level), limits=limits or self.limits)
        self.block.start(spec, level, sandbox=sandbox)
        ended = self.block.end(spec)
        assert ended["outcome"] == "FAILED", ended
        restarted = [event for event in self.block.events(spec) if "restarted" in event["event"]]
        assert restarted == [], "what the code itself did is no loss"
        assert self.groups() == []
        return Failure.parse(ended["failure"])

    def groups(self) -> list[Path]:
        return [path for folder in self.limits.folders.values() for path in Path(folder).glob("*") if path.is_dir()]


@pytest.fixture(params=WAYS)
def limited(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LimitedBlock]:
    user, level = request.param
    if user and IS_ROOT and not SYSTEM_PYTHON.exists():
        pytest.skip("an ordinary user has no Python here")
    with cellblock(tmp_path / "block", user=user if IS_ROOT else 0) as block:
        yield LimitedBlock(block, level)


@pytest.mark.fault("F29")
@pytest.mark.parametrize("code", [hogs.MEMORY, hogs.MEMORY_OF_A_CHILD])
def test_a_memory_hog_fails_with_what_it_had(limited: LimitedBlock, code: str) -> None:
    failure = limited.fail("hog", code)
    assert failure.cause == "out_of_memory"
    assert failure.replica == "master-replica-0"
    assert failure.facts["limit"] == 100 * MB
    used = failure.facts["used"]
    assert isinstance(used, int)
    assert used > 90 * MB
    assert f"out of memory: {used / MB:.3g} of 100 MB" in error_message(failure, "hog")
    assert "memory_limit_gb" in diagnose(failure).remedy


@pytest.mark.fault("F28")
@pytest.mark.parametrize("code", [hogs.FORK_BOMB, hogs.THREADS])
def test_a_fork_bomb_fails_with_its_number(limited: LimitedBlock, code: str) -> None:
    failure = limited.fail("bomb", code)
    assert (failure.cause, failure.facts["limit"]) == ("too_many_processes", 40)
    assert "too many processes: 40 of 40" in diagnose(failure).summary


def test_a_descriptor_hog_fails_with_its_number(limited: LimitedBlock) -> None:
    failure = limited.fail("descriptors", hogs.DESCRIPTORS)
    assert (failure.cause, failure.facts["limit"]) == ("too_many_open_files", 100)


def test_a_disk_filler_fails_at_the_size_of_a_file(limited: LimitedBlock) -> None:
    failure = limited.fail("filler", hogs.DISK)
    assert (failure.cause, failure.facts["limit"]) == ("file_too_large", 5 * MB)
    assert "file too large: the limit is 5 MB" in diagnose(failure).summary


@pytest.mark.parametrize("code", [hogs.MANY_FILES, hogs.REMOVED_FILES, hogs.HOME_AND_TEMPORARY_FILES])
def test_a_disk_filler_with_many_files_fails_at_its_sum(limited: LimitedBlock, code: str) -> None:
    failure = limited.fail("filler", code)
    assert (failure.cause, failure.facts["limit"]) == ("disk_limit", 50 * MB), failure
    assert isinstance(failure.facts["used"], int)
    assert failure.facts["used"] > 50 * MB
    assert "too much on the disk: 5" in diagnose(failure).summary
    assert "disk_limit_gb" in diagnose(failure).remedy


def test_files_in_shared_memory_count_as_memory(limited: LimitedBlock) -> None:
    assert limited.fail("shm", hogs.SHARED_MEMORY).cause == "out_of_memory"


def test_a_log_flood_is_cut_and_the_job_ends_by_itself(limited: LimitedBlock) -> None:
    failure = limited.fail("flood", hogs.LOG)
    assert failure.output.endswith("the flood is over")
    log = limited.block.home.jobs / "p" / "flood" / "1" / "log.jsonl"
    assert log.stat().st_size < 12 << 20, "the flood has 20 MB, and a log 8"


def test_below_the_full_level_processes_are_counted_by_scans(limited: LimitedBlock) -> None:
    if limited.limits.level == CGROUPS:
        pytest.skip("the kernel counts")
    slow_bomb = hogs.FORK_BOMB.replace("while True:", "while not time.sleep(0.01):")
    failure = limited.fail("bomb", slow_bomb, "landlock", replace(limited.limits, memory_bytes=1000 * MB))
    assert (failure.cause, failure.facts.get("limit")) == ("too_many_processes", 40), failure


WORKER = Replica(name="worker-replica-0", type="worker", index=0, primary=False)


def test_a_worker_out_of_memory_ends_the_gang_at_once(limited: LimitedBlock) -> None:
    code = (
        f"import os, time\nif os.environ['TRAINSHED_REPLICA'].startswith('master'):\n    time.sleep(600)\n{hogs.MEMORY}"
    )
    spec = limited.block.spec("gang", code)
    spec = replace(spec, replicas=(*spec.replicas, WORKER))
    limited.block.start(
        spec, "full", sandbox=Sandbox(home=limited.block.home, level=limited.block.level("full"), limits=limited.limits)
    )
    failure = limited.block.end(spec)["failure"]
    assert (failure["cause"], failure.get("replica")) == ("out_of_memory", "worker-replica-0"), failure["message"]
    assert limited.groups() == []


def test_no_control_group_outlives_a_killed_supervisor(limited: LimitedBlock) -> None:
    if limited.limits.level != CGROUPS:
        pytest.skip("there are no groups")
    block = limited.block
    spec = block.spec("killed", "import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    sandbox = Sandbox(home=block.home, level=block.level("full"), limits=limited.limits)
    block.start(spec, "full", sandbox=sandbox)
    eventually(lambda: block.lines(spec), lambda lines: "ready" in lines)
    assert len(limited.groups()) == 3
    os.kill(block.events(spec)[0]["pid"], signal.SIGKILL)
    eventually(limited.groups, lambda groups: not groups)


def test_groups_are_swept_when_reaper_and_supervisor_were_killed(limited: LimitedBlock) -> None:
    if limited.limits.level != CGROUPS:
        pytest.skip("there are no groups")
    block = limited.block
    spec = block.spec("both", "import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    sandbox = Sandbox(home=block.home, level=block.level("full"), limits=limited.limits)
    block.start(spec, "full", sandbox=sandbox)
    eventually(lambda: block.lines(spec), lambda lines: "ready" in lines)
    sandbox.sweep()
    assert len(limited.groups()) == 3, "those of the living stay"
    for name in ("reaper", "pid"):
        os.kill(block.events(spec)[0][name], signal.SIGKILL)

    def left() -> list[Path]:
        sandbox.sweep()
        return limited.groups()

    eventually(left, lambda groups: not groups)


#: Forks without end, and each process that it has goes on with it. When a file is there, it says why it can't.
ENDLESS_BOMB = """
import os, sys, time
first, refused = os.getpid(), None
while not os.path.exists(sys.argv[1]):
    try:
        os.fork()
    except OSError as exc:
        if refused is None and os.getpid() == first:
            print("refused", flush=True)
        refused = exc
        time.sleep(0.002)
if os.getpid() == first:
    raise refused
"""
CALLS = 20
MAX_RATIO = 20  #: of the time of a call beside the bomb to one before; each of its processes has as much to do


@pytest.mark.fault("F28")
def test_the_api_goes_on_beside_a_fork_bomb_and_the_job_says_what_it_was(tmp_path: Path) -> None:
    limited = {"process_limit": 40, "sandbox": "auto", "sandbox_paths": f"{tmp_path},{sys.prefix},{sys.base_prefix}"}
    server = RunningServer(tmp_path / "home", limited).start()
    try:
        jobs = Submitter(server, "bombs", tmp_path / "trainers")
        enough = tmp_path / "enough"

        def median_s() -> float:
            durations = []
            for _ in range(CALLS):
                started = time.perf_counter()
                jobs.get("bomb")  # anything but 200 raises
                durations.append(time.perf_counter() - started)
            return statistics.median(durations)

        jobs.submit("bomb", ENDLESS_BOMB, args=[str(enough)])
        quiet_s = median_s()
        eventually(lambda: jobs.lines("bomb"), lambda lines: "refused" in lines)
        busy_s = min(median_s() for _ in range(3))
        assert jobs.get("bomb")["state"] == "RUNNING"
        assert busy_s < MAX_RATIO * quiet_s
        enough.touch()
        message = jobs.wait("bomb", {"FAILED"})["errorMessage"]
        assert "too many processes: 40 of 40" in message
        eventually(lambda: processes_of(server.home / "jobs"), lambda left: not left)
    finally:
        server.close()
