"""The rules of a gang, on real processes: who is started again when one is lost, and who is not.

Each copy of a replica takes a lock that its children inherit. A copy that finds the lock taken says so in a file: that
is how these tests see two copies at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainshed.attempts.journal import RestartRecord, read_record
from trainshed.config import Home
from trainshed.domain.jobs.reconcile import AttemptPhase, ObservedAttempt
from trainshed.domain.jobs.states import JobState
from trainshed.engines.base import AttemptSpec, Replica
from trainshed.engines.local.engine import LocalEngine
from trainshed.testing.contracts.engines import message_of, settle
from trainshed.testing.eventually import eventually
from trainshed.testing.workloads.job_logs import records

PYTHON = Path(sys.executable)
UV = Path(shutil.which("uv", path=f"{PYTHON.parent}") or shutil.which("uv") or "uv")
MASTER, WORKER, PS, EVALUATOR = "master-replica-0", "worker-replica-0", "ps-replica-0", "evaluator-replica-0"
SERVERS = ("master", "worker", "worker", "ps", "evaluator")
GROUP = ("master", "worker", "worker")

#: Each replica waits for a file with its name, which says how it is to end: a status, or a signal with a minus.
TRAINER = """
import fcntl, json, os, signal, subprocess, sys, time
NAME, SIGNS = os.environ["NAME"], os.environ["SIGNS"]

def note(file, *words):
    fd = os.open(SIGNS + "/" + file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, (json.dumps(words) + "\\n").encode())
    os.close(fd)

lock = os.open(SIGNS + "/lock-" + NAME, os.O_RDWR | os.O_CREAT)
os.set_inheritable(lock, True)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("twins", NAME)
note("starts", NAME, os.getpid(), os.environ["TF_CONFIG"])
COPY = sum(json.loads(line)[0] == NAME for line in open(SIGNS + "/starts"))

def end(how):
    if how < 0:
        os.kill(os.getpid(), -how)
        time.sleep(60)
    sys.exit(how)

def wait(name=NAME):
    while not os.path.exists(SIGNS + "/" + name):
        time.sleep(0.005)
    return open(SIGNS + "/" + name).read()

def obey():
    while True:
        how = wait()
        try:
            os.unlink(SIGNS + "/" + NAME)
        except FileNotFoundError:
            continue
        end(int(how))
"""
UNAVAILABLE = """
def unavailable():
    sys.stderr.write('''Traceback (most recent call last):
  File "task.py", line 1, in <module>
tensorflow.python.framework.errors_impl.UnavailableError: {{function_node __wrapped__AddN}} Socket closed
''')
    end(1)
"""


@dataclass(frozen=True)
class Gang:
    """A gang that runs, and the folder through which it is told how to end."""

    engine: LocalEngine
    launch: AttemptSpec
    signs: Path
    mark: str

    @property
    def folder(self) -> Path:
        return self.launch.folder

    def settle(self, phase: AttemptPhase = AttemptPhase.ENDED, *, within_s: float = 90.0) -> ObservedAttempt:
        return settle(self.engine, self.folder, phase, within_s=within_s)

    def tell(self, name: str, how: int) -> None:
        draft = self.signs / f".{name}"
        draft.write_text(str(how))
        draft.rename(self.signs / name)

    def starts(self) -> list[tuple[str, int, str]]:
        path = self.signs / "starts"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    def counts(self) -> dict[str, int]:
        return dict(Counter(name for name, _, _ in self.starts()))

    def await_starts(self, **counts: int) -> None:
        """Wait until each kind of replica was started so many times, all of its kind together."""
        eventually(lambda: Counter(name.partition("-")[0] for name in self._names()), lambda seen: seen == counts)

    def _names(self) -> list[str]:
        return [name for name, _, _ in self.starts()]

    def pid(self, name: str) -> int:
        return [pid for each, pid, _ in self.starts() if each == name][-1]

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid(name), number)

    def events(self, *names: str) -> list[dict[str, Any]]:
        return [event for event in records(self.folder / "journal.jsonl") if event["event"] in names]

    def lines(self) -> list[tuple[str, str, str]]:
        return [(line["r"], line["s"], line["m"]) for line in records(self.folder / "log.jsonl")]

    def said(self, replica: str) -> list[str]:
        return [text for name, _, text in self.lines() if name == replica]

    def restarts(self) -> list[RestartRecord]:
        return list(read_record(self.folder).restarts)

    def sentences(self) -> list[str]:
        return [restart.sentence for restart in self.restarts()]

    def processes(self) -> list[int]:
        """Those with the mark in their environment, or with the lock of a replica in their hands."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                held = [str(link.readlink()) for link in (folder / "fd").iterdir()]
                locks = any(path.startswith(f"{self.signs}/lock-") for path in held)
                if locks or self.mark.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found


