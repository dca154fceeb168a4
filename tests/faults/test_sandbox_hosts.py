"""The sandbox around hosts, reference processes and TensorBoards: what they can't reach, and what must still work."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from trainshed.config import Home, Settings
from trainshed.engines.hosts.spec import HostSpec
from trainshed.engines.hosts.watcher import HostPhase, HostStatus
from trainshed.engines.local.hosts import LocalHostEngine
from trainshed.engines.local.limits import WATCHED, UserCodeLimits, find_limits
from trainshed.engines.local.sandbox import FIRST_UID, Sandbox, SandboxLevel
from trainshed.engines.local.warm import WarmProcesses
from trainshed.engines.shipping import ship
from trainshed.node.process.tree import descendants, stat_fields
from trainshed.node.sandbox import landlock
from trainshed.serving.frames import FrameKind
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.scripted_hosts import ship_scripted
from trainshed.testing.processes.cells import Cellblock, cellblock
from trainshed.testing.processes.surroundings import build_surroundings
from trainshed.testing.workloads import probe

PYTHON = Path(sys.executable)
#: A prediction class that tries the ways out of the sandbox, or runs what it is asked to.
PROBE_MODEL = """
import json, os, subprocess, sys

class Model:
    @classmethod
    def from_path(cls, path):
        return cls()

    def predict(self, instances, **kwargs):
        return [self.look(each) for each in instances]

    def look(self, asked):
        if "targets" in asked:
            program = os.path.join(os.path.dirname(__file__), "probe.py")
            command = [sys.executable, program, json.dumps(asked["targets"])]
            return subprocess.run(command, stdout=subprocess.PIPE).stdout.decode()
        return repr(eval(asked["code"]))
