"""Gangs on a real Ray cluster of a head and two nodes, by way of the link: no server, but all the rest of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.config import Home
from trainshed.engines.ray.bridge_process import BridgeProcess
from trainshed.engines.shipping import ship
from trainshed.errors import EngineUnavailableError
from trainshed.testing.cache import RUNTIMES
from trainshed.testing.clusters.gangs import GangRun, alive, wait_until
from trainshed.testing.clusters.ray import NodeSize, RayCluster, ray_environment
from trainshed.testing.eventually import eventually

MASTER, WORKER, PS = "master-replica-0", "worker-replica-0", "ps-replica-0"
COUNTS = "for number in range({}):\n    print('line', number, flush=True)\n    time.sleep(0.02)\n"


@pytest.fixture(scope="module")
def link(cluster: RayCluster, scratch: Path) -> Iterator[BridgeProcess]:
    home = Home(scratch / "home")
    link = BridgeProcess(
        home, address=cluster.address, python=lambda: ray_environment(RUNTIMES), ship=lambda: ship(home.node)
    )
    link.begin()
    eventually(link.cluster, lambda cluster: cluster.reachable, within_s=180.0)
    yield link
    link.close()


@pytest.fixture
def attempt(link: BridgeProcess, scratch: Path, request: pytest.FixtureRequest) -> Iterator[GangRun]:
    name = request.node.name.replace("[", "-").replace("]", "")[-40:]
    root = scratch / name
    root.mkdir()
    with GangRun(root, link.socket, name=name) as made:
        yield made
    link.release(made.gang)


def link_process(scratch: Path) -> int:
    """The bridge process, below its reaper."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:  # another process, which has ended
            continue
        if b"bridge" in words and os.fsencode(scratch / "home" / "bridge" / "config.json") in words:
            children = (path.parent / "task" / path.parent.name / "children").read_text().split()
            if children:
                return int(children[0])
    raise AssertionError("there is no link")


def test_the_cluster_is_seen_with_all_its_nodes(cluster: RayCluster, link: BridgeProcess) -> None:
    hosts = sorted(machine.host for machine in (cluster.head, *cluster.nodes))
    seen = eventually(
        lambda: [node for node in link.cluster().nodes if node.alive],
        lambda nodes: sorted(node.host for node in nodes) == hosts,
    )
    assert all(node.total["CPU"] == 2 for node in seen)


def test_one_replica_is_told_its_devices_and_leaves_nothing(
    link: BridgeProcess, attempt: GangRun, scratch: Path
) -> None:
    attempt.launch("print('devices', os.environ['CUDA_VISIBLE_DEVICES']); wait()", MASTER, resources={"GPU": 1})
    attempt.started(1)
    attempt.end(0)
    assert attempt.ended()["outcome"] == "SUCCEEDED"
    assert "devices 0" in attempt.lines(MASTER)
    link.release(attempt.gang)
    link.release(attempt.gang)
    all_there_is = {f"worker-replica-{number}": {"CPU": 2, "GPU": 1} for number in range(3)}
    wait_until(lambda: link.reserve("trainshed/p/all/1", all_there_is, "SPREAD"), attempt)
    link.release("trainshed/p/all/1")
    assert attempt.gang not in (scratch / "home" / "bridge" / "log").read_text()  # there was no trouble


def test_room_is_there_or_waited_for(link: BridgeProcess) -> None:
    large, small = "trainshed/p/large/1", "trainshed/p/small/1"
    assert not link.reserve(large, {MASTER: {"CPU": 64}}, "PACK")
    eventually(lambda: link.reserve(small, {MASTER: {"CPU": 1, "GPU": 0}}, "PACK"), within_s=120.0)
    assert not link.reserve(large, {MASTER: {"CPU": 64}}, "PACK")
    link.release(large)
    link.release(small)


def test_a_gang_is_spread_and_knows_the_real_addresses(cluster: RayCluster, attempt: GangRun) -> None:
    attempt.launch("wait()", MASTER, WORKER, PS, strategy="SPREAD")
    starts = attempt.started(3)
    addresses = [address for each in starts[0][2].values() for address in each]
    assert {address.rpartition(":")[0] for address in addresses} == {
        cluster.head.host,
        *(node.host for node in cluster.nodes),
    }
    attempt.kill(PS, signal.SIGKILL)
    again = attempt.started(4)[3]
    assert (again[0], again[2]) == (PS, starts[0][2])
    attempt.cancel()
    assert attempt.ended()["outcome"] == "CANCELLED"
    wait_until(lambda: not any(alive(pid) for _, pid, _ in attempt.starts()), attempt)


