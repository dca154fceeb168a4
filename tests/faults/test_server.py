"""What the server does when it cannot start, and what is left when it is killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.resources import small_disk
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.job_logs import records
from trainshed.testing.workloads.submitter import COUNT_UNTIL, Submitter

COUNTING = """
import os, sys, time
print("pid", os.getpid(), flush=True)
for number in range(int(sys.argv[1])):
    print("line", number, flush=True)
    time.sleep(0.05)
"""


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def journal(attempt: Path) -> list[dict[str, object]]:
    return records(attempt / "journal.jsonl")


def test_a_job_outlives_its_server(own_server: RunningServer, tmp_path: Path) -> None:
    jobs, enough = Submitter(own_server, "outlive", tmp_path), tmp_path / "enough"
    jobs.submit("steady", COUNT_UNTIL, args=[str(enough)])
    jobs.wait("steady", {"RUNNING"})
    [started] = [e for e in journal(jobs.attempt("steady")) if e["event"] == "replica_started"]
    pid = int(str(started["pid"]))

    own_server.kill()
    log = jobs.attempt("steady") / "log.jsonl"
    without = len(records(log))
    eventually(lambda: len(records(log)), (without + 10).__lt__)  # it goes on without a server
    assert alive(pid)
    own_server.start()
    assert jobs.get("steady")["state"] == "RUNNING"  # the first answer of the new server already says so
    assert alive(pid)

    before = len(_numbers(jobs, "steady"))
    eventually(lambda: len(_numbers(jobs, "steady")), (before + 10).__lt__)  # the new server reads on
    enough.touch()
    done = jobs.wait("steady")
    assert done["state"] == "SUCCEEDED"
    [last] = [int(line.split()[-1]) for line in jobs.lines("steady") if line.startswith("the last one was ")]
    assert _numbers(jobs, "steady") == list(range(last + 1))
    assert [e["event"] for e in journal(jobs.attempt("steady"))].count("replica_started") == 1


def _numbers(jobs: Submitter, job: str) -> list[int]:
    return [int(line.split()[1]) for line in jobs.lines(job) if line.startswith("line ")]


def test_a_job_that_ends_while_the_server_is_down_is_finished_by_the_next(
    own_server: RunningServer, tmp_path: Path
) -> None:
    jobs, enough = Submitter(own_server, "meanwhile", tmp_path), tmp_path / "enough"
    jobs.submit("short", COUNT_UNTIL, args=[str(enough)])
    jobs.wait("short", {"RUNNING"})
    own_server.kill()
    enough.touch()
    eventually(lambda: journal(jobs.attempt("short"))[-1]["event"], "ended".__eq__)
    own_server.start()
    assert jobs.wait("short")["state"] == "SUCCEEDED"
    assert jobs.lines("short")[-1] == "Job completed successfully."


@pytest.mark.fault("F30")
@pytest.mark.parametrize("role", ["pid", "reaper"])
def test_a_killed_supervisor_fails_the_job_and_leaves_nothing(
    own_server: RunningServer, tmp_path: Path, role: str
) -> None:
    jobs = Submitter(own_server, "orphaned", tmp_path)
    leaver = "import subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\n" + COUNTING
    jobs.submit("victim", leaver, args=["20000"])
    jobs.wait("victim", {"RUNNING"})
    events = journal(jobs.attempt("victim"))
    [supervisor] = [e for e in events if e["event"] == "supervisor_started"]
    [replica] = [e for e in events if e["event"] == "replica_started"]
    os.kill(int(str(supervisor[role])), signal.SIGKILL)
    failed = jobs.wait("victim", {"FAILED"})
    assert "was killed" in failed["errorMessage"]
    assert not alive(int(str(replica["pid"])))
    assert marked("victim") == []


def marked(job: str) -> list[int]:
    """Processes that a job's environment was handed down to."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"TRAINSHED_JOB={job}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


