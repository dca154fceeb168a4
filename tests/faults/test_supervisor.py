"""What the supervisor holds on to when something is killed, hangs, floods, hides or lies. Real processes throughout."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import uuid
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from trainshed.artifacts.staging import Package
from trainshed.config import Home
from trainshed.domain.jobs.reconcile import AttemptPhase, ObservedAttempt
from trainshed.domain.jobs.states import JobState
from trainshed.engines.base import AttemptSpec, Replica
from trainshed.engines.local.engine import LocalEngine, render
from trainshed.engines.shipping import ship
from trainshed.node.journal import Journal
from trainshed.node.supervisor.log_writer import STDOUT, LogWriter, ReplicaLog
from trainshed.testing.contracts.engines import message_of, settle
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.resources import small_disk
from trainshed.testing.workloads.job_logs import records

PYTHON = Path(sys.executable)
UV = Path(shutil.which("uv", path=f"{PYTHON.parent}") or shutil.which("uv") or "uv")
MARK = "MARK_OF_THE_TEST"

#: A child, one in a session of its own, one forked twice, and a pair that start each other anew. None hears SIGTERM.
HYDRA = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)

def child(act):
    if os.fork() == 0:
        act()
        os._exit(0)

def forever():
    while True:
        time.sleep(1)

def session():
    os.setsid()
    forever()

def twice():
    if os.fork() == 0:
        session()

def pair():
    os.setsid()
    while True:
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
        else:
            parent = os.getppid()
            while os.getppid() == parent:
                time.sleep(0.001)

for act in (forever, session, twice, pair):
    child(act)
"""
SECRETS = (
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS", "GITHUB_TOKEN", "DATABASE_URL"),
    *("TF_VAR_password", "TF_TOKEN_app_terraform_io", "HF_TOKEN", "WANDB_API_KEY", "UV_INDEX_URL", "PGPASSWORD"),
    *("KERAS_API_KEY", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "KUBECONFIG", "AZURE_CLIENT_SECRET"),
)
HYDRA_SIZE = 6  # with the trainer itself


@dataclass(frozen=True)
class Attempt:
    engine: LocalEngine
    launch: AttemptSpec
    mark: str

    @property
    def folder(self) -> Path:
        return self.launch.folder

    def settle(self, phase: AttemptPhase, *, within_s: float = 90.0) -> ObservedAttempt:
        return settle(self.engine, self.folder, phase, within_s=within_s)

    def seen(self) -> ObservedAttempt:
        return self.engine.observe([self.folder])[self.folder]

    def event(self, name: str) -> dict[str, Any]:
        return next(event for event in records(self.folder / "journal.jsonl") if event["event"] == name)

    def log(self, replica: str = "master-replica-0") -> list[dict[str, Any]]:
        return [line for line in records(self.folder / "log.jsonl") if line["r"] == replica]

    def texts(self, replica: str = "master-replica-0") -> list[str]:
        return [line["m"] for line in self.log(replica)]

    def wait_for_line(self, text: str) -> None:
        eventually(self.texts, lambda lines: text in lines)

    def processes(self) -> list[int]:
        return _marked(self.mark)