def test_a_killed_link_loses_no_line_and_starts_nothing_twice(scratch: Path, attempt: GangRun) -> None:
    attempt.launch(COUNTS.format(300), MASTER)
    wait_until(lambda: "line 50" in attempt.lines(MASTER), attempt)
    os.kill(link_process(scratch), signal.SIGKILL)
    assert attempt.ended()["outcome"] == "SUCCEEDED"
    told = [line for line in attempt.lines(MASTER) if line.startswith("line ")]
    assert told == [f"line {number}" for number in range(300)]
    assert len(attempt.starts()) == 1


@pytest.mark.fault("F37")
def test_a_head_that_is_away_ends_nothing(cluster: RayCluster, link: BridgeProcess, attempt: GangRun) -> None:
    attempt.launch(COUNTS.format(450), MASTER, strategy="PACK")
    attempt.started(1)
    before_us = time.time() * 1e6
    cluster.pause_head()
    try:
        wait_until(lambda: not link.cluster().reachable, attempt)
        since_us = link.cluster().since_us
        with pytest.raises(EngineUnavailableError):
            link.reserve("trainshed/p/other/1", {MASTER: {"CPU": 1}}, "PACK")
    finally:
        cluster.resume_head()
    assert before_us - 10e6 < since_us < time.time() * 1e6
    assert attempt.ended()["outcome"] == "SUCCEEDED"
    wait_until(lambda: link.cluster().reachable, attempt)
    told = [line for line in attempt.lines(MASTER) if line.startswith("line ")]
    assert told == [f"line {number}" for number in range(450)]


@pytest.mark.parametrize(
    "killed_too", [pytest.param(False, id="alone"), pytest.param(True, id="and-the-bridge", marks=pytest.mark.soak)]
)
def test_a_lost_node_restarts_the_gang_elsewhere(
    cluster: RayCluster, scratch: Path, attempt: GangRun, killed_too: bool
) -> None:
    attempt.launch("wait()", MASTER, PS, strategy="SPREAD")
    starts = attempt.started(2)
    hosts = [address.rpartition(":")[0] for each in starts[0][2].values() for address in each]
    lost = next(node for node in cluster.nodes if node.host in hosts)
    cluster.kill_node(lost)
    if killed_too:  # the next one has to find out what it was that was lost
        os.kill(link_process(scratch), signal.SIGKILL)
    after = attempt.started(4)[2:]
    assert lost.host not in str(after[0][2])
    assert after[0][2] == after[1][2]
    attempt.end(0)
    assert attempt.ended()["outcome"] == "SUCCEEDED"
    told = [f"The node {lost.host} with {name} was lost." for name in (MASTER, PS)]
    # Ray may report that the actor died before its head knows that the whole node did.
    told += [f"The actor of {name} on node {lost.host} died: " for name in (MASTER, PS)]
    assert any(line.startswith(tuple(told)) for line in attempt.lines()), "\n".join(attempt.lines())


@pytest.mark.soak
def test_a_node_that_is_cut_off_is_noticed_within_30_s(
    cluster: RayCluster, link: BridgeProcess, attempt: GangRun
) -> None:
    node = cluster.add_node(NodeSize(cpus=2, resources={"here": 1}))
    attempt.launch("wait()", MASTER, resources={"here": 0.1})
    attempt.started(1)
    wait_until(lambda: len((attempt.folder / "samples.jsonl").read_text()) > 0, attempt)
    began_s = time.monotonic()
    cluster.cut_node(node)
    try:
        wait_until(
            lambda: any(f"The node {node.host} with {MASTER}" in line for line in attempt.lines(MASTER)), attempt
        )
        assert time.monotonic() - began_s < 32
    finally:
        cluster.mend_node(node)


@pytest.mark.soak
def test_a_head_that_was_killed_comes_back_as_a_new_cluster_and_the_gang_starts_there(
    cluster: RayCluster, link: BridgeProcess, attempt: GangRun
) -> None:
    attempt.launch("wait()", MASTER)
    attempt.started(1)
    cluster.head.kill()
    wait_until(lambda: not link.cluster().reachable, attempt)
    cluster.start_head()
    wait_until(lambda: len(attempt.starts()) == 2, attempt, 240)
    assert [name for name, _, _ in attempt.starts()] == [MASTER, MASTER]
    attempt.end(0)
    assert attempt.ended()["outcome"] == "SUCCEEDED"