Start = Callable[..., Gang]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts gangs. At the end of the test nothing of them may be left, and no replica may have had a twin."""
    gangs: list[Gang] = []

    def begin(types: tuple[str, ...], code: str, **options: Any) -> Gang:
        mark = uuid.uuid4().hex
        signs = tmp_path / f"signs-{mark}"
        signs.mkdir()
        (tmp_path / "trainer.py").write_text(TRAINER + UNAVAILABLE + code)
        gang = Gang(
            LocalEngine(Home(tmp_path / "home"), UV), _launch(tmp_path, signs, types, mark, options), signs, mark
        )
        gangs.append(gang)
        gang.engine.launch(gang.launch)
        return gang

    yield begin
    left = {
        pid
        for gang in gangs
        if gang.engine.observe([gang.folder])[gang.folder].phase is AttemptPhase.ENDED
        for pid in gang.processes()
    }
    for gang in gangs:
        for pid in gang.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert left == set()
    assert [path for gang in gangs for path in gang.signs.glob("twins")] == []


def _launch(tmp_path: Path, signs: Path, types: tuple[str, ...], mark: str, options: dict[str, Any]) -> AttemptSpec:
    replicas: list[Replica] = []
    for kind in types:
        index = sum(each.type == kind for each in replicas)
        name = f"{kind}-replica-{index}"
        config = json.dumps({"task": {"type": kind, "index": index}, "cluster": {kind: [f"127.0.0.1:{2222 + index}"]}})
        env = {"NAME": name, "TF_CONFIG": config}
        replicas.append(Replica(name=name, type=kind, index=index, primary=kind == "master", env=env))
    return AttemptSpec(
        project="p",
        job="j",
        attempt=1,
        folder=tmp_path / "jobs" / mark,
        python=PYTHON,
        module="trainer",
        args=(),
        packages=(),
        site=tmp_path / "site",
        replicas=tuple(replicas),
        env={"MARK": mark, "SIGNS": str(signs), "PYTHONPATH": str(tmp_path)},
        **{"grace_s": 5.0, "max_running_s": 3600.0, "log_limit_bytes": 1 << 20, **options},
    )


ALL_OF_SERVERS = {"master": 1, "worker": 2, "ps": 1, "evaluator": 1}
ALL_OF_GROUP = {"master": 1, "worker": 2}


def twice(counts: dict[str, int]) -> dict[str, int]:
    return {kind: 2 * count for kind, count in counts.items()}


# -- the end


@pytest.mark.fault("F23")
def test_the_master_decides_and_the_others_are_stopped_with_their_closing_lines(start: Start) -> None:
    gang = start(SERVERS, "obey()")
    gang.await_starts(**ALL_OF_SERVERS)
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED
    assert gang.counts() == dict.fromkeys((each.name for each in gang.launch.replicas), 1)
    lines = [(name, text) for name, _, text in gang.lines()]
    first = lines.index((MASTER, "Module completed; cleaning up."))
    closing = lines[first:]
    for name in gang.counts():
        said = [text for each, text in closing if each == name]
        assert said[:2] == ["Module completed; cleaning up.", "Clean up finished."]
        assert ("Task completed successfully." in said) == (name == MASTER)
    assert closing[-2:] == [
        ("service", "Tearing down training program."),
        ("service", "Finished tearing down training program."),
    ]
    assert gang.restarts() == []


@pytest.mark.fault("F23")
def test_those_that_do_not_hear_are_killed_after_the_grace_period(start: Start) -> None:
    gang = start(("master", "ps"), "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nnote('deaf')\nobey()", grace_s=0.5)
    eventually(
        lambda: (gang.signs / "deaf").exists() and (gang.signs / "deaf").read_text().count("\n"), lambda n: n == 2
    )
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED
    [ps] = [event for event in gang.events("replica_exited") if event["name"] == PS]
    assert ps["signal"] == signal.SIGKILL


@pytest.mark.fault("F24")
@pytest.mark.parametrize("name", [MASTER, WORKER, PS, EVALUATOR])
def test_a_permanent_error_of_any_replica_ends_the_job_at_once(start: Start, name: str) -> None:
    gang = start(SERVERS, "wait('all')\nif NAME == wait('who'): raise ValueError('my own fault')\nobey()")
    gang.await_starts(**ALL_OF_SERVERS)
    (gang.signs / "who").write_text(name)
    (gang.signs / "all").touch()
    ended = gang.settle()
    assert ended.outcome is JobState.FAILED
    kind = name.partition("-")[0]
    assert message_of(ended).startswith(f"The replica {kind} 0 exited with a non-zero status of 1.")
    assert "ValueError: my own fault" in message_of(ended)
    assert set(gang.counts().values()) == {1}
    assert gang.restarts() == []


def test_a_worker_that_is_done_is_not_started_again(start: Start) -> None:
    gang = start(SERVERS, "obey()")
    gang.await_starts(**ALL_OF_SERVERS)
    gang.tell(WORKER, 0)
    eventually(lambda: gang.events("replica_exited"))
    gang.tell("worker-replica-1", -9)  # the gang goes on, and looks after the others
    gang.await_starts(master=1, worker=3, ps=1, evaluator=1)
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED
    assert gang.counts()[WORKER] == 1


# -- restarts of one replica


@pytest.mark.fault("F19")
@pytest.mark.parametrize("name", [WORKER, "worker-replica-1", PS, EVALUATOR])
@pytest.mark.parametrize("how", [-signal.SIGKILL, 128 + signal.SIGTERM])
def test_a_lost_replica_is_started_again_as_it_was(start: Start, name: str, how: int) -> None:
    gang = start(SERVERS, "obey()")
    gang.await_starts(**ALL_OF_SERVERS)
    gang.tell(name, how)
    kind = name.partition("-")[0]
    gang.await_starts(**(ALL_OF_SERVERS | {kind: ALL_OF_SERVERS[kind] + 1}))
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED
    assert gang.counts() == dict.fromkeys((each.name for each in gang.launch.replicas), 1) | {name: 2}
    first, second = [config for each, _, config in gang.starts() if each == name]
    assert first == second
    reason = "killed by signal 9" if how < 0 else "exited with 143, which stands for signal 15"
    assert gang.sentences() == [f"restarted {name} ({reason})"]
    assert ("service", "WARNING", f"Restarted {name} ({reason}).") in gang.lines()


@pytest.mark.fault("F19")
def test_a_replica_is_started_five_times_more_each_time_later_and_then_with_its_gang(start: Start) -> None:
    code = "if NAME == 'worker-replica-0' and COPY < 7: end(-11)\nif NAME == 'worker-replica-0': end(0)\nobey()"
    gang = start(("master", "worker", "ps"), code, backoff_factor=0.1)
    eventually(lambda: len(gang.restarts()), lambda count: count == 6, within_s=150)
    gang.await_starts(master=2, worker=7, ps=2)
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED
    assert [restart.whole_gang for restart in gang.restarts()] == [False] * 5 + [True]
    exits = [event["t"] for event in gang.events("replica_exited") if event["name"] == WORKER][:5]
    pauses = [(restart.time_us - exit_us) / 1e6 for restart, exit_us in zip(gang.restarts(), exits, strict=False)]
    assert all(pause >= wanted for pause, wanted in zip(pauses, (0, 0.1, 0.2, 0.4, 0.8), strict=True))


def test_steps_before_and_after_are_written_down(start: Start) -> None:
    code = """