def _marked(mark: str) -> list[int]:
    """The live processes with the mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def _read(path: Path) -> str:
    """Empty if there is no such file yet."""
    return path.read_text() if path.exists() else ""


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


Start = Callable[..., Attempt]


@pytest.fixture
def start(prepare: Start) -> Start:
    """Starts attempts with this code as their trainer."""

    def begin(code: str, **options: Any) -> Attempt:
        attempt = prepare(code, **options)
        attempt.engine.launch(attempt.launch)
        return attempt

    return begin


@pytest.fixture
def prepare(tmp_path: Path) -> Iterator[Start]:
    """Attempts not yet started; whatever a broken supervisor leaves of them is killed at the end."""
    marks: list[str] = []

    def make(code: str, *, packages: tuple[Package, ...] = (), module: str = "trainer", **options: Any) -> Attempt:
        mark = uuid.uuid4().hex
        marks.append(mark)
        (tmp_path / "code").mkdir(exist_ok=True)
        (tmp_path / "code" / "trainer.py").write_text(code)
        given: dict[str, Any] = {
            "folder": tmp_path / "jobs" / mark,
            "grace_s": 5.0,
            "max_running_s": 3600.0,
            "log_limit_bytes": 64 << 20,
            **options,
        }
        launch = AttemptSpec(
            project="p",
            job="j",
            attempt=1,
            python=PYTHON,
            module=module,
            args=("--one", "two words"),
            packages=packages,
            site=tmp_path / "packages" / "site",
            replicas=(Replica(name="master-replica-0", type="master", index=0, primary=True, env={"TASK": "0"}),),
            env={MARK: mark, "PYTHONPATH": str(tmp_path / "code")},
            **given,
        )
        return Attempt(LocalEngine(Home(tmp_path / "home"), UV, passed={"LAB_DATA"}), launch, mark)

    yield make
    for mark in marks:
        for pid in _marked(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _hydra(start: Start, **options: Any) -> Attempt:
    attempt = start(HYDRA + "print('ready', flush=True)\nforever()", **options)
    eventually(attempt.processes, lambda pids: len(pids) >= HYDRA_SIZE)
    attempt.wait_for_line("ready")
    return attempt


@pytest.mark.fault("F30")
def test_killing_the_supervisor_ends_the_job_and_everything_it_started(start: Start) -> None:
    attempt = _hydra(start)
    started = attempt.event("supervisor_started")
    os.kill(started["pid"], signal.SIGKILL)
    attempt.settle(AttemptPhase.LOST)
    assert attempt.processes() == []
    eventually(lambda: _gone(started["reaper"]))


@pytest.mark.fault("F30")
def test_killing_the_reaper_ends_the_job_and_everything_it_started(start: Start) -> None:
    attempt = _hydra(start)
    started = attempt.event("supervisor_started")
    os.kill(started["reaper"], signal.SIGKILL)
    ended = attempt.settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.FAILED
    assert "reaper process of this job was killed" in message_of(ended)
    assert attempt.processes() == []
    eventually(lambda: _gone(started["pid"]))


#: One more process, which has no environment, no descriptors, a session of its own and another working folder.
HIDDEN = """
def hidden():
    os.setsid()
    if os.fork() == 0:
        with open("hidden.tmp", "w") as file:
            file.write(str(os.getpid()))
        os.rename("hidden.tmp", "hidden.pid")
        os.chdir("/")
        os.closerange(0, 256)
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"], {})
child(hidden)
"""


def _lose(attempt: Attempt) -> None:
    """Kill the supervisor and its reaper so that neither can act on the other's death."""
    started = attempt.event("supervisor_started")
    for number in (signal.SIGSTOP, signal.SIGKILL):
        os.kill(started["reaper"], number)
        os.kill(started["pid"], number)
    eventually(lambda: _gone(started["pid"]) and _gone(started["reaper"]))


@pytest.mark.fault("F30")
@pytest.mark.parametrize("restarted", [False, True], ids=["the same server", "the next server"])
def test_killing_the_supervisor_and_its_reaper_leaves_no_process_of_the_job(start: Start, restarted: bool) -> None:
    attempt = start(HYDRA + HIDDEN + "forever()")
    eventually(attempt.processes, lambda pids: len(pids) >= HYDRA_SIZE)
    hidden = int(eventually(lambda: _read(attempt.folder / "work" / "hidden.pid"), bool))
    eventually(lambda: hidden not in attempt.processes())
    attempt.settle(AttemptPhase.RUNNING)
    _lose(attempt)
    assert len(attempt.processes()) >= HYDRA_SIZE - 1, "the kernel ends the trainer alone"
    assert not _gone(hidden)
    if restarted:
        attempt = replace(attempt, engine=LocalEngine(Home(attempt.folder.parent / "home"), UV))
    orphans = attempt.settle(AttemptPhase.LOST).orphans
    assert orphans is not None
    assert attempt.processes() == []
    assert _gone(hidden)
    assert hidden in orphans.ended
    assert len(orphans.ended) >= HYDRA_SIZE
    assert orphans.left == ()
    assert attempt.seen().orphans == orphans