@pytest.mark.fault("F27")
def test_cancel_ends_everything(own_server: RunningServer, tmp_path: Path) -> None:
    jobs = Submitter(own_server, "cancels", tmp_path)
    stubborn = (
        "import signal, subprocess, sys\nsignal.signal(signal.SIGTERM, lambda *a: print('told to end', flush=True))\n"
        "subprocess.Popen([sys.executable, '-c', 'import os, time\\nif os.fork(): os._exit(0)\\nos.setsid()\\n"
        "time.sleep(600)'])\n"
    )
    jobs.submit("stubborn", stubborn + COUNTING, args=["20000"])
    jobs.wait("stubborn", {"RUNNING"})
    while "line 0" not in jobs.lines("stubborn"):
        time.sleep(0.05)
    own_server.call("POST", "/v1/projects/cancels/jobs/stubborn:cancel", {})
    assert jobs.get("stubborn")["state"] in ("CANCELLING", "CANCELLED")
    jobs.wait("stubborn", {"CANCELLED"})
    assert marked("stubborn") == []
    assert "told to end" in jobs.lines("stubborn")


TAMPERING = {
    "list": "open(up + '/journal.jsonl', 'a').write('[]\\n')",
    "outcome": """open(up + '/journal.jsonl', 'a').write('{"event":"ended","outcome":"QUEUED","t":1}\\n')""",
    "gone": "os.unlink(up + '/journal.jsonl')",
    "moved": "os.rename(up, up + '-moved')",
    "fifo": "os.unlink(up + '/journal.jsonl'); os.mkfifo(up + '/journal.jsonl')",
    "lock_link": "os.unlink(up + '/lock'); os.symlink('/etc/passwd', up + '/lock')",
    "lock_fifo": "os.unlink(up + '/lock'); os.mkfifo(up + '/lock')",
    "lock_gone": "os.unlink(up + '/lock')",
    "long": "open(up + '/journal.jsonl', 'a').write('x' * (5 << 20))",
}


