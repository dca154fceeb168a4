"""A replica that the kernel kills for its memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import Submitter

LIMIT_BYTES = 64 << 20
_CGROUPS = Path("/sys/fs/cgroup")

#: Moves to the group, tells so, and takes more memory than the group has. The worker does nothing but wait.
HUNGRY = """
import json, os, sys, time
if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "worker":
    while True:
        print("the worker is there", flush=True)
        time.sleep(0.1)
with open(sys.argv[1], "w") as group:
    group.write(str(os.getpid()))
taken = []
while True:
    taken.append(b"x" * (1 << 20))
"""


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group whose processes share little memory. Skips the test where none can be made."""
    is_old = (_CGROUPS / "memory").is_dir()
    folder = (_CGROUPS / "memory" if is_old else _CGROUPS) / f"trainshed-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.limit_in_bytes" if is_old else "memory.max")).write_text(str(LIMIT_BYTES))
    except OSError as exc:
        pytest.skip(f"no control group can be made here: {exc}")
    yield folder
    eventually(folder.rmdir, lambda _: True, retry_on=OSError)  # until its last process is gone


@pytest.fixture
def open_server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server without a sandbox: its trainers can move to a control group."""
    server = RunningServer(tmp_path / "home").start()
    yield server
    server.close()


@pytest.mark.fault("F29")
def test_the_replica_dies_alone_and_the_job_says_that_it_was_memory(
    open_server: RunningServer, memory_group: Path, tmp_path: Path
) -> None:
    jobs = Submitter(open_server, "hungry", tmp_path)
    gang = {"scaleTier": "CUSTOM", "masterType": "n1-standard-4", "workerType": "n1-standard-4", "workerCount": "1"}
    jobs.submit("hungry", HUNGRY, args=[str(memory_group / "cgroup.procs")], **gang)
    failed = jobs.wait("hungry", {"FAILED"})
    assert "The replica master 0 ran out-of-memory" in failed["errorMessage"]
    # the server answers, and everything else that it runs is alive
    jobs.submit("next", "print('still here')")
    jobs.wait("next", {"SUCCEEDED"})


@pytest.mark.fault("F29")
def test_the_kernel_would_rather_kill_a_replica_than_the_server(server: RunningServer, tmp_path: Path) -> None:
    jobs = Submitter(server, "oom-order", tmp_path)
    jobs.submit("order", "print('score', open('/proc/self/oom_score_adj').read())")
    jobs.wait("order", {"SUCCEEDED"})
    [score] = [int(line.split()[1]) for line in jobs.lines("order") if line.startswith("score ")]
    own = int(Path(f"/proc/{server.pid}/oom_score_adj").read_text())
    assert score > own