@pytest.mark.fault("F08")
def test_the_search_for_orphans_signals_nobody_else(start: Start) -> None:
    """Neither a process in the attempt's folder with its files open nor one of another attempt is signalled."""
    other = start("import time; time.sleep(600)")
    other.settle(AttemptPhase.RUNNING)
    attempt = start("import time; time.sleep(600)")
    attempt.settle(AttemptPhase.RUNNING)
    work = attempt.folder / "work"
    with (work / "open").open("w") as file, subprocess.Popen(["sleep", "600"], cwd=work, stdout=file) as stranger:
        try:
            _lose(attempt)
            attempt.settle(AttemptPhase.LOST)
            assert stranger.poll() is None
            assert not _gone(other.event("replica_started")["pid"])
        finally:
            stranger.kill()
    assert other.seen().phase is AttemptPhase.RUNNING
    other.engine.cancel(other.folder)
    other.settle(AttemptPhase.ENDED)


def test_a_journal_that_says_lost_is_believed_when_the_processes_are_gone(start: Start) -> None:
    attempt = start("import time; time.sleep(600)")
    attempt.settle(AttemptPhase.RUNNING)
    with (attempt.folder / "journal.jsonl").open("a") as journal:
        journal.write('{"event": "lost", "t": 1}\n')
    assert attempt.seen().phase is AttemptPhase.RUNNING
    attempt.engine.cancel(attempt.folder)
    assert attempt.settle(AttemptPhase.ENDED).outcome is JobState.CANCELLED


def test_killing_the_supervisor_while_it_writes_leaves_a_journal_that_can_be_read(start: Start) -> None:
    attempt = start("import time; time.sleep(60)")
    attempt.settle(AttemptPhase.RUNNING)
    with (attempt.folder / "journal.jsonl").open("a") as journal:
        journal.write('{"event": "en')
    os.kill(attempt.event("supervisor_started")["pid"], signal.SIGKILL)
    attempt.settle(AttemptPhase.LOST)
    assert (attempt.folder / "journal.jsonl").read_text().splitlines()[-1].startswith('{"event": "lost"')


def test_terminating_the_supervisor_fails_the_job_with_a_reason(start: Start) -> None:
    attempt = _hydra(start, grace_s=0.3)
    os.kill(attempt.event("supervisor_started")["pid"], signal.SIGTERM)
    ended = attempt.settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.FAILED
    assert "SIGTERM" in message_of(ended)
    assert attempt.processes() == []


def test_a_cancelled_trainer_may_say_goodbye(start: Start) -> None:
    attempt = start(
        """
import signal, sys, time
def goodbye(number, frame):
    print("saving", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, goodbye)
print("ready", flush=True)
time.sleep(600)
""",
        grace_s=90.0,
    )
    attempt.wait_for_line("ready")
    attempt.engine.cancel(attempt.folder)
    ended = attempt.settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.CANCELLED
    assert "saving" in attempt.texts()


@pytest.mark.fault("F27")
def test_a_cancelled_trainer_that_does_not_listen_dies_after_the_grace_period(start: Start) -> None:
    attempt = _hydra(start, grace_s=0.5)
    attempt.engine.cancel(attempt.folder)
    ended = attempt.settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.CANCELLED
    stopping, exited = attempt.event("stopping"), attempt.event("replica_exited")
    assert exited["signal"] == signal.SIGKILL
    assert exited["t"] - stopping["t"] >= 500_000
    assert attempt.processes() == []


@pytest.mark.fault("F25")
def test_a_stopped_trainer_can_be_cancelled(start: Start) -> None:
    attempt = start("import os, signal, time; print('ready', flush=True); os.kill(os.getpid(), signal.SIGSTOP)")
    attempt.wait_for_line("ready")
    pid = attempt.event("replica_started")["pid"]
    eventually(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0], lambda state: state == "T")
    attempt.engine.cancel(attempt.folder)
    assert attempt.settle(AttemptPhase.ENDED).outcome is JobState.CANCELLED
    assert attempt.event("replica_exited")["signal"] == signal.SIGTERM