if NAME == "worker-replica-1":
    print("Train [worker/1], step 1241: loss 0.5" if COPY == 1 else "Train [worker/1], step 1204: loss 0.6", flush=True)
elif NAME == "master-replica-0":
    print("step 1300", flush=True)
    wait("later")
    print("step 1290", flush=True)
obey()
"""
    gang = start(SERVERS, code)
    eventually(lambda: gang.said("worker-replica-1"), lambda said: any("1241" in text for text in said))
    gang.kill("worker-replica-1")
    sentence = "restarted worker-replica-1 (killed by signal 9), resumed at step 1,204, 37 steps repeated"
    eventually(gang.sentences, lambda found: found == [sentence])
    eventually(lambda: "step 1300" in gang.said(MASTER))
    gang.kill(PS)
    gang.await_starts(**(ALL_OF_SERVERS | {"worker": 3, "ps": 2}))
    (gang.signs / "later").touch()
    server = "restarted ps-replica-0 (killed by signal 9), resumed at step 1,290, 10 steps repeated"
    eventually(gang.sentences, lambda found: found == [sentence, server])
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED
    [restarted, _] = gang.events("replica_restarted")
    assert (restarted["name"], restarted["signal"], restarted["step_before"]) == ("worker-replica-1", 9, 1241)
    [resumed, _] = gang.events("resumed")
    assert (resumed["name"], resumed["step"]) == ("worker-replica-1", 1204)
    assert "worker-replica-1 resumed at step 1,204, 37 steps repeated." in gang.said("service")


# -- restarts of the gang


@pytest.mark.fault("F22")
@pytest.mark.parametrize("name", [MASTER, WORKER])
def test_a_lost_member_of_an_all_reduce_group_restarts_the_group(start: Start, name: str) -> None:
    gang = start(GROUP, "print('step', 50 if COPY == 1 else 40, flush=True)\nobey()")
    gang.await_starts(**ALL_OF_GROUP)
    eventually(lambda: sum("step 50" in gang.said(each.name) for each in gang.launch.replicas), lambda n: n == 3)
    before = {each for each, _, _ in gang.starts()}
    gang.kill(name)
    gang.await_starts(**twice(ALL_OF_GROUP))
    sentence = f"restarted the whole gang ({name} was killed by signal 9), resumed at step 40, 10 steps repeated"
    eventually(gang.sentences, lambda found: found == [sentence])
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED
    configs = {each: {config for other, _, config in gang.starts() if other == each} for each in before}
    assert all(len(each) == 1 for each in configs.values())
    assert ("service", "WARNING", f"Restarted the whole gang ({name} was killed by signal 9).") in gang.lines()


@pytest.mark.fault("F21")
def test_a_lost_master_restarts_the_gang_and_those_that_were_done(start: Start) -> None:
    gang = start(SERVERS, "obey()")
    gang.await_starts(**ALL_OF_SERVERS)
    gang.tell(WORKER, 0)
    eventually(lambda: gang.events("replica_exited"))
    gang.kill(MASTER)
    gang.await_starts(**twice(ALL_OF_SERVERS))
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED
    assert gang.sentences() == ["restarted the whole gang (master-replica-0 was killed by signal 9)"]


def test_a_lost_evaluator_of_an_all_reduce_group_is_restarted_alone(start: Start) -> None:
    gang = start((*GROUP, "evaluator"), "obey()")
    gang.await_starts(**ALL_OF_GROUP, evaluator=1)
    gang.kill(EVALUATOR)
    gang.await_starts(**ALL_OF_GROUP, evaluator=2)
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED


@pytest.mark.fault("F19")
@pytest.mark.parametrize(("types", "name"), [(("master",), MASTER), (("master", "ps"), MASTER), (GROUP, WORKER)])
def test_after_three_new_gangs_the_job_fails_and_names_the_replica(
    start: Start, types: tuple[str, ...], name: str
) -> None:
    gang = start(types, f"print('here is the reason')\nend(-11) if NAME == {name!r} else obey()")
    ended = gang.settle()
    assert ended.outcome is JobState.FAILED
    kind = name.partition("-")[0]
    assert message_of(ended).startswith(
        f"The replica {kind} 0 was killed by signal 11 (SIGSEGV). \nhere is the reason\n"
    )
    whole = "The job" if len(types) == 1 else "The whole gang"
    assert f"{whole} had been restarted 3 times already, which is the limit." in message_of(ended)
    assert gang.counts()[name] == 4
    assert [restart.whole_gang for restart in gang.restarts()] == [True] * 3


@pytest.mark.fault("F26")
def test_members_that_do_not_hear_are_killed_before_the_gang_starts_again(start: Start) -> None:
    code = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nnote('deaf')\nobey()"
    gang = start(GROUP, code, grace_s=0.5)
    eventually(
        lambda: (gang.signs / "deaf").exists() and (gang.signs / "deaf").read_text().count("\n"), lambda n: n == 3
    )
    gang.kill(WORKER)
    gang.await_starts(**twice(ALL_OF_GROUP))
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED


# -- effects of a loss


@pytest.mark.fault("F20")
@pytest.mark.parametrize("name", [MASTER, WORKER])
def test_a_connection_broken_by_a_loss_costs_a_restart_and_not_the_job(start: Start, name: str) -> None:
    code = "if NAME == wait('who') and COPY == 1:\n    wait('lost')\n    unavailable()\nobey()"
    gang = start(SERVERS, code)
    (gang.signs / "who").write_text(name)
    gang.await_starts(**ALL_OF_SERVERS)
    gang.kill(PS)
    gang.await_starts(**(ALL_OF_SERVERS | {"ps": 2}))
    (gang.signs / "lost").touch()
    kind = name.partition("-")[0]
    gang.await_starts(**(ALL_OF_SERVERS | {"ps": 2, kind: ALL_OF_SERVERS[kind] + 1}))
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED
    assert gang.sentences() == [
        "restarted ps-replica-0 (killed by signal 9)",
        f"restarted {name} (exited with 1 after ps-replica-0 was lost)",
    ]


#: How long a cause may come after its effect is short, so a replica itself sees when to be the cause.
SEEN = """
def await_exit():
    note("up")
    while '"replica_exited"' not in open("../journal.jsonl").read():
        time.sleep(0.005)
