"""The order in which a gang starts, on real processes: workers after the master's model, and never in a circle."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainshed.config import Home
from trainshed.domain.jobs.reconcile import AttemptPhase
from trainshed.domain.jobs.states import JobState
from trainshed.engines.base import AttemptSpec, Replica
from trainshed.engines.local.engine import LocalEngine
from trainshed.node.process.ports import free_ports
from trainshed.node.supervisor.start_order import MAX_DELAY_S
from trainshed.testing.contracts.engines import settle

PYTHON = Path(sys.executable)
UV = Path(shutil.which("uv", path=f"{PYTHON.parent}") or shutil.which("uv") or "uv")

#: Names what makes workers sleep, without using it: MonitoredTrainingSession.
PARAMETER_SERVER = """
import json, os, pathlib, socket, time
config = json.loads(os.environ["TF_CONFIG"])
kind, [server] = config["task"]["type"], config["cluster"]["ps"]
if kind == "ps":
    listener = socket.create_server(("127.0.0.1", int(server.rpartition(":")[2])))
    time.sleep(600)  # MonitoredTrainingSession
if kind == "worker":
    pathlib.Path("worker").touch()
    time.sleep(600)
"""
MASTER_CONNECTS = """
print("building", flush=True)
time.sleep(0.2)
print("built", time.time_ns() // 1000, flush=True)
while True:
    try:
        connection = socket.create_connection(("127.0.0.1", int(server.rpartition(":")[2])))
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
while not pathlib.Path("worker").exists():
    time.sleep(0.01)
"""
MASTER_WAITS = """
while not pathlib.Path("worker").exists():
    time.sleep(0.01)
"""
Events = list[dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], tuple[Events, Events]]:
    """Runs a gang of three to its good end: its journal and its log."""

    def whole(code: str) -> tuple[Events, Events]:
        site = tmp_path / "site"
        site.mkdir()
        (site / "trainer.py").write_text(PARAMETER_SERVER + code)
        launch = _launch(tmp_path, site)
        engine = LocalEngine(Home(tmp_path / "home"), UV)
        engine.launch(launch)
        assert settle(engine, launch.folder, AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
        journal, log = ((launch.folder / name).read_text().splitlines() for name in ("journal.jsonl", "log.jsonl"))
        return [json.loads(line) for line in journal], [json.loads(line) for line in log]

    return whole


def _launch(tmp_path: Path, site: Path) -> AttemptSpec:
    kinds = ("master", "worker", "ps")
    cluster = {kind: [f"127.0.0.1:{port}"] for kind, port in zip(kinds, free_ports(3), strict=True)}
    configs = {kind: json.dumps({"cluster": cluster, "task": {"type": kind, "index": 0}}) for kind in kinds}
    return AttemptSpec(
        project="p",
        job="j",
        attempt=1,
        folder=tmp_path / "jobs" / "1",
        python=PYTHON,
        module="trainer",
        args=(),
        packages=(),
        site=site,
        replicas=tuple(
            Replica(
                name=f"{kind}-replica-0", type=kind, index=0, primary=kind == "master", env={"TF_CONFIG": configs[kind]}
            )
            for kind in kinds
        ),
        env={"PYTHONPATH": str(site)},
        grace_s=5.0,
        max_running_s=600.0,
        log_limit_bytes=1 << 20,
    )


def _started_us(journal: Events, name: str) -> int:
    [started] = [event["t"] for event in journal if event["event"] == "replica_started" and event["name"] == name]
    return int(started)


def _begun_us(journal: Events) -> int:
    """When the gang's time began: before any of it was started, however long that took."""
    [begun] = [event["t"] for event in journal if event["event"] == "preparing"]
    return int(begun)


def test_a_worker_starts_when_the_master_comes_to_the_parameter_server(
    run: Callable[[str], tuple[Events, Events]],
) -> None:
    journal, log = run(MASTER_CONNECTS)
    [built_us] = [int(line["m"].split()[1]) for line in log if line["m"].startswith("built ")]  # by the master's clock
    started_us = _started_us(journal, "worker-replica-0")
    late_us = started_us - _begun_us(journal)
    assert started_us > built_us or late_us >= MAX_DELAY_S * 1e6


def test_a_master_that_waits_for_its_workers_gets_them(run: Callable[[str], tuple[Events, Events]]) -> None:
    journal, _ = run(MASTER_WAITS)
    late_us = _started_us(journal, "worker-replica-0") - _begun_us(journal)
    assert late_us >= MAX_DELAY_S * 0.9e6
