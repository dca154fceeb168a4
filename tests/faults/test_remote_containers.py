"""A remote gang of containers: supervisor, replica proxies, node agents, Podman. Only Ray is faked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.engines.shipping import ship
from trainshed.node.process import tree
from trainshed.testing.clusters.containers import Podman
from trainshed.testing.clusters.gangs import TRAINER, WAIT_S, GangRun, cluster_spec, wait_until
from trainshed.testing.fakes.local_bridge import LocalBridge

MASTER, WORKER = "master-replica-0", "worker-replica-0"
SOURCE = TRAINER + "print('sees', sys.argv[1], sorted(os.listdir('/signs'))[:1], flush=True)\nwait()\n"


@pytest.fixture
def bridge(tmp_path: Path, podman: Podman, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalBridge]:
    monkeypatch.setenv("TRAINSHED_NODE_CACHE", str(tmp_path / "cache"))
    for name, value in podman.env.items():
        monkeypatch.setenv(name, value)
    made = LocalBridge(tmp_path, tmp_path / "cache")
    made.start()
    yield made
    made.close()


@pytest.fixture
def attempt(tmp_path: Path, podman: Podman, bridge: LocalBridge) -> Iterator[GangRun]:
    with GangRun(tmp_path, bridge.path, name=tmp_path.name) as made:
        launch(made, bridge, podman.base())
        yield made


def launch(attempt: GangRun, bridge: LocalBridge, image: str) -> None:
    spec = cluster_spec(bridge.path, attempt.gang, (MASTER, WORKER))
    container = {"image": image, "command": ["python3", "-c"], "args": [SOURCE, "@host:worker-replica-0@"]}
    for each in spec["replicas"]:
        each["container"] = container | {"cpus": 1, "memory_bytes": 1 << 30}
    mounts = [{"source": str(attempt.signs), "target": "/signs", "read_only": False}]
    spec["containers"] = {"tool": "auto", "read_only": False, "mounts": mounts}
    spec["env"] = {"SIGNS": "/signs"}
    (attempt.folder / "spec.json").write_text(json.dumps(spec))
    run = ship(attempt.folder.parent / "node") / "run.py"
    subprocess.run([sys.executable, "-I", "-S", run, "supervise", attempt.folder], check=True, timeout=WAIT_S)


def test_a_gang_of_containers_finds_itself(attempt: GangRun, podman: Podman) -> None:
    starts = attempt.started(2)
    assert {name for name, _, _ in starts} == {MASTER, WORKER}
    assert all(address.startswith("127.0.0.1:") for _, _, all_ in starts for each in all_.values() for address in each)
    job = attempt.gang.removeprefix("trainshed/").rpartition("/")[0]
    assert len(podman.containers(job)) == 2
    wait_until(lambda: {WORKER, MASTER} == _sampled(attempt), attempt)
    attempt.kill(WORKER, signal.SIGTERM)
    attempt.started(4)  # both: they are an all-reduce group
    attempt.end(0)
    assert attempt.ended()["outcome"] == "SUCCEEDED"
    assert "sees 127.0.0.1 ['starts']" in attempt.lines(WORKER)
    assert f"Running the image {podman.base()}." in attempt.lines(MASTER)
    wait_until(lambda: not podman.containers(job), attempt)


def _sampled(attempt: GangRun) -> set[str]:
    return {each["r"] for each in attempt.samples() if each["processes"] > 0}


def test_a_container_whose_agent_was_killed_ends_before_the_next_one_starts(
    attempt: GangRun, bridge: LocalBridge, podman: Podman
) -> None:
    attempt.started(2)
    job = attempt.gang.removeprefix("trainshed/").rpartition("/")[0]
    before = {each["Id"] for each in podman.containers(job)}
    [agent] = [actor.agent_pid for name, actor in bridge.actors.items() if f"/{WORKER}/" in name]
    for pid in (agent, *tree.children(agent)):  # so that neither can clean up after the other
        os.kill(pid, signal.SIGKILL)
    attempt.started(4)  # both: they are an all-reduce group
    after = {each["Id"] for each in podman.containers(job)}
    assert len(after) == 2
    assert not before & after
    attempt.end(0)
    assert attempt.ended()["outcome"] == "SUCCEEDED"
    wait_until(lambda: not podman.containers(job), attempt)


# In every run, replicas die with their supervisor in test_replica_proxies.py, and containers without their agent above.
@pytest.mark.soak
def test_nothing_is_left_when_the_supervisor_is_killed(attempt: GangRun, podman: Podman) -> None:
    attempt.started(2)
    supervisor = next(each["pid"] for each in attempt.journal() if each["event"] == "supervisor_started")
    os.kill(supervisor, signal.SIGKILL)
    assert attempt.ended()["event"] == "lost"
    wait_until(lambda: not podman.containers(attempt.gang.removeprefix("trainshed/").rpartition("/")[0]), attempt)