"""


def test_an_effect_seen_before_its_cause_costs_a_restart_too(start: Start) -> None:
    code = (
        SEEN
        + """
if COPY == 1 and NAME == "master-replica-0":
    wait("up")
    unavailable()
elif COPY == 1:
    await_exit()
    end(-9)
obey()
"""
    )
    gang = start(("master", "ps"), code)
    gang.await_starts(master=2, ps=2)
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED


def test_the_replica_that_broke_the_connection_is_blamed_and_not_the_one_that_lost_it(start: Start) -> None:
    code = (
        SEEN
        + """
if NAME == "worker-replica-0":
    wait("up")
    unavailable()
elif NAME == "ps-replica-0":
    await_exit()
    raise ValueError("the real one")
obey()
"""
    )
    gang = start(SERVERS, code)
    ended = gang.settle()
    assert ended.outcome is JobState.FAILED
    assert message_of(ended).startswith("The replica ps 0 exited with a non-zero status of 1.")
    assert "the real one" in message_of(ended)


def test_a_broken_connection_without_a_loss_fails_the_job(start: Start) -> None:
    gang = start(("master", "worker", "ps"), "unavailable() if NAME == 'worker-replica-0' else obey()")
    ended = gang.settle()
    assert ended.outcome is JobState.FAILED
    assert message_of(ended).startswith("The replica worker 0 exited with a non-zero status of 1.")
    assert gang.restarts() == []


# -- what is left of a copy

REMAINS = """
def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("left", NAME, os.getpid())
    while True:
        time.sleep(1)

