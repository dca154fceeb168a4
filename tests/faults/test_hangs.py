"""Replicas that hang, as real processes: who is reported, with which stack, and what restarts."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.attempts.journal import HangRecord, read_record
from trainshed.config import Home
from trainshed.domain.jobs.job import HangKind
from trainshed.domain.jobs.reconcile import AttemptPhase
from trainshed.domain.jobs.states import JobState
from trainshed.engines.base import AttemptSpec, Replica
from trainshed.engines.local.engine import LocalEngine
from trainshed.testing.contracts.engines import settle
from trainshed.testing.eventually import eventually
from trainshed.testing.workloads.job_logs import records

PYTHON = Path(sys.executable)
UV = Path(shutil.which("uv", path=f"{PYTHON.parent}") or shutil.which("uv") or "uv")
MASTER, FIRST, SECOND, PS = "master-replica-0", "worker-replica-0", "worker-replica-1", "ps-replica-0"
TIMEOUT_S = 4.0

#: Line 11 is where a replica waits for ever.
TRAINER = """
import os, threading, time
NAME, MARKS = os.environ["NAME"], os.environ["MARKS"]
COPY = len([name for name in os.listdir(MARKS) if name.startswith(NAME)])
open("%s/%s.%d" % (MARKS, NAME, COPY), "w").close()

def wait_for_ever():
    lock = threading.Lock()
    lock.acquire()
    print("step 6", flush=True)
    lock.acquire()

def wait_for_a_file(name):
    while not os.path.exists(MARKS + "/" + name):
        time.sleep(0.5)

def work():
    print("at work", flush=True)
    while True:
        sum(range(10000))
"""

Start = Callable[..., "Gang"]


class Gang:
    """A gang that runs."""

    def __init__(self, engine: LocalEngine, spec: AttemptSpec, marks: Path) -> None:
        self.engine = engine
        self.spec = spec
        self.marks = marks

    def hangs(self) -> list[HangRecord]:
        return list(read_record(self.spec.folder).hangs)

    def hanging(self) -> dict[str, HangRecord]:
        return {hang.name: hang for hang in self.hangs() if hang.ended_us is None}

    def pid(self, name: str) -> int:
        events = [event for event in records(self.spec.folder / "journal.jsonl") if event["event"] == "replica_started"]
        return int([event["pid"] for event in events if event["name"] == name][-1])

    def lines(self, replica: str) -> list[str]:
        return [line["m"] for line in records(self.spec.folder / "log.jsonl") if line["r"] == replica]

    def end(self) -> None:
        self.engine.cancel(self.spec.folder)
        settle(self.engine, self.spec.folder, AttemptPhase.ENDED)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    gangs: list[Gang] = []

    def begin(types: tuple[str, ...], code: str, **options: Any) -> Gang:
        (marks := tmp_path / "marks").mkdir()
        (tmp_path / "trainer.py").write_text(TRAINER + code)
        replicas: list[Replica] = []
        for kind in types:
            index = sum(each.type == kind for each in replicas)
            name = f"{kind}-replica-{index}"
            primary = kind == "master"
            replicas.append(Replica(name=name, type=kind, index=index, primary=primary, env={"NAME": name}))
        spec = AttemptSpec(
            project="p",
            job="j",
            attempt=1,
            folder=tmp_path / "attempt",
            python=PYTHON,
            module="trainer",
            args=(),
            packages=(),
            site=tmp_path / "site",
            replicas=tuple(replicas),
            env={"MARKS": str(marks), "PYTHONPATH": str(tmp_path)},
            grace_s=1.0,
            max_running_s=3600.0,
            log_limit_bytes=1 << 20,
            hang_timeout_s=TIMEOUT_S,
            **options,
        )
        gang = Gang(LocalEngine(Home(tmp_path / "home"), UV), spec, marks)
        gangs.append(gang)
        gang.engine.launch(spec)
        settle(gang.engine, spec.folder, AttemptPhase.RUNNING)
        return gang

    yield begin
    for gang in gangs:
        gang.end()


@pytest.mark.fault("F25")
def test_a_deadlock_and_a_stopped_process_are_reported_and_those_that_wait_or_work_are_not(start: Start) -> None:
    code = """
