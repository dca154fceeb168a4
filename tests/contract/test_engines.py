"""Every engine keeps the contract."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from trainshed.config import Home
from trainshed.domain.jobs import JobState
from trainshed.engines.base import Engine, Launch, Replica
from trainshed.engines.local import LocalEngine
from trainshed.errors import EngineDown
from trainshed.testing.engines import EngineContract, FakeEngine

PYTHON = Path(sys.executable)
UV = Path(shutil.which("uv", path=f"{PYTHON.parent}") or shutil.which("uv") or "uv")

WAIT = """
import os, sys, time
folder = sys.argv[1]
with open(folder + "/starts", "a") as file:
    file.write("x")
while not os.path.exists(folder + "/go"):
    time.sleep(0.01)
sys.exit(int(open(folder + "/go").read()))
"""


def _launch(tmp_path: Path, name: str) -> Launch:
    return Launch(
        project="p",
        job=name,
        attempt=1,
        folder=tmp_path / "jobs" / name / "1",
        python=PYTHON,
        module="trainer",
        args=(str(tmp_path / f"signs-{name}"),),
        packages=(),
        site=tmp_path / "site",
        replicas=(Replica(name="master-replica-0", type="master", index=0, primary=True),),
        env={"PYTHONPATH": str(tmp_path / "code")},
        grace_s=5.0,
        max_running_s=60.0,
        log_limit_bytes=1 << 20,
    )


class TestLocalEngine(EngineContract):
    def engine(self, tmp_path: Path) -> Engine:
        return LocalEngine(Home(tmp_path / "home"), UV, slots=4)

    def most(self, engine: Engine) -> int:
        return 4

    def attempt(self, tmp_path: Path, name: str) -> Launch:
        (tmp_path / "code").mkdir(exist_ok=True)
        (tmp_path / "code" / "trainer.py").write_text(WAIT)
        (tmp_path / f"signs-{name}").mkdir()
        return _launch(tmp_path, name)

    def finish(self, engine: Engine, launch: Launch, *, ok: bool) -> None:
        draft = Path(launch.args[0]) / "draft"
        draft.write_text("0" if ok else "3")
        draft.rename(draft.with_name("go"))

    def starts(self, engine: Engine, launch: Launch) -> int:
        starts = Path(launch.args[0]) / "starts"
        return len(starts.read_text()) if starts.exists() else 0

    def test_what_cannot_be_started_is_an_engine_that_is_down(self, tmp_path: Path) -> None:
        (tmp_path / "jobs").write_text("a file where a folder should be")
        with pytest.raises(EngineDown, match="can't be started"):
            self.engine(tmp_path).launch(_launch(tmp_path, "a"))


class TestFakeEngine(EngineContract):
    def engine(self, tmp_path: Path) -> Engine:
        return FakeEngine(slots=4)

    def most(self, engine: Engine) -> int:
        return 4

    def attempt(self, tmp_path: Path, name: str) -> Launch:
        return _launch(tmp_path, name)

    def finish(self, engine: Engine, launch: Launch, *, ok: bool) -> None:
        assert isinstance(engine, FakeEngine)
        outcome, message = (JobState.SUCCEEDED, "") if ok else (JobState.FAILED, "It was told to.")
        engine.finish(launch.folder, outcome=outcome, message=message)

    def starts(self, engine: Engine, launch: Launch) -> int:
        assert isinstance(engine, FakeEngine)
        names = [replica.name for replica in launch.replicas]
        return len(engine.launches) + sum(replica in names for _, replica, _ in engine.kills)

    def test_it_can_be_switched_off(self, tmp_path: Path) -> None:
        engine = FakeEngine()
        engine.down = True
        with pytest.raises(EngineDown):
            engine.launch(_launch(tmp_path, "a"))