def leave(new_session, clean):
    if os.fork():
        return
    if new_session:
        os.setsid()
        if os.fork():
            os._exit(0)
    if clean:
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        note("left", NAME, os.getpid())
        os.execve(sys.executable, [sys.executable, "-S", "-c", code], {})
    deaf()
"""


def _left(gang: Gang, name: str) -> list[int]:
    path = gang.signs / "left"
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return [pid for each, pid in lines if each == name]


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.fault("F26")
def test_nothing_of_the_old_copy_lives_when_the_new_one_starts(start: Start) -> None:
    code = (
        REMAINS
        + """
if NAME == "worker-replica-0" and COPY == 1:
    for new_session in (False, True):
        for clean in (False, True):
            leave(new_session, clean)
obey()
"""
    )
    gang = start(SERVERS, code)
    gang.await_starts(**ALL_OF_SERVERS)
    remains = eventually(lambda: _left(gang, WORKER), lambda left: len(left) == 4)
    gang.kill(WORKER)
    gang.await_starts(**(ALL_OF_SERVERS | {"worker": 3}))
    assert not any(_alive(pid) for pid in remains)
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED


def test_what_another_replica_started_is_left_alone(start: Start) -> None:
    code = (
        REMAINS
        + """
if NAME == "worker-replica-1":
    leave(False, False)
    leave(False, True)
    leave(True, False)
