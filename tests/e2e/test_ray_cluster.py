"""The Ray cluster that tests stand on: three machines with addresses of their own, one of which is killed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.cache import RUNTIMES
from trainshed.testing.clusters.ray import NodeSize, RayCluster, ray_environment
from trainshed.testing.eventually import eventually

pytestmark = pytest.mark.soak  # test_bridge.py and test_ray_jobs.py stand on such a cluster in every run

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
    made = RayCluster(ray_environment(RUNTIMES), tmp_path_factory.mktemp("cluster"), size=NodeSize(cpus=2))
    with made:
        yield made


def test_each_node_has_an_address_and_files_of_its_own(cluster: RayCluster, tmp_path: Path) -> None:
    told = json.loads(cluster.python(SPREAD, cluster.client_address, str(tmp_path)).splitlines()[-1])
    machines = [cluster.head, *cluster.nodes]
    homes = {machine.host: str(machine.inside("home")) for machine in machines}
    assert {host: home for host, home, _ in told} == homes
    assert [sees for *_, sees in told] == [not cluster.network.isolated] * 3


def test_the_head_learns_of_a_killed_node_and_of_a_new_one(cluster: RayCluster) -> None:
    lost = cluster.nodes[0]
    assert {node["host"]: node["alive"] for node in cluster.node_states()} == dict.fromkeys(
        (cluster.head.host, *(node.host for node in cluster.nodes)), True
    )
    cluster.kill_node(lost)
    assert lost.pids() == []
    alive = eventually(lambda: _alive(cluster), lambda hosts: lost.host not in hosts, within_s=180.0)
    assert len(alive) == 2
    assert cluster.add_node().host in eventually(lambda: _alive(cluster), lambda hosts: len(hosts) == 3, within_s=180.0)


def _alive(cluster: RayCluster) -> list[str]:
    return [node["host"] for node in cluster.node_states() if node["alive"]]


def test_nothing_is_left_of_a_cluster_on_loopback(tmp_path: Path) -> None:
    with RayCluster(ray_environment(RUNTIMES), tmp_path, nodes=0, namespaces=False) as alone:
        head = alone.head
        assert [node["alive"] for node in alone.node_states()] == [True]
        assert head.pids()
    assert head.pids() == []


TRAINER = "import json, os; print('listens at', json.loads(os.environ['TF_CONFIG'])['cluster']['chief'][0])"


def test_the_lines_for_two_laptops(tmp_path: Path) -> None:
    """As docs/clusters.md has them: a second machine is the head and does the work, this one asks."""
    home, trainer = tmp_path / "home", tmp_path / "trainer"
    trainer.mkdir()
    (trainer / "__init__.py").touch()
    (trainer / "task.py").write_text(TRAINER)
    with RayCluster(ray_environment(RUNTIMES), tmp_path / "cluster", nodes=0, runtimes=RUNTIMES) as laptop:
        address = laptop.address if laptop.network.isolated else laptop.client_address

        def trainshed(line: str) -> str:
            env = {**os.environ, "TRAINSHED_HOME": str(home), "TRAINSHED_PROJECT": "laptops"}
            command = [str(Path(sys.executable).with_name("trainshed")), *shlex.split(line)]
            done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200)
            assert done.returncode == 0, done.stderr
            return done.stdout + done.stderr

        try:
            trainshed(f"up --host {laptop.host} --engine ray --ray-address {address} --port 0 --tls-port 0")
            trainshed("buckets mb gs://my-bucket")
            said = trainshed(
                "jobs submit training first_job --package-path trainer --module-name trainer.task "
                "--region us-central1 --job-dir gs://my-bucket/first_job --staging-bucket gs://my-bucket "
                "--runtime-version python --stream-logs"
            )
            assert f"listens at {laptop.head.host}:" in said
            assert "state: SUCCEEDED" in trainshed("jobs describe first_job")
        finally:
            trainshed("down")
