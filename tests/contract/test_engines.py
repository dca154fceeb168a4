"""Every engine keeps the contract."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainshed.config import Home
from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.domain.capacity.placement import GB, ResourceShares
from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.states import JobState
from trainshed.engines.base import AttemptSpec, Engine, RemoteSpec, Replica
from trainshed.engines.local.engine import LocalEngine
from trainshed.engines.ray.engine import PlacementConfig, RayEngine
from trainshed.errors import EngineUnavailableError
from trainshed.testing.clusters.gangs import KEY
from trainshed.testing.contracts.engines import EngineContract, FakeEngine
from trainshed.testing.fakes.local_bridge import LocalBridge
from trainshed.testing.fakes.scripted_bridge import ScriptedBridge

PYTHON = Path(sys.executable)
UV = Path(shutil.which("uv", path=f"{PYTHON.parent}") or shutil.which("uv") or "uv")

KIT: dict[str, Any] = {"files": {}, "sidecar_proxy": None, "ca": ""}
WAIT = """
import os, sys, time
folder = sys.argv[1]
with open(folder + "/starts", "a") as file:
    file.write("x")
while not os.path.exists(folder + "/go"):
    time.sleep(0.01)
sys.exit(int(open(folder + "/go").read()))
"""


def _launch(tmp_path: Path, name: str) -> AttemptSpec:
    return AttemptSpec(
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
        max_running_s=600.0,
        log_limit_bytes=1 << 20,
    )


class TestLocalEngine(EngineContract):
    def engine(self, tmp_path: Path) -> Engine:
        return LocalEngine(Home(tmp_path / "home"), UV, slots=4)

    def max_replicas(self, engine: Engine) -> int:
        return 4

    def attempt(self, tmp_path: Path, name: str) -> AttemptSpec:
        (tmp_path / "code").mkdir(exist_ok=True)
        (tmp_path / "code" / "trainer.py").write_text(WAIT)
        (tmp_path / f"signs-{name}").mkdir()
        return _launch(tmp_path, name)

    def finish(self, engine: Engine, launch: AttemptSpec, *, ok: bool) -> None:
        draft = Path(launch.args[0]) / "draft"
        draft.write_text("0" if ok else "3")
        draft.rename(draft.with_name("go"))

    def starts(self, engine: Engine, launch: AttemptSpec) -> int:
        starts = Path(launch.args[0]) / "starts"
        return len(starts.read_text()) if starts.exists() else 0

    def test_what_cannot_be_started_is_an_engine_that_is_down(self, tmp_path: Path) -> None:
        (tmp_path / "jobs").write_text("a file where a folder should be")
        with pytest.raises(EngineUnavailableError, match="can't be started"):
            self.engine(tmp_path).launch(_launch(tmp_path, "a"))


class TestRayEngine(TestLocalEngine):
    """Capacity is scripted, but supervisors, replica proxies, node agents and replicas are real: only Ray is faked."""

    @pytest.fixture(autouse=True)
    def _link(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        cache = tmp_path / "cache"
        monkeypatch.setenv("TRAINSHED_NODE_CACHE", str(cache))
        self._begun: list[RayEngine] = []
        self._serving = LocalBridge(tmp_path, cache)
        self._serving.start()
        yield
        for engine in self._begun:
            engine.close()
        self._serving.close()

    def engine(self, tmp_path: Path) -> Engine:
        rules = PlacementConfig(
            address="10.0.0.1:6379", strategy="PACK", machines=MachineTypes(), shares=ResourceShares()
        )
        rooms = ScriptedBridge([{"CPU": 4.0, "memory": 16.0 * GB}], self._serving.path)
        engine = RayEngine(rules, LocalEngine(Home(tmp_path / "home"), UV), rooms, gangs=tmp_path / "gangs")
        self._begun.append(engine)
        engine.begin(lambda: None)
        return engine

    def attempt(self, tmp_path: Path, name: str) -> AttemptSpec:
        there = RemoteSpec(
            runtime={"name": "test", "key": KEY, "python": "3.11", "lock": ""}, packages=(), credentials=KIT
        )
        launch = super().attempt(tmp_path, name)
        replicas = tuple(replace(each, machine="n1-standard-1") for each in launch.replicas)
        return replace(launch, remote=there, replicas=replicas, warm=False)

    def test_what_cannot_be_started_is_an_engine_that_is_down(self, tmp_path: Path) -> None:
        (tmp_path / "jobs").write_text("a file where a folder should be")
        with pytest.raises(EngineUnavailableError, match="can't be started"):
            self.engine(tmp_path).launch(self.attempt(tmp_path, "a"))


class TestFakeEngine(EngineContract):
    def engine(self, tmp_path: Path) -> Engine:
        return FakeEngine(slots=4)

    def max_replicas(self, engine: Engine) -> int:
        return 4

    def attempt(self, tmp_path: Path, name: str) -> AttemptSpec:
        return _launch(tmp_path, name)

    def finish(self, engine: Engine, launch: AttemptSpec, *, ok: bool) -> None:
        assert isinstance(engine, FakeEngine)
        failure = None if ok else Failure(cause=FailureCause.REPLICA_EXITED, exit_code=1)
        engine.finish(launch.folder, outcome=JobState.SUCCEEDED if ok else JobState.FAILED, failure=failure)

    def starts(self, engine: Engine, launch: AttemptSpec) -> int:
        assert isinstance(engine, FakeEngine)
        names = [replica.name for replica in launch.replicas]
        return len(engine.launches) + sum(replica in names for _, replica, _ in engine.kills)

    def test_it_can_be_switched_off(self, tmp_path: Path) -> None:
        engine = FakeEngine()
        engine.down = True
        with pytest.raises(EngineUnavailableError):
            engine.launch(_launch(tmp_path, "a"))