obey()
"""
    )
    gang = start(SERVERS, code)
    gang.await_starts(**ALL_OF_SERVERS)
    others = eventually(lambda: _left(gang, "worker-replica-1"), lambda left: len(left) == 3)
    gang.kill(WORKER)
    gang.await_starts(**(ALL_OF_SERVERS | {"worker": 3}))
    assert all(_alive(pid) for pid in others)
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED
    assert not any(_alive(pid) for pid in others)


@pytest.mark.fault("F26")
def test_many_losses_at_once_make_no_twins(start: Start) -> None:
    gang = start(SERVERS, REMAINS + "leave(True, False)\nobey()")
    gang.await_starts(**ALL_OF_SERVERS)
    for name in (WORKER, "worker-replica-1", PS, EVALUATOR):
        gang.kill(name)
    gang.await_starts(master=1, worker=4, ps=2, evaluator=2)
    for pid in (gang.pid(MASTER), gang.pid(PS)):
        with contextlib.suppress(ProcessLookupError):  # the supervisor may have ended it over the other one
            os.kill(pid, signal.SIGKILL)
    eventually(gang.counts, lambda counts: counts[MASTER] == 2 and min(counts.values()) >= 2)
    eventually(lambda: len(gang.processes()), lambda count: count >= 10)
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED


# -- commands and limits


@pytest.mark.fault("F25")
def test_a_hung_replica_is_ended_by_the_time_limit(start: Start) -> None:
    code = "if NAME == 'worker-replica-0': os.kill(os.getpid(), signal.SIGSTOP)\nobey()"
    gang = start(("master", "worker", "ps"), code, max_running_s=1.5)
    ended = gang.settle()
    assert ended.outcome is JobState.CANCELLED
    assert "maxRunningTime of 1.5 s" in message_of(ended)


def test_a_restart_does_not_give_more_time(start: Start) -> None:
    code = "if COPY > 1:\n    time.sleep(2)\nend(-9)"  # so no copy has all the time, and together they have more
    gang = start(("master",), code, max_running_s=3.0)
    assert gang.settle().outcome is JobState.CANCELLED
    assert gang.restarts()


def test_the_engine_kills_what_it_is_asked_to(start: Start) -> None:
    gang = start(SERVERS, "obey()")
    gang.await_starts(**ALL_OF_SERVERS)
    gang.engine.kill(gang.folder, "worker-replica-7", signal.SIGKILL)
    gang.engine.kill(gang.folder, WORKER, signal.SIGTERM)
    gang.await_starts(**(ALL_OF_SERVERS | {"worker": 3}))
    gang.engine.kill(gang.folder, WORKER, 1000)
    gang.tell(MASTER, 0)
    assert gang.settle().outcome is JobState.SUCCEEDED
    assert gang.sentences() == ["restarted worker-replica-0 (killed by signal 15)"]
    assert ("service", "WARNING", "worker-replica-0 is sent signal 15, as was asked for.") in gang.lines()


def test_a_gang_can_be_cancelled_while_a_replica_waits_to_start_again(start: Start) -> None:
    gang = start(SERVERS, "end(-9) if NAME == 'worker-replica-0' else obey()", backoff_factor=600.0)
    eventually(lambda: gang.events("replica_exited"), lambda lost: len(lost) == 2)  # the next one is ten minutes away
    gang.engine.cancel(gang.folder)
    assert gang.settle().outcome is JobState.CANCELLED
    assert gang.events("replica_started", "stopping")[-1]["event"] == "stopping"


def test_a_gang_can_be_cancelled_while_it_is_stopped_to_start_again(start: Start) -> None:
    gang = start(GROUP, "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nnote('deaf')\nobey()", grace_s=90.0)
    eventually(
        lambda: (gang.signs / "deaf").exists() and (gang.signs / "deaf").read_text().count("\n"), lambda n: n == 3
    )
    gang.kill(WORKER)
    eventually(lambda: gang.events("replica_exited"))
    gang.engine.cancel(gang.folder)
    eventually(lambda: gang.events("stopping"))
    for name in (MASTER, "worker-replica-1"):
        gang.tell(name, 0)
    assert gang.settle().outcome is JobState.CANCELLED
    assert set(gang.counts().values()) == {1}
    assert gang.restarts() == []
