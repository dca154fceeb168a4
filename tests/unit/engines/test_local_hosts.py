"""Real processes of hosts, with models that do what a test says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from trainshed.config import Home
from trainshed.engines.hosts.spec import HostSpec
from trainshed.engines.hosts.watcher import HostPhase, HostStatus
from trainshed.engines.local.hosts import LocalHostEngine
from trainshed.engines.local.warm import WarmProcesses
from trainshed.errors import EngineUnavailableError
from trainshed.node.process.tree import stat_fields
from trainshed.serving.frames import FrameKind
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.scripted_hosts import ship_scripted

PYTHON = Path(sys.executable)


class Shed:
    """Where hosts are started; with a warm process to fork them from, or without."""

    def __init__(self, path: Path, *, warm: bool = False) -> None:
        self.path = path
        self.news = threading.Event()
        home = Home(path / "home")
        self.warm = WarmProcesses(home, modules={PYTHON: ("decimal",)} if warm else {}, ship=self.ship)
        self.hosts = LocalHostEngine(home, ship=self.ship, warm=self.warm)
        self.hosts.open(self.news.set)
        if warm:
            self.warm.prepare(PYTHON)
            eventually(lambda: self.warm.is_ready(PYTHON))

    def ship(self) -> Path:
        return ship_scripted(self.path / "node")

    def close(self) -> None:
        self.hosts.close()
        self.warm.close()

    def spec(self, *behaviour: str, instance: int = 0) -> HostSpec:
        folder = self.path / "-".join(("model", *behaviour))
        folder.mkdir(exist_ok=True)
        (folder / "behaviour").write_text(" ".join(behaviour))
        return HostSpec(
            project="p",
            model="m",
            version="v",
            instance=instance,
            python=PYTHON,
            model_dir=folder,
            loader="tensorflow",
            threads=1,
            body_limit=1 << 20,
        )

    def until(self, key: str, phase: HostPhase) -> HostStatus:
        seen = eventually(
            lambda: self.hosts.status(key), lambda seen: seen is not None and seen.phase in (phase, HostPhase.ENDED)
        )
        assert seen is not None
        assert seen.phase is phase, seen
        return seen


@pytest.fixture(params=[False, True], ids=["cold", "forked"])
def shed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shed]:
    shed = Shed(tmp_path, warm=request.param)
    yield shed
    shed.close()


def gone(pid: int) -> bool:
    fields = stat_fields(pid)
    return not fields or fields[0] == b"Z"


def test_a_host_gets_ready_and_answers(shed: Shed) -> None:
    key = shed.hosts.start(shed.spec("print"))
    seen = shed.until(key, HostPhase.READY)
    assert seen.ready["detail"] == "scripted"
    assert shed.news.wait(60)  # which comes a moment later
    assert shed.hosts.ask(key, FrameKind.PREDICT, b"{}", timeout_s=30) == (200, b"{}")
    pid, memory = shed.hosts.memory_use(key)
    assert not gone(pid)
    assert memory > 0
    log = shed.path / "home" / "hosts" / "p" / "m" / "v" / "0.log"
    eventually(log.read_text, lambda text: "what the model prints" in text)
    shed.hosts.drain(key)
    shed.until(key, HostPhase.ENDED)
    eventually(seen.socket.exists, lambda there: not there)
    shed.hosts.forget(key)
    assert shed.hosts.status(key) is None
    with pytest.raises(EngineUnavailableError):
        shed.hosts.ask(key, FrameKind.PREDICT, b"{}", timeout_s=30)


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("fail", "Failed to load model: it is broken (Error code: 0)"),
        ("segfault", "The host was killed by SIGSEGV."),
        ("nonsense", "The host sent an invalid line"),
    ],
)
def test_one_that_fails_says_why(shed: Shed, behaviour: str, message: str) -> None:
    key = shed.hosts.start(shed.spec(behaviour))
    assert shed.until(key, HostPhase.ENDED).message.startswith(message)


@pytest.mark.parametrize("said", ["loader", "batching", "invariance", "precision", "sample", "signatures", "endless"])
def test_one_that_makes_something_up_is_not_believed(shed: Shed, said: str) -> None:
    key = shed.hosts.start(shed.spec(f"odd-{said}"))
    message = shed.until(key, HostPhase.ENDED).message
    assert message.startswith("The host said more than" if said == "endless" else "The host sent an invalid line")


def test_only_what_needs_no_packages_of_its_own_is_forked(tmp_path: Path) -> None:
    shed = Shed(tmp_path, warm=True)
    with closing(shed):
        plain = shed.spec("environment")
        for spec, forked in (
            (plain, True),
            (replace(plain, loader="keras"), True),
            (replace(plain, loader="openvino"), False),
            (replace(plain, site=str(tmp_path)), False),
        ):
            key = shed.hosts.start(spec)
            shed.until(key, HostPhase.READY)
            environment = json.loads((plain.model_dir / "environment").read_text())
            assert ("PYTHONPATH" in environment) is forked
            shed.hosts.kill(key)
            shed.until(key, HostPhase.ENDED)


def test_a_forked_host_outlives_the_warm_process(tmp_path: Path) -> None:
    shed = Shed(tmp_path, warm=True)
    with closing(shed):
        key = shed.hosts.start(shed.spec())
        shed.until(key, HostPhase.READY)
        shed.warm.close()
        assert shed.hosts.ask(key, FrameKind.PREDICT, b"{}", timeout_s=30) == (200, b"{}")
        shed.hosts.drain(key)
        assert "exit status 0" in shed.until(key, HostPhase.ENDED).message


def test_last_words_are_in_the_message(shed: Shed) -> None:
    key = shed.hosts.start(shed.spec("print", "segfault"))
    assert shed.until(key, HostPhase.ENDED).message.endswith("what the model prints")


def test_killing_ends_what_hangs_and_what_it_started(shed: Shed) -> None:
    spec = shed.spec("spawn", "hang")
    key = shed.hosts.start(spec)
    child = int(eventually(lambda: _read(spec.model_dir / "child")))
    shed.hosts.drain(key)  # it does not listen
    shed.hosts.kill(key, reason="It took too long.")
    assert shed.until(key, HostPhase.ENDED).message == "It took too long."
    eventually(
        lambda: gone(child), bool
    )  # a reaper that is too slow is killed with all below it, which may take a moment


def test_a_stopped_reaper_does_not_keep_its_host_alive(shed: Shed) -> None:
    key = shed.hosts.start(shed.spec())
    seen = shed.until(key, HostPhase.READY)
    os.kill(seen.pid, 19)
    shed.hosts.kill(key)
    shed.until(key, HostPhase.ENDED)


def test_a_killed_reaper_takes_its_host_along(shed: Shed) -> None:
    key = shed.hosts.start(shed.spec())
    seen = shed.until(key, HostPhase.READY)
    os.kill(seen.pid, 9)
    shed.until(key, HostPhase.ENDED)
    with pytest.raises(EngineUnavailableError):
        shed.hosts.ask(key, FrameKind.PREDICT, b"{}", timeout_s=30)


def test_a_host_tells_how_it_does(shed: Shed) -> None:
    key = shed.hosts.start(shed.spec())
    shed.until(key, HostPhase.READY)
    figures = eventually(lambda: shed.hosts.stats(key))  # there are none from a host that a busy machine holds up
    assert figures == {"waiting": 3, "requests": 7, "runningSeconds": 0.5}
    shed.hosts.kill(key)
    shed.until(key, HostPhase.ENDED)
    assert shed.hosts.stats(key) == {}


@pytest.mark.parametrize("odd", ["silent", "long", "no-json", "list"])
def test_one_that_tells_nonsense_is_not_waited_for(shed: Shed, odd: str) -> None:
    key = shed.hosts.start(shed.spec(f"figures-{odd}"))
    shed.until(key, HostPhase.READY)
    assert shed.hosts.stats(key) == {}


def test_what_a_model_started_and_hid_from_its_reaper_ends_too(tmp_path: Path) -> None:
    shed = Shed(tmp_path)
    with closing(shed):
        spec = shed.spec("spawn", "kill-reaper")
        key = shed.hosts.start(spec)
        child = int(eventually(lambda: _read(spec.model_dir / "child")))
        assert shed.until(key, HostPhase.ENDED).message == "The host was killed by SIGKILL."
        assert gone(child)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_one_that_puts_something_else_in_the_place_of_its_log_still_ends(
    shed: Shed, make: Callable[[Path], None]
) -> None:
    key = shed.hosts.start(shed.spec())
    seen = shed.until(key, HostPhase.READY)
    log = shed.path / "home" / "hosts" / "p" / "m" / "v" / "0.log"
    log.unlink()
    make(log)
    os.kill(seen.pid, 9)
    assert shed.until(key, HostPhase.ENDED).message == "The host was killed by SIGKILL."


@pytest.mark.parametrize("name", ["1.log", "1.json"])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_start_is_refused_at_once_where_its_files_can_not_be_written(
    shed: Shed, name: str, make: Callable[[Path], None]
) -> None:
    folder = shed.path / "home" / "hosts" / "p" / "m" / "v"
    folder.mkdir(parents=True)
    make(folder / name)
    with pytest.raises(EngineUnavailableError, match=name):
        shed.hosts.start(shed.spec(instance=1))


@pytest.mark.fault("F64", "F68")
def test_hosts_have_nothing_of_the_servers_secrets(shed: Shed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINSHED_TOKEN", "gB7xQ")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "gB7xQ")
    spec = shed.spec("environment")
    shed.until(shed.hosts.start(spec), HostPhase.READY)
    assert "gB7xQ" not in (spec.model_dir / "environment").read_text()


def test_a_log_is_kept_to_a_size(tmp_path: Path) -> None:
    code = (
        "from trainshed.node.process.reaper import run_reaped\n"
        "import os, sys\n"
        "def run():\n"
        "    for _ in range(300):\n"
        "        os.write(2, b'x' * 1000)\n"
        "    return 7\n"
        "sys.exit(run_reaped(0, sys.argv[1], run, 100_000))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path / "log"], stdin=subprocess.PIPE) as process:
        assert process.wait(90) == 7
    sizes = [path.stat().st_size for path in (tmp_path / "log", tmp_path / "log.1")]
    assert all(0 < size <= 100_000 for size in sizes)


def test_all_die_with_the_server(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from test_local_hosts import Shed\n"
        "from trainshed.engines.hosts.watcher import HostPhase\n"
        "shed = Shed(Path(sys.argv[1]))\n"
        "spec = shed.spec('spawn')\n"
        "seen = shed.until(shed.hosts.start(spec), HostPhase.READY)\n"
        "print(seen.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    here = str(Path(__file__).parent)
    with subprocess.Popen([sys.executable, "-c", code, tmp_path, here], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        reaper = int(server.stdout.readline())
        child = int((tmp_path / "model-spawn" / "child").read_text())
        assert not gone(reaper)
        assert not gone(child)
        server.kill()
    eventually(lambda: gone(reaper) and gone(child))


def test_a_long_state_folder_has_its_sockets_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / ("long" * 20) / ("longer" * 10)
    path.mkdir(parents=True)
    shed = Shed(path)
    seen = shed.until(shed.hosts.start(shed.spec()), HostPhase.READY)
    assert len(str(seen.socket)) < 107
    shed.hosts.close()
    again = Shed(path)
    assert not seen.socket.parent.exists()
    again.hosts.close()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