"""


class HostsInCells:
    """Hosts of a probe model, at a level of the sandbox."""

    def __init__(
        self, block: Cellblock, level: str, node: Path | None = None, limits: UserCodeLimits | None = None
    ) -> None:
        """With `node`, which has scripted hosts, they are forked from a warm process."""
        self.block = block
        self.site = block.path / "packages" / "site"
        self.site.mkdir(parents=True)
        (self.site / "probe_model.py").write_text(PROBE_MODEL)
        for name, text in probe.source().items():
            (self.site / name).write_text(text)
        self.model = block.home.models / "p" / "model"
        self.model.mkdir(parents=True)
        (self.model / "weights").write_text("x")
        found = SandboxLevel(level=level, uid=FIRST_UID if os.geteuid() == 0 and level == "full" else 0)
        modules = {PYTHON: ("decimal",)} if node is not None else {}
        node = node or ship(block.home.node)
        self.warm = WarmProcesses(block.home, modules=modules, ship=lambda: node)
        networks = block.sandbox(level).networks
        sandbox = Sandbox(home=block.home, level=found, limits=limits, networks=networks)
        self.engine = LocalHostEngine(block.home, ship=lambda: node, warm=self.warm, sandbox=sandbox)
        self.engine.open(lambda: None)

    def start(self, **changes: object) -> tuple[str, HostStatus]:
        spec = {"site": str(self.site), "loader": "custom", "prediction_class": "probe_model.Model", **changes}
        key = self.engine.start(
            HostSpec(
                project="p",
                model="m",
                version="v",
                instance=0,
                python=PYTHON,
                model_dir=self.model,
                threads=1,
                body_limit=1 << 20,
                **spec,  # type: ignore[arg-type]  # fields of the spec, by their names
            )
        )
        seen = eventually(lambda: self.status(key), lambda seen: seen.phase is not HostPhase.STARTING)
        assert seen.phase is HostPhase.READY, seen.message
        return key, seen

    def status(self, key: str) -> HostStatus:
        seen = self.engine.status(key)
        assert seen is not None
        return seen

    def ask(self, key: str, **asked: object) -> str:
        body = json.dumps({"instances": [asked]}).encode()
        status, response = self.engine.ask(key, FrameKind.PREDICT, body, timeout_s=60)
        assert status == 200, response
        answer: str = json.loads(response)["predictions"][0]
        return answer

    def close(self) -> None:
        self.engine.close()
        self.warm.close()


@contextmanager
def hosts_in_cells(path: Path, level: str) -> Iterator[HostsInCells]:
    with cellblock(path / "block", user=0) as block, closing(HostsInCells(block, level)) as made:
        yield made


def _probe(made: HostsInCells) -> dict[str, bool]:
    with build_surroundings(made.block) as surroundings:
        key, seen = made.start()
        folder = made.engine.folder("p", "m", "v")
        targets = {
            **surroundings.targets,
            "attempt": str(folder),
            "site": str(made.site),
            "socket": str(seen.socket),
            "supervisor": seen.pid,
        }
        output = made.ask(key, targets=targets)
    [line] = [line for line in output.splitlines() if line.startswith("PROBE ")]
    found: dict[str, bool] = json.loads(line.removeprefix("PROBE "))
    assert len(found) == len(probe.WAYS)
    return found


def test_no_way_leads_out_of_a_host(tmp_path: Path) -> None:
    with hosts_in_cells(tmp_path, "full") as made:
        found = _probe(made)
    assert {name for name, succeeded in found.items() if succeeded} == set()


@pytest.mark.skipif(not landlock.version(), reason="the kernel has no Landlock")
def test_landlock_alone_hides_what_files_hold_from_a_host(tmp_path: Path) -> None:
    with hosts_in_cells(tmp_path, "landlock") as made:
        found = _probe(made)
        key, _ = made.start()
        assert made.ask(key, code="__import__('tempfile').mkstemp()[1].startswith(os.environ['TMPDIR'])") == "True"
    hidden = {name for name in probe.WAYS if name.startswith(("read ", "write ", "list ", "run a hidden", "truncate"))}
    hidden -= {"read /etc/shadow", "read the machine's /dev/shm"}  # root owns the one, and all share the other
    assert {name for name in hidden if found[name]} == set()


def test_a_host_has_what_it_needs_and_is_ended_as_before(tmp_path: Path) -> None:
    with hosts_in_cells(tmp_path, "full") as made:
        key, seen = made.start()
        assert made.ask(key, code="os.getpid()") == "2"
        assert made.ask(key, code="open('/tmp/mine', 'w').write('x')") == "1"
        work = made.engine.folder("p", "m", "v") / "work"
        assert made.ask(key, code=f"os.getcwd() == {str(work)!r}") == "True"
        assert made.ask(key, code="open('written', 'w').write('x')") == "1"
        assert (work / "written").stat().st_uid == os.geteuid()
        assert made.ask(key, code=f"os.listdir({str(made.model)!r})") == "['weights']"
        private = made.block.home.hosts / ".private"
        assert len(list(private.iterdir())) == 1
        assert made.engine.memory_use(key)[1] > 0
        made.engine.drain(key)
        eventually(lambda: made.status(key), lambda seen: seen.phase is HostPhase.ENDED)
        eventually(lambda: list(private.iterdir()), lambda left: not left)
        assert not seen.socket.exists()


@pytest.mark.parametrize("victim", ["reaper", "host"])
def test_a_host_dies_with_its_reaper_and_tells_how_it_died(tmp_path: Path, victim: str) -> None:
    with hosts_in_cells(tmp_path, "full") as made:
        key, seen = made.start()
        pids = descendants(seen.pid)
        os.kill(seen.pid if victim == "reaper" else pids[-1], signal.SIGKILL)
        ended = eventually(lambda: made.status(key), lambda seen: seen.phase is HostPhase.ENDED)
        assert "SIGKILL" in ended.message
        eventually(lambda: [pid for pid in pids if stat_fields(pid)], lambda left: not left)


def test_a_host_that_is_forked_from_a_warm_process_is_in_the_sandbox(tmp_path: Path) -> None:
    node = ship_scripted(tmp_path / "node")
    with cellblock(tmp_path / "block", user=0) as block, closing(HostsInCells(block, "full", node)) as made:
        (made.model / "behaviour").write_text("print")
        made.warm.prepare(PYTHON)
        eventually(lambda: made.warm.is_ready(PYTHON))
        key, seen = made.start(site="", loader="keras")
        assert made.engine.ask(key, FrameKind.PREDICT, b"{}", timeout_s=60) == (200, b"{}")
        assert not Path(f"/proc/{seen.pid}/cmdline").read_bytes().endswith(b".json\0"), "it was not forked"
        host = descendants(seen.pid)[-1]
        status = Path(f"/proc/{host}/status").read_text()
        [numbers] = [line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")]
        assert numbers == [str(host), "2"]


def test_what_an_earlier_server_left_is_removed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    left = home.hosts / ".private" / "7" / "tmp"
    left.mkdir(parents=True)
    engine = LocalHostEngine(home, ship=lambda: ship(home.node))
    with closing(engine):
        engine.open(lambda: None)
        assert not left.exists()


@pytest.mark.parametrize("watched", [True, False])
def test_a_host_out_of_memory_ends_with_that_reason(tmp_path: Path, *, watched: bool) -> None:
    with cellblock(tmp_path / "block", user=0) as block:
        limits = find_limits(block.home, Settings(memory_limit_gb=0.3), 1 << 34)
        if watched:
            limits = replace(limits, level=WATCHED, folders={})
        with closing(HostsInCells(block, "full", limits=limits)) as made:
            key, _ = made.start()
            with pytest.raises(Exception, match="host"):
                made.ask(key, code="len(b'x' * (2 << 30))")
            ended = eventually(lambda: made.status(key), lambda seen: seen.phase is HostPhase.ENDED)
        assert "The host reached its limit, out of memory: " in ended.message
        assert "of 300 MB" in ended.message
        assert [path for folder in limits.folders.values() for path in Path(folder).glob("*/")] == []