def test_a_job_that_runs_too_long_is_cancelled_and_says_so(start: Start) -> None:
    attempt = start("import time; time.sleep(60)", max_running_s=0.2)
    ended = attempt.settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.CANCELLED
    assert message_of(ended) == (
        "The job ran longer than its maxRunningTime of 0.2 s and was cancelled. "
        "Raise scheduling.maxRunningTime if it needs longer."
    )


@pytest.mark.fault("F27")
def test_what_a_trainer_leaves_behind_ends_with_it_and_its_words_are_kept(start: Start) -> None:
    attempt = start(
        HYDRA
        + """
def last_words():
    os.setsid()
    print("from the child", flush=True)
    open("said", "w").close()
    forever()
child(last_words)
while not os.path.exists("said"):
    time.sleep(0.01)
"""
    )
    ended = attempt.settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.SUCCEEDED
    assert attempt.processes() == []
    assert "from the child" in attempt.texts()


@pytest.mark.fault("F31")
def test_a_flood_is_cut_off_and_counted(start: Start) -> None:
    count, limit = 300_000, 1 << 20
    attempt = start(f"for n in range({count}): print('line', n)", log_limit_bytes=limit)
    assert attempt.settle(AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
    lines = attempt.log()
    kept = [line["m"] for line in lines if line["m"].startswith("line ")]
    assert kept == [f"line {n}" for n in range(len(kept))]
    assert sum(len(line) + 1 for line in kept) <= limit
    [dropped] = [line for line in lines if line["m"].startswith("Dropped ")]
    assert dropped["s"] == "WARNING"
    lost = sum(len(f"line {n}") + 1 for n in range(len(kept), count))
    assert dropped["m"] == (
        f"Dropped {count - len(kept)} lines ({lost} bytes): the log of master-replica-0 is limited to 1 MB."
    )
    assert len([line for line in lines if "has reached its limit" in line["m"]]) == 1
    assert len(lines) - len(kept) < 20
    times = [line["t"] for line in lines]
    assert times == sorted(set(times))


@pytest.mark.fault("F32")
def test_bytes_of_any_kind_come_out_as_text(start: Start) -> None:
    attempt = start(
        r"""
import sys
out = sys.stdout.buffer
out.write(b"bad \xff\xfe utf-8\nnul \0 escape \x1b[31m tab\t.\n10%\r20%\r100%\n\n  \n")
out.write("å".encode() * 100_000 + b"\n")
out.write(b"no line end")
"""
    )
    assert attempt.settle(AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
    texts = attempt.texts()
    said = texts[texts.index("bad \\xff\\xfe utf-8") :]
    assert said[1:5] == ["nul \\x00 escape \\x1b[31m tab\t.", "10%", "20%", "100%"]
    long = said[5 : said.index("no line end")]
    assert len(long) == 4
    assert all(piece.endswith("…") for piece in long[:-1])
    assert "".join(piece.removesuffix("…") for piece in long) == "å" * 100_000


@pytest.mark.fault("F64")
def test_a_trainer_finds_what_it_should_and_nothing_else(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINSHED_TOKEN", "secret")
    monkeypatch.setenv("TRAINSHED_SERVER_DATABASE", "postgresql://u:secret@h/d")
    for name in SECRETS:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("TF_CPP_MAX_VLOG_LEVEL", "0")
    monkeypatch.setenv("LAB_DATA", "/data")
    attempt = start(
        """
import json, os, sys
fds = {}
for fd in os.listdir("/proc/self/fd"):
    try:
        fds[fd] = os.readlink("/proc/self/fd/" + fd)
    except OSError:
        pass
print("FOUND", json.dumps({
    "argv": sys.argv, "name": __name__, "cwd": os.getcwd(), "fds": fds, "env": dict(os.environ),
    "group": os.getpgid(0) == os.getpid(), "session": os.getsid(0) == os.getsid(os.getppid()),
    "oom": int(open("/proc/self/oom_score_adj").read()),
}))
"""
    )
    assert attempt.settle(AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
    [line] = [text for text in attempt.texts() if text.startswith("FOUND ")]
    found = json.loads(line.removeprefix("FOUND "))
    assert found["argv"][1:] == ["--one", "two words"]
    assert found["argv"][0].endswith("/code/trainer.py")
    assert found["name"] == "__main__"
    assert Path(found["cwd"]) == attempt.folder / "work"
    assert set(found["fds"]) == {"0", "1", "2"}
    assert found["fds"]["0"] == "/dev/null"
    assert found["group"]
    assert found["session"], "a session of its own has a share of the cores of its own"
    assert found["oom"] >= 500
    assert found["env"]["TASK"] == "0"
    assert "secret" not in str(found["env"])
    assert found["env"]["TF_CPP_MAX_VLOG_LEVEL"] == "0"
    assert found["env"]["LAB_DATA"] == "/data", "the engine was told to pass it"


def test_neither_a_build_nor_a_supervisor_has_a_secret_of_the_server(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("UV_OFFLINE", "1")
    said = tmp_path / "said"
    look = "import os\n"
    look += f"open({str(said)!r}, 'a').write(str(os.environ.get('AWS_SECRET_ACCESS_KEY')) + os.environ['UV_OFFLINE'])\n"
    task = TASK | {"trainer/task.py": "import os\nprint('RAN', os.environ.get('UV_OFFLINE'))\n"}
    package = _sdist(tmp_path / "trainer-0.1.tar.gz", look + _setup(), task)
    attempt = start("", packages=(package,), module="trainer.task")
    assert attempt.settle(AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
    assert set(said.read_text().split("1")) == {"None", ""}
    assert "RAN None" in attempt.texts()


@pytest.mark.fault("F36")
def test_a_trainer_that_tampers_with_its_log_reaches_nothing_else(start: Start, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    attempt = start(
        f"""
import os, shutil
for name in ("log.jsonl", "samples.jsonl", "control"):
    os.unlink("../" + name)
    os.symlink({str(target)!r}, "../" + name)
shutil.rmtree(os.getcwd())
os.closerange(0, 100)
"""
    )
    assert attempt.settle(AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
    attempt.engine.cancel(attempt.folder)
    assert target.read_text() == "untouched"


@pytest.mark.fault("F24")
def test_a_failure_names_the_replica_and_ends_in_its_traceback(start: Start) -> None:
    attempt = start("import argparse; argparse.ArgumentParser().parse_args(); raise SystemExit('no')")
    ended = attempt.settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.FAILED
    assert message_of(ended).startswith("The replica master 0 exited with a non-zero status of 2. \n")
    assert message_of(ended).endswith("please check the logs: trainshed jobs logs j")
    assert {line["s"] for line in attempt.log() if "unrecognized" in line["m"]} == {"ERROR"}


@pytest.mark.fault("F24")
def test_a_module_that_is_not_there_fails_with_advice(start: Start) -> None:
    attempt = start("", module="absent.task")
    ended = attempt.settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.FAILED
    assert "Check --module-name (it is absent.task" in message_of(ended)


def _supervise(attempt: Attempt, tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> tuple[int, str]:
    """Start a supervisor on a spec that no engine would write; its exit status, and what it said."""
    spec = render(attempt.launch, uv=UV)
    change(spec)
    attempt.folder.mkdir(parents=True)
    (attempt.folder / "spec.json").write_text(json.dumps(spec))
    run = ship(tmp_path / "home" / "node") / "run.py"
    argv = [str(PYTHON), "-I", "-S", str(run), "supervise", str(attempt.folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_a_runtime_without_its_python_is_told_at_once(prepare: Start, tmp_path: Path) -> None:
    attempt = prepare("print(1)")
    assert _supervise(attempt, tmp_path, lambda spec: spec.update(python="/no/python")) == (0, "")
    ended = attempt.settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.FAILED
    assert message_of(ended) == "/no/python can't be started: No such file or directory."


def test_a_spec_that_it_does_not_know_starts_nothing(prepare: Start, tmp_path: Path) -> None:
    attempt = prepare("print(1)")
    status, said = _supervise(attempt, tmp_path, lambda spec: spec.update(format=2))
    assert status == 1
    assert "its spec has the format 2, and this supervisor knows 1" in said
    assert attempt.seen().phase is AttemptPhase.ABSENT


def test_a_supervisor_that_fails_itself_ends_the_job(prepare: Start, tmp_path: Path) -> None:
    attempt = prepare(HYDRA + "forever()")
    assert _supervise(attempt, tmp_path, lambda spec: spec.pop("max_running_s"))[0] == 0
    ended = attempt.settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.FAILED
    assert "The supervisor of this job failed (KeyError: 'max_running_s')" in message_of(ended)
    assert attempt.processes() == []


def test_engines_that_launch_one_attempt_at_once_start_it_once(prepare: Start, tmp_path: Path) -> None:
    for done in range(1, 6):
        attempt = prepare(f"open({str(tmp_path / 'count')!r}, 'a').write('x')")
        engines = [LocalEngine(Home(tmp_path / "home"), UV) for _ in range(4)]
        with ThreadPoolExecutor(len(engines)) as pool:
            list(pool.map(LocalEngine.launch, engines, [attempt.launch] * len(engines)))
        assert attempt.settle(AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
        assert (tmp_path / "count").read_text() == "x" * done


@pytest.mark.fault("F08")
def test_a_supervisor_that_died_with_the_machine_is_lost(start: Start) -> None:
    attempt = start("print(1)")
    attempt.settle(AttemptPhase.ENDED)
    old = attempt.folder.with_name("old")
    old.mkdir()
    event = attempt.event("supervisor_started") | {"boot_id": "another", "pid": os.getpid()}
    (old / "journal.jsonl").write_text(json.dumps(event) + "\n" + '{"event": "runn')
    (old / "lock").touch()
    assert attempt.engine.observe([old])[old].phase is AttemptPhase.LOST
    assert LocalEngine(Home(old), UV).observe([old])[old].phase is AttemptPhase.LOST


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, "256k"):
        yield folder


def _fill(disk: Path) -> Path:
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filler


def test_a_full_disk_delays_an_event_and_does_not_tear_it(disk: Path) -> None:
    journal = Journal(str(disk / "journal"))
    journal.append("running")
    filler = _fill(disk)
    journal.append("containers_left", reason="x" * 10_000)
    journal.append("stopping", outcome="FAILED")
    assert not journal.flush()
    filler.unlink()
    journal.sync()
    events = [json.loads(line) for line in (disk / "journal").read_text().splitlines()]
    assert [event["event"] for event in events] == ["running", "containers_left", "stopping"]
    assert events[1]["reason"] == "x" * 10_000


def test_lines_that_a_full_disk_costs_are_counted_where_they_are_missing(disk: Path) -> None:
    log = ReplicaLog("worker-replica-0", LogWriter(str(disk / "log.jsonl")), 1 << 20)
    log.feed(STDOUT, b"first\n")
    filler = _fill(disk)
    log.feed(STDOUT, b"x" * 10_000 + b"\n")
    log.feed(STDOUT, b"y" * 5_000 + b"\n" + b"z" * 5_000 + b"\n")
    filler.unlink()
    log.feed(STDOUT, b"second\n")
    filler = _fill(disk)
    log.feed(STDOUT, b"x" * 10_000 + b"\n")
    filler.unlink()
    log.close()
    lines = records(disk / "log.jsonl")
    assert [(line["s"], line["m"]) for line in lines] == [
        ("INFO", "first"),
        ("WARNING", "Lost 3 lines (20003 bytes) of the log of worker-replica-0 here: the disk was full."),
        ("INFO", "second"),
        ("WARNING", "Lost 1 lines (10001 bytes) of the log of worker-replica-0 here: the disk was full."),
    ]


@pytest.mark.fault("F33")
def test_a_full_disk_costs_lines_but_neither_the_job_nor_its_end(prepare: Start, disk: Path, tmp_path: Path) -> None:
    code = f"""
import os, time
while not os.path.exists({str(tmp_path / "full")!r}):
    time.sleep(0.01)
print("\\n".join("line %d" % n for n in range(20_000)))
"""
    attempt = prepare(code, folder=disk / "attempt")
    attempt.engine.launch(attempt.launch)
    attempt.settle(AttemptPhase.RUNNING)
    filler = _fill(disk)
    (tmp_path / "full").touch()
    pid = attempt.event("replica_started")["pid"]
    eventually(lambda: _gone(pid))
    filler.unlink()
    assert attempt.settle(AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
    kept = [text for text in attempt.texts() if text.startswith("line ")]
    assert len(kept) < 20_000
    lost = [
        text for text in attempt.texts() if text.endswith("of the log of master-replica-0 here: the disk was full.")
    ]
    assert sum(int(text.split()[1]) for text in lost) == 20_000 - len(kept)
    assert not any("limited to" in text for text in attempt.texts())
    assert attempt.texts("service")[-1] == "Finished tearing down training program."


# -- packages


def package_of(path: Path) -> Package:
    content = path.read_bytes() if path.exists() else b""
    return Package(uri=f"gs://b/{path.name}", path=path, sha256=hashlib.sha256(content).hexdigest())


def _sdist(path: Path, setup: str, files: dict[str, str]) -> Package:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in {"setup.py": setup, **files}.items():
            info = tarfile.TarInfo(f"trainer-0.1/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return package_of(path)


def _setup(requires: str = "") -> str:
    return (
        "from setuptools import find_packages, setup\n"
        f"setup(name='trainer', version='0.1', packages=find_packages(), install_requires=[{requires}])\n"
    )


TASK = {"trainer/__init__.py": "", "trainer/task.py": "import sys, trainer\nprint('from', trainer.__file__)\n"}


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")


@pytest.mark.usefixtures("offline")
def test_a_package_is_built_and_installed_once_and_the_runtime_stays_as_it_is(start: Start, tmp_path: Path) -> None:
    package = _sdist(tmp_path / "trainer-0.1.tar.gz", _setup("'psutil', 'setuptools>=1; python_version>\"3\"'"), TASK)
    attempt = start("raise SystemExit('the wrong one')", packages=(package,), module="trainer.task")
    assert attempt.settle(AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
    site = tmp_path / "packages" / "site"
    assert f"from {site}/trainer/__init__.py" in attempt.texts()
    assert not (site / "psutil").exists()
    assert "Downloading the package: gs://b/trainer-0.1.tar.gz" in attempt.texts()
    assert "Installing the package: gs://b/trainer-0.1.tar.gz" in attempt.texts()
    assert {path.name for path in site.parent.iterdir()} == {"site", "site.lock"}

    before = site.stat().st_ino
    again = start("", packages=(package,), module="trainer.task")
    assert again.settle(AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
    assert site.stat().st_ino == before
    assert "Installing the package: gs://b/trainer-0.1.tar.gz" not in again.texts()


@pytest.mark.usefixtures("offline")
def test_jobs_that_need_the_same_packages_at_once_share_them(start: Start, tmp_path: Path) -> None:
    package = _sdist(tmp_path / "trainer-0.1.tar.gz", _setup(), TASK)
    (tmp_path / "packages" / "site.partial-1" / "half").mkdir(parents=True)
    attempts = [start("", packages=(package,), module="trainer.task") for _ in range(3)]
    assert [each.settle(AttemptPhase.ENDED).outcome for each in attempts] == [JobState.SUCCEEDED] * 3
    assert {path.name for path in (tmp_path / "packages").iterdir()} == {"site", "site.lock"}
    assert sum("Installing the package: gs://b/trainer-0.1.tar.gz" in each.texts() for each in attempts) == 1


def _wheel(path: Path, name: str, code: str, metadata: str = "") -> Path:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}/__init__.py", code)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{metadata}")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(
            f"{info}/RECORD", f"{name}/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
        return Path(str(archive.filename))


@pytest.mark.usefixtures("offline")
def test_what_a_package_requires_and_the_runtime_lacks_is_installed_beside_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wheels").mkdir()
    _wheel(tmp_path / "wheels", "trainshed_test_requirement", "WORD = 'found'\n")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    task = TASK | {"trainer/task.py": "import trainshed_test_requirement as r\nprint(r.WORD)\n"}
    setup = _setup("'trainshed-test-requirement>=1', 'psutil'")
    attempt = start("", packages=(_sdist(tmp_path / "t.tar.gz", setup, task),), module="trainer.task")
    assert attempt.settle(AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
    assert "found" in attempt.texts()
    assert (tmp_path / "packages" / "site" / "trainshed_test_requirement").is_dir()
    assert not (tmp_path / "packages" / "site" / "psutil").exists()


@pytest.mark.usefixtures("offline")
def test_a_package_that_was_replaced_is_not_installed_under_the_name_of_another(start: Start, tmp_path: Path) -> None:
    promised = _sdist(tmp_path / "x.tar.gz", _setup(), {"trainer/__init__.py": "", "trainer/task.py": "print('good')"})
    _sdist(tmp_path / "x.tar.gz", _setup(), {"trainer/__init__.py": "", "trainer/task.py": "print('other')"})
    ended = start("", packages=(promised,), module="trainer.task").settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.FAILED
    assert "was replaced" in message_of(ended)


def test_a_wheel_is_installed(start: Start, tmp_path: Path) -> None:
    wheel = _wheel(tmp_path, "wheeled", "print('rolling')\n", "Requires-Dist: absent ; extra == 'all'\n")
    attempt = start("", packages=(package_of(wheel),), module="wheeled.__init__")
    assert attempt.settle(AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
    assert "rolling" in attempt.texts()


@pytest.mark.fault("F34")
@pytest.mark.usefixtures("offline")
def test_a_requirement_that_cannot_be_had_fails_the_job_in_uvs_words(start: Start, tmp_path: Path) -> None:
    package = _sdist(tmp_path / "t.tar.gz", _setup("'no-such-package-anywhere==9'"), TASK)
    attempt = start("", packages=(package,), module="trainer.task")
    ended = attempt.settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.FAILED
    assert "no-such-package-anywhere" in message_of(ended)
    assert not (tmp_path / "packages" / "site").exists()
    assert attempt.seen().started_us is None


@pytest.mark.fault("F34")
@pytest.mark.usefixtures("offline")
def test_a_setup_that_fails_shows_its_traceback(start: Start, tmp_path: Path) -> None:
    package = _sdist(tmp_path / "t.tar.gz", "raise RuntimeError('my setup is broken')\n", TASK)
    ended = start("", packages=(package,), module="trainer.task").settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.FAILED
    assert "my setup is broken" in message_of(ended)


@pytest.mark.fault("F34")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a tar or zip"),
        (b"<html>404</html>" * 99, "not a tar or zip"),
        (None, "There is no package gs://b/x.tar.gz"),
    ],
)
def test_a_file_that_is_no_package_fails_the_job(
    start: Start, tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "x.tar.gz"
    if content is not None:
        path.write_bytes(content)
    attempt = start("", packages=(package_of(path),), module="trainer.task")
    ended = attempt.settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.FAILED
    assert words in message_of(ended)


@pytest.mark.fault("F35")
def test_a_hostile_archive_fails_the_job_and_writes_nothing_outside(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "evil.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("../../../escaped")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    attempt = start("", packages=(package_of(path),), module="trainer.task")
    ended = attempt.settle(AttemptPhase.ENDED)
    assert ended.outcome is JobState.FAILED
    assert "'../../../escaped' leads out of the archive" in message_of(ended)
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.usefixtures("offline")
def test_a_job_can_be_cancelled_while_its_packages_are_installed(start: Start, tmp_path: Path) -> None:
    sign = tmp_path / "building"
    setup = f"import time\nopen({str(sign)!r}, 'w').close()\ntime.sleep(60)\n"
    attempt = start("", packages=(_sdist(tmp_path / "t.tar.gz", setup, TASK),), module="trainer.task", grace_s=1.0)
    eventually(sign.exists)
    assert attempt.seen().phase is AttemptPhase.PREPARING
    attempt.engine.cancel(attempt.folder)
    assert attempt.settle(AttemptPhase.ENDED).outcome is JobState.CANCELLED
    assert not (tmp_path / "packages" / "site").exists()
    assert not (attempt.folder / "packages").exists()