@pytest.fixture
def wide_server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server with room for all who spoil their folders and for one more job."""
    running = RunningServer(tmp_path / "home", {"slots": len(TAMPERING) + 1}).start()
    yield running
    running.kill()
    running.end_jobs()


@pytest.mark.fault("F36")
def test_a_trainer_that_spoils_its_folder_spoils_nobody_elses_job(wide_server: RunningServer, tmp_path: Path) -> None:
    jobs, signs = Submitter(wide_server, "tampering", tmp_path), tmp_path / "signs"
    signs.mkdir()
    for name, code in TAMPERING.items():
        spoil = (
            f"import os, time\nup = os.path.dirname(os.getcwd())\n{code}\nopen({str(signs / name)!r}, 'w').close()\n"
        )
        jobs.submit(
            f"spoils_{name}", f"{spoil}while not os.path.exists({str(signs)!r} + '/go'):\n    time.sleep(0.02)\n"
        )
    eventually(lambda: {path.name for path in signs.iterdir()}, lambda spoilt: spoilt == set(TAMPERING))
    jobs.submit("good", "print('fine')")
    assert jobs.wait("good")["state"] == "SUCCEEDED"  # the server has looked at the others many times
    (signs / "go").touch()
    for name in TAMPERING:
        jobs.wait(f"spoils_{name}")
    # What says that a job runs may be spoilt before it ends.
    eventually(lambda: [name for name in TAMPERING if marked(f"spoils_{name}")], lambda left: not left)
    jobs.submit("later", "print('still fine')")
    assert jobs.wait("later")["state"] == "SUCCEEDED"
    assert wide_server.stop() == 0


def test_the_time_limit_is_kept(own_server: RunningServer, tmp_path: Path) -> None:
    jobs = Submitter(own_server, "limited", tmp_path)
    jobs.submit("slow", COUNTING, args=["20000"], scheduling={"maxRunningTime": "2s"})
    ended = jobs.wait("slow", {"CANCELLED"})
    assert "maxRunningTime" in ended["errorMessage"]


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def refusal(home: Path, **settings: object) -> str:
    with pytest.raises(RuntimeError) as refused:
        RunningServer(home, settings).start()
    return str(refused.value)


@pytest.mark.fault("F16")
def test_a_port_in_use_is_named_and_nothing_is_touched(tmp_path: Path) -> None:
    with taken_port() as port:
        words = refusal(tmp_path / "home", port=port)
    assert f"Port {port} of 127.0.0.1 can't be used" in words
    assert str(os.getpid()) in words
    assert {path.name for path in (tmp_path / "home").iterdir()} == {"server.log"}


@pytest.mark.fault("F07")
def test_a_second_server_on_the_same_folder_is_refused(own_server: RunningServer) -> None:
    before = (own_server.home / "server.json").read_text()
    assert "Another server runs on the state folder" in refusal(own_server.home)
    assert (own_server.home / "server.json").read_text() == before
    assert Caller(own_server.url)("GET", "/healthz")[0] == 200


@pytest.mark.fault("F05")
@pytest.mark.parametrize("damage", ["empty", "truncated", "overwritten", "text"])
def test_a_damaged_database_is_refused_and_left_as_it_is(
    own_server: RunningServer, tmp_path: Path, damage: str
) -> None:
    with_job = damage == "overwritten"  # one kind is enough to see that jobs go on
    if with_job:
        jobs = Submitter(own_server, "damage", tmp_path)
        jobs.submit("steady", COUNT_UNTIL, args=[str(tmp_path / "enough")])
        jobs.wait("steady", {"RUNNING"})
        [started] = [e for e in journal(jobs.attempt("steady")) if e["event"] == "replica_started"]
    assert own_server.stop() == 0
    path = own_server.home / "state.db"
    sound = path.read_bytes()
    bad = {
        "empty": b"",
        "truncated": sound[: len(sound) // 2],
        "overwritten": sound[:4096] + b"\xa5" * 4096 + sound[8192:],
        "text": b"not a database",
    }[damage]
    path.write_bytes(bad)
    words = refusal(own_server.home)
    assert f"The database {path} is damaged" in words
    assert "trainshed restore --replace " in words
    assert path.read_bytes() == bad
    if with_job:
        assert alive(int(str(started["pid"])))


@pytest.fixture
def small_home(tmp_path: Path) -> Iterator[Path]:
    """A state folder on a file system of 24 MB."""
    with small_disk(tmp_path, "24m"):
        yield tmp_path / "home"


@pytest.mark.fault("F10", "F16")
@pytest.mark.parametrize("left_bytes", [0, 512 << 10], ids=["nothing is free", "512 kB are free"])
def test_a_start_on_a_full_disk_is_refused_and_changes_nothing(small_home: Path, left_bytes: int) -> None:
    server = RunningServer(small_home).start()
    assert server.stop() == 0
    state = (small_home / "state.db").read_bytes()
    filler = small_home.parent / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small_home).free - left_bytes))
    # The server's log is on the same disk, so its stderr is read.
    command = [sys.executable, "-m", "trainshed.cli", "serve", "--port=0", "--tls-port=0"]
    env = os.environ | {"TRAINSHED_HOME": str(small_home)}
    refused = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=600)
    words = refused.stderr
    assert refused.returncode == 1, words
    assert f"The disk that holds the state folder {small_home} is full" in words
    assert f": {left_bytes / (1 << 20):.1f} MB are free, and a start needs 1 MB" in words
    assert "free some space on that disk" in words
    assert "Traceback" not in words
    assert (small_home / "state.db").read_bytes() == state
    filler.unlink()
    assert server.start().stop() == 0


@pytest.mark.fault("F05", "F17")
def test_a_database_from_the_future_is_refused(own_server: RunningServer) -> None:
    import sqlite3

    assert own_server.stop() == 0
    with contextlib.closing(sqlite3.connect(own_server.home / "state.db")) as database:
        database.execute("insert into trainshed_schema (version) values (999)")
        database.commit()
    assert "written by a newer Trainshed" in refusal(own_server.home)


@pytest.mark.fault("F71")
def test_other_machines_are_not_let_in_without_authentication(tmp_path: Path) -> None:
    words = refusal(tmp_path / "home", host="0.0.0.0", authentication="false")
    assert "Without authentication" in words


def test_a_file_in_place_of_the_state_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("")
    words = refusal(tmp_path / "home", database="mysql://nowhere")
    assert "postgresql://" in words


@pytest.mark.fault("F15")
def test_sigterm_lets_trainings_live_and_exits_with_0(own_server: RunningServer, tmp_path: Path) -> None:
    jobs, enough = Submitter(own_server, "survive", tmp_path), tmp_path / "enough"
    jobs.submit("steady", COUNT_UNTIL, args=[str(enough)])
    jobs.wait("steady", {"RUNNING"})
    [started] = [e for e in journal(jobs.attempt("steady")) if e["event"] == "replica_started"]
    assert own_server.stop() == 0
    assert alive(int(str(started["pid"])))
    own_server.start()
    enough.touch()
    assert jobs.wait("steady")["state"] == "SUCCEEDED"