if NAME == "worker-replica-0":
    wait_for_ever()
elif NAME.startswith("ps"):
    wait_for_a_file("end")
else:
    work()
"""
    gang = start(("master", "worker", "worker", "ps"), code)
    eventually(lambda: gang.lines(SECOND), lambda lines: "at work" in lines)
    os.kill(gang.pid(SECOND), signal.SIGSTOP)
    eventually(gang.hanging, lambda hanging: {FIRST, SECOND} <= set(hanging), within_s=90)
    assert set(gang.hanging()) == {FIRST, SECOND}, "a busy master and a parameter server that waits do not hang"
    deadlock, stopped = gang.hanging()[FIRST], gang.hanging()[SECOND]
    assert (deadlock.kind, stopped.kind) == (HangKind.IDLE, HangKind.STOPPED)
    assert 'trainer.py", line 11, in wait_for_ever' in deadlock.stack
    assert "Thread MainThread (most recent call last):" in deadlock.stack
    assert deadlock.stack.rstrip().splitlines()[-1].endswith("line 11, in wait_for_ever")
    assert f"{FIRST} hangs after step 6: no step, no output and no CPU time for" in deadlock.sentence
    assert deadlock.working == (MASTER,)
    assert f"{SECOND} is stopped by a signal" in stopped.sentence
    assert "in work" in stopped.stack, "the stack of a stopped process is known too"
    assert stopped.pid == gang.pid(SECOND)
    assert deadlock.sentence in gang.lines("service")
    assert any("line 11, in wait_for_ever" in line for line in gang.lines(FIRST))

    os.kill(gang.pid(SECOND), signal.SIGCONT)
    eventually(lambda: set(gang.hanging()), lambda names: names == {FIRST}, within_s=90)
    assert any(line.startswith(f"{SECOND} does not hang any more") for line in gang.lines("service"))


@pytest.mark.fault("F25")
def test_a_group_names_the_one_that_is_behind_and_restarts_by_setting(start: Start) -> None:
    code = """
if COPY == 0:
    if NAME == "worker-replica-1":
        wait_for_ever()
    print("step 7", flush=True)
    wait_for_a_file("never")
"""
    gang = start(("master", "worker", "worker"), code, hang_restart=True)
    assert settle(gang.engine, gang.spec.folder, AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
    hangs = {hang.name: hang for hang in gang.hangs()}
    assert set(hangs) == {MASTER, FIRST, SECOND}
    assert {hang.suspect for hang in hangs.values()} == {SECOND}
    assert "It seems to be the one that the others wait for: its last step is before theirs." in hangs[SECOND].sentence
    assert f"{SECOND} seems to be the one that the others wait for" in hangs[MASTER].sentence
    assert [name for name, hang in hangs.items() if hang.restart] == [SECOND]
    [restart] = read_record(gang.spec.folder).restarts
    assert (restart.name, restart.whole_gang, restart.hung) == (SECOND, True, True)
    assert restart.sentence.startswith(f"restarted the whole gang ({SECOND} was killed because it hung)")


@pytest.mark.fault("F25")
def test_a_worker_beside_parameter_servers_restarts_alone(start: Start) -> None:
    code = """
if NAME == "worker-replica-0" and COPY == 0:
    wait_for_ever()
while NAME == "master-replica-0" and not os.path.exists(MARKS + "/worker-replica-0.1"):
    sum(range(10000))
wait_for_a_file("worker-replica-0.1")
"""
    gang = start(("master", "worker", "ps"), code, hang_restart=True)
    assert settle(gang.engine, gang.spec.folder, AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
    restarts = read_record(gang.spec.folder).restarts
    assert {(restart.name, restart.whole_gang, restart.hung) for restart in restarts} == {(FIRST, False, True)}
