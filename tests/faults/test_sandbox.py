"""The sandbox around replicas: what user code can't do in it, and all that must still work. Real processes."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from trainshed.config import Home
from trainshed.engines.local.engine import LocalEngine
from trainshed.engines.local.sandbox import Sandbox, SandboxCheck, SandboxLevel, require
from trainshed.errors import CannotProceedError
from trainshed.node.sandbox import landlock
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.cells import SYSTEM_PYTHON, USER, Cellblock, cellblock, send_command
from trainshed.testing.processes.surroundings import Surroundings, build_surroundings, run_probe
from trainshed.testing.workloads import probe
from trainshed.testing.workloads.job_logs import records

IS_ROOT = os.geteuid() == 0
IDENTITIES = [
    pytest.param(0, id="root", marks=pytest.mark.skipif(not IS_ROOT, reason="needs root")),
    pytest.param(USER if IS_ROOT else os.geteuid(), id="user"),
]


@pytest.fixture(params=IDENTITIES)
def block(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cellblock]:
    """A state folder of root, and one of an ordinary user."""
    if request.param and IS_ROOT and not SYSTEM_PYTHON.exists():
        pytest.skip("an ordinary user has no Python here")
    with cellblock(tmp_path / "block", user=request.param if IS_ROOT else 0) as made:
        yield made


# -- ways out


@pytest.fixture
def surroundings(block: Cellblock) -> Iterator[Surroundings]:
    with build_surroundings(block) as made:
        yield made


@pytest.mark.fault("F69")
def test_no_way_leads_out_of_the_full_level(block: Cellblock, surroundings: Surroundings) -> None:
    inside = run_probe(block, surroundings, "full")
    assert {name for name, succeeded in inside.items() if succeeded} == set()


def test_without_a_sandbox_the_same_ways_succeed(block: Cellblock, surroundings: Surroundings) -> None:
    outside = run_probe(block, surroundings, "none")
    expected = set(probe.WAYS) - probe.MACHINE_WAYS - (probe.ROOT_WAYS if block.user else set())
    assert {name for name, succeeded in outside.items() if not succeeded} & expected == set()


@pytest.mark.skipif(not landlock.version(), reason="the kernel has no Landlock")
def test_landlock_alone_hides_what_files_hold(block: Cellblock, surroundings: Surroundings) -> None:
    found = run_probe(block, surroundings, "landlock")
    hidden = {name for name in probe.WAYS if name.startswith(("read ", "write ", "list ", "run a hidden", "truncate"))}
    hidden -= {"read /etc/shadow", "read the machine's /dev/shm"}  # root owns the one, and all share the other
    assert {name for name in hidden if found[name]} == set()
    assert found["stat a hidden file"], "as the page says of this level"


# -- what must work


@pytest.mark.parametrize(
    ("end", "code", "number"),
    [
        ("raise SystemExit(7)", 7, None),
        ("os.kill(os.getpid(), signal.SIGTERM)", None, signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGKILL)", None, signal.SIGKILL),
        ("os.abort()", None, signal.SIGABRT),
    ],
)
def test_the_supervisor_sees_how_the_replica_ended(
    block: Cellblock, end: str, code: int | None, number: int | None
) -> None:
    spec = block.spec("ends", f"import os, signal\n{end}\n")
    block.start(spec, "full")
    exited = eventually(
        lambda: [event for event in block.events(spec) if event["event"] == "replica_exited"], lambda events: events
    )
    assert (exited[0]["code"], exited[0]["signal"]) == (code, number)


WRITES = """
import glob, multiprocessing, os, pathlib, subprocess, sys, tempfile
from multiprocessing import shared_memory

def double(number):
    return 2 * number

if __name__ == "__main__":
    home = os.path.expanduser("~")
    for folder in (os.getcwd(), "/tmp", "/var/tmp", "/dev/shm", home, tempfile.gettempdir(), sys.argv[1]):
        pathlib.Path(folder, "mine").write_text("x")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print("POOL", pool.map(double, [1, 2]))
    memory = shared_memory.SharedMemory(create=True, size=8)
    memory.close()
    memory.unlink()
    multiprocessing.Lock()
    print("PROCESSES", len(glob.glob("/proc/[0-9]*")) < 10, os.getpid(), os.getpgrp() == os.getpid())
    print("PROGRAMS", subprocess.run(["sh", "-c", "exit 3"]).returncode, os.path.exists("/etc/passwd"))
    print("PTY", os.isatty(os.openpty()[1]))
