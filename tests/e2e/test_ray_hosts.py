"""Versions of a real server on a real Ray cluster: hosts on two machines, and no failed request when one is lost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from trainshed.config import Home
from trainshed.engines.ray.bridge_process import BridgeProcess
from trainshed.testing.cache import link_runtimes
from trainshed.testing.clusters.ray import RayCluster
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.deployer import Callers, Deployer
from trainshed.testing.workloads.saved_models import saved_models

PROJECT = "ray-hosts"
WAIT_S = 180.0
CALLERS = 4

pytestmark = pytest.mark.soak  # test_ray_jobs.py has a short one that is not


@pytest.fixture(scope="module")
def server(cluster: RayCluster, scratch: Path) -> Iterator[RunningServer]:
    home = link_runtimes(scratch / "home")
    server = RunningServer(home, cluster.settings() | {"ray_cpu_share": 0.5, "ray_memory_share": 0.1}).start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def deployer(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    return Deployer(server, PROJECT, tmp_path_factory.mktemp("models"))


def addresses(deployer: Deployer, version: str) -> list[str]:
    """Of the machines with hosts of the version that are ready."""
    hosts = deployer.details(version)["hosts"]
    return sorted(host["address"].rpartition(":")[0] for host in hosts if host["state"] == "READY")


def until_hosts(deployer: Deployer, version: str, count: int, *, but: str = "") -> list[str]:
    """Wait for so many, none of them on the machine `but`."""
    return eventually(
        lambda: addresses(deployer, version),
        lambda found: len(found) == count and but not in found,
        within_s=WAIT_S,
        describe=lambda: deployer.details(version),
    )


def test_a_lost_node_fails_no_request(deployer: Deployer, cluster: RayCluster) -> None:
    details = deployer.deploy_routine(
        "spread",
        answer="time.sleep(0.02)",
        manualScaling={"nodes": 2},
        labels={"trainshed-engine": "ray"},
    )
    assert details["engine"] == "ray"
    found = until_hosts(deployer, "spread", 2)
    assert len(set(found)) == 2, "both hosts are on one machine"
    lost = next(node for node in cluster.nodes if node.host in found)
    with Callers(partial(deployer.ask, "spread"), CALLERS) as callers:
        eventually(lambda: callers.statuses[200], (20).__lt__)
        cluster.kill_node(lost)
        before = callers.statuses[200]
        eventually(lambda: callers.statuses[200], (before + 100).__lt__)
        until_hosts(deployer, "spread", 2, but=lost.host)
        before = callers.statuses[200]
        eventually(lambda: callers.statuses[200], (before + 50).__lt__)
    assert callers.wrong == []


def test_what_a_lost_machine_kept_is_removed_when_it_is_back(deployer: Deployer, cluster: RayCluster) -> None:
    """As soon as something is started there: here, one of three hosts on three machines."""
    kept = {machine.host: cluster.workspace_files(machine) for machine in cluster.nodes}
    [lost] = [machine for machine in cluster.nodes if machine.host not in addresses(deployer, "spread")]
    assert kept[lost.host]
    cluster.restart_node(lost)
    deployer.deploy_routine("wide", manualScaling={"nodes": 3}, labels={"trainshed-engine": "ray"})
    assert lost.host in until_hosts(deployer, "wide", 3)
    assert set(cluster.workspace_files(lost)).isdisjoint(
        path for path in kept[lost.host] if path.endswith("agent.json")
    )
    deployer.finish(deployer.delete("wide"))
    eventually(lambda: cluster.workspace_files(lost), lambda left: left == [])


def test_its_hosts_end_with_the_version(deployer: Deployer, server: RunningServer) -> None:
    deployer.finish(deployer.delete("spread"))
    folder = server.home / "hosts" / PROJECT / "m" / "spread"
    eventually(folder.exists, lambda there: not there)


def test_a_saved_model_is_compared_where_it_is_served(deployer: Deployer, tmp_path: Path) -> None:
    """On a machine of the cluster, by OpenVINO, whose answers are held against those of TensorFlow here."""
    uri = deployer.upload_folder(saved_models() / "dense", "dense")
    details = deployer.deploy("dense", uri, labels={"trainshed-engine": "ray"})
    assert (details["loader"], details["parity"]["within"]) == ("openvino", True)
    assert deployer.predict("dense", [1.0, 2.0, 3.0])[0]["scores"] == [-4.0, 12.0]
    assert details["hosts"][0]["address"]


def test_the_next_server_has_hosts_again(deployer: Deployer, server: RunningServer) -> None:
    """And gives back the room that those of the one before had."""
    deployer.deploy_routine("again", manualScaling={"nodes": 2}, labels={"trainshed-engine": "ray"})
    until_hosts(deployer, "again", 2)
    server.kill()
    server.start()
    deployer.until_answers("again", 7, within_s=WAIT_S)
    until_hosts(deployer, "again", 2)
    link = BridgeProcess(Home(server.home), address="", python=lambda: Path(), ship=lambda: Path())
    eventually(lambda: [gang for gang in link.gangs() if "/again/" in gang], lambda gangs: len(gangs) == 2)
    deployer.finish(deployer.delete("again"))


def test_a_node_that_is_cut_off_fails_no_request(deployer: Deployer, cluster: RayCluster) -> None:
    """Nobody resets its connections: the gateway finds out by itself."""
    deployer.deploy_routine(
        "cut", answer="time.sleep(0.02)", manualScaling={"nodes": 2}, labels={"trainshed-engine": "ray"}
    )
    found = until_hosts(deployer, "cut", 2)
    lost = next(node for node in cluster.nodes if node.host in found)
    try:
        with Callers(partial(deployer.ask, "cut"), CALLERS) as callers:
            eventually(lambda: callers.statuses[200], (20).__lt__)
            cluster.cut_node(lost)
            until_hosts(deployer, "cut", 2, but=lost.host)
    finally:
        cluster.mend_node(lost)
    assert callers.wrong == []
    deployer.finish(deployer.delete("cut"))
