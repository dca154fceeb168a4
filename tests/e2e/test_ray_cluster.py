"""The Ray cluster that tests stand on: three machines with addresses of their own, one of which is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.engines import wait_for
from trainshed.testing.ray_clusters import RayCluster, Size, ray_environment

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "runtimes"

#: Each node tells of itself.
SPREAD = """
import json, sys
import ray
ray.init(sys.argv[1], logging_level="error", log_to_driver=False)

def look(path):
    import os
    return [ray.util.get_node_ip_address(), os.environ["HOME"], os.path.exists(path)]

nodes = [node["NodeManagerAddress"] for node in ray.nodes()]
at = lambda host: {"num_cpus": 1, "resources": {"node:" + host: 0.01}}
print(json.dumps(ray.get([ray.remote(look).options(**at(host)).remote(sys.argv[2]) for host in nodes])))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    made = RayCluster(ray_environment(CACHE), tmp_path_factory.mktemp("cluster"), size=Size(cpus=2))
    with made:
        yield made


def test_each_node_has_an_address_and_files_of_its_own(cluster: RayCluster, tmp_path: Path) -> None:
    told = json.loads(cluster.python(SPREAD, cluster.client_address, str(tmp_path)).splitlines()[-1])
    machines = [cluster.head, *cluster.nodes]
    homes = {machine.host: str(machine.inside("home")) for machine in machines}
    assert {host: home for host, home, _ in told} == homes
    assert [sees for *_, sees in told] == [not cluster.network.apart] * 3


def test_the_head_learns_of_a_killed_node_and_of_a_new_one(cluster: RayCluster) -> None:
    lost = cluster.nodes[0]
    assert {node["host"]: node["alive"] for node in cluster.seen()} == dict.fromkeys(
        (cluster.head.host, *(node.host for node in cluster.nodes)), True
    )
    cluster.kill_node(lost)
    assert lost.pids() == []
    alive = wait_for(lambda: _alive(cluster), lambda hosts: lost.host not in hosts, within_s=60.0)
    assert len(alive) == 2
    assert cluster.add_node().host in wait_for(lambda: _alive(cluster), lambda hosts: len(hosts) == 3, within_s=60.0)


def _alive(cluster: RayCluster) -> list[str]:
    return [node["host"] for node in cluster.seen() if node["alive"]]


def test_nothing_is_left_of_a_cluster_on_loopback(tmp_path: Path) -> None:
    with RayCluster(ray_environment(CACHE), tmp_path, nodes=0, namespaces=False) as alone:
        head = alone.head
        assert [node["alive"] for node in alone.seen()] == [True]
        assert head.pids()
    assert head.pids() == []