"""


def test_a_trainer_finds_what_it_needs_and_files_have_one_owner(block: Cellblock) -> None:
    bucket = block.home.buckets / "own"
    bucket.mkdir(parents=True)
    (block.path / "account" / "of-the-user").touch()
    spec = block.spec("writes", WRITES, str(bucket))
    lines = block.run(replace(spec, writable=(bucket,)), "full")
    assert "POOL [2, 4]" in lines, lines
    assert "PROCESSES True 2 True" in lines
    assert "PROGRAMS 3 True" in lines
    assert "PTY True" in lines
    assert "The sandbox has the level full." in lines
    assert {path.stat().st_uid for path in (bucket / "mine", spec.folder / "work" / "mine")} == {
        block.user or os.geteuid()
    }
    assert not (block.path / "account" / "mine").exists()
    assert not (spec.folder / "private").exists(), "it is removed with the job's end"


GOODBYE = """
import signal, sys, time
def leave(number, frame):
    print("goodbye", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""


def test_signals_reach_the_replica_itself(block: Cellblock) -> None:
    spec = block.spec("signals", GOODBYE)
    block.start(spec, "full")
    eventually(lambda: block.lines(spec), lambda lines: "ready" in lines)
    send_command(spec.folder, b"kill master-replica-0 %d\n" % signal.SIGSTOP)
    samples = spec.folder / "samples.jsonl"
    eventually(lambda: records(samples)[-1:], lambda last: bool(last) and last[0].get("state") == "T")
    send_command(spec.folder, b"kill master-replica-0 %d\n" % signal.SIGCONT)
    send_command(spec.folder, b"cancel\n")
    assert block.end(spec)["outcome"] == "CANCELLED"
    assert "goodbye" in block.lines(spec)


def test_a_replica_dies_with_its_supervisor(block: Cellblock) -> None:
    code = "import os, time\nfor _ in range(2):\n    os.fork()\nos.setsid() if os.getpid() != 2 else None\n"
    spec = block.spec("dies", code + "os.write(1, b'ready\\n')\ntime.sleep(600)\n")
    block.start(spec, "full")
    eventually(lambda: block.lines(spec), lambda lines: lines.count("ready") == 4)
    started = block.events(spec)[0]
    for name in ("reaper", "pid"):
        os.kill(started[name], signal.SIGKILL)
    mark = f"{spec.folder}".encode()
    eventually(lambda: [pid for pid in _pids() if mark in _environ(pid)], lambda left: not left)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


HANGS = "import time\n\ndef stuck_here():\n    time.sleep(600)\n\nprint('ready', flush=True)\nstuck_here()\n"


def test_a_replica_that_hangs_is_reported_with_its_stack(block: Cellblock) -> None:
    spec = replace(block.spec("hangs", HANGS), hang_timeout_s=1.0)
    tool = Path(sys.executable).with_name("py-spy")
    block.start(spec, "full", py_spy=str(shutil.copy(tool, block.path / "py-spy")))
    hung = eventually(
        lambda: [event for event in block.events(spec) if event["event"] == "replica_hung"], lambda events: events
    )
    [thread] = hung[0]["stack"]
    assert thread["name"] == "MainThread"
    assert "stuck_here" in str(thread["frames"]), hung
    send_command(spec.folder, b"cancel\n")
    block.end(spec)


AGAIN = """
import os, signal
if not os.path.exists("/tmp/before"):
    open("/tmp/before", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
print("AGAIN", os.path.exists("/tmp/before"))
"""


def test_a_restarted_replica_keeps_its_tmp(block: Cellblock) -> None:
    assert "AGAIN True" in block.run(block.spec("again", AGAIN), "full")


LINKS = """
import os, signal, sys
os.rename(sys.argv[1], "/tmp/moved")
os.symlink(sys.argv[2], sys.argv[1])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_link_that_a_replica_leaves_leads_its_next_start_nowhere(block: Cellblock) -> None:
    """The next start mounts folders below `/tmp` again. It must not follow a link there, outside of the sandbox."""
    target = block.path / "target"
    target.mkdir()
    parts = block.path.parts
    if parts[:2] != ("/", "tmp"):
        pytest.skip("the folder of the tests is not in /tmp")
    spec = block.spec("links", LINKS, f"/tmp/{parts[2]}", str(target))
    block.start(spec, "full")
    ended = block.end(spec)
    assert ended["outcome"] == "FAILED"
    assert "its sandbox can't be set up" in ended["failure"]["message"], ended
    assert list(target.iterdir()) == []


def test_a_warm_start_is_in_the_sandbox_too(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    sandbox = Sandbox(home=home, level=SandboxCheck(home, "auto").result())
    python = Path(sys.executable)
    engine = LocalEngine(home, Path("uv"), {python: ("decimal",)}, sandbox=sandbox)
    with cellblock(tmp_path / "block", user=0) as block, closing(engine.warm):
        code = "import os, sys\nprint('IN', os.getpid(), 'decimal' in sys.modules, os.path.exists(sys.argv[1]))\n"
        started = []
        for name in ("first", "second"):
            spec = block.spec(name, code, str(home.warm))
            spec = replace(spec, env={"PYTHONPATH": str(block.site)})  # as the warm process has it
            engine.warm.prepare(python)
            eventually(lambda: engine.warm.is_ready(python))
            engine.launch(spec)
            block.end(spec)
            assert "IN 2 True False" in block.lines(spec), block.lines(spec)
            started.append(block.events(spec)[0]["start"])
        assert started == ["warm", "warm"]


# -- levels


def test_the_level_is_found_by_trying_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    found = SandboxCheck(home, "auto").result()
    assert found.level == "full", found
    assert [path.name for path in home.path.iterdir()] == []
    off = SandboxCheck(home, "none").result()
    assert off.level == "none"
    assert "turns it off" in off.note


@pytest.mark.parametrize(
    ("level", "setting", "refused"),
    [
        ("landlock", "full", True),
        ("none", "landlock", True),
        ("landlock", "landlock", False),
        ("full", "landlock", False),
        ("none", "auto", False),
    ],
)
def test_a_level_below_the_setting_is_refused(level: str, setting: str, refused: bool) -> None:
    found = SandboxLevel(level=level, reason="Operation not permitted at /proc")
    if not refused:
        require(found, setting)
        return
    with pytest.raises(CannotProceedError, match=r"Operation not permitted at /proc.*max_user_namespaces"):
        require(found, setting)
