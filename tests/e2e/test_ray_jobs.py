"""Jobs of a real server on a real Ray cluster: from submit to the end, with what people are told on the way."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.config import Home
from trainshed.engines.ray.bridge_process import BridgeProcess
from trainshed.serving.frames import FrameKind, pack_request
from trainshed.testing.cache import link_runtimes
from trainshed.testing.clusters.ray import RayCluster
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "ray-jobs"
WAIT_S = 240.0
GANG = {"scaleTier": "CUSTOM", "masterType": "n1-standard-4", "workerType": "n1-standard-4", "workerCount": "1"}
TELL = """
import json, os, socket, time
print("config", os.environ["TF_CONFIG"], flush=True)
print("threads", os.environ["OMP_NUM_THREADS"], flush=True)
config = json.loads(os.environ["TF_CONFIG"])
[master] = config["cluster"].get("master") or config["cluster"]["chief"]
host, _, port = master.rpartition(":")
if config["task"]["type"] in ("master", "chief"):  # whose end ends the other, whatever it has to say
    socket.create_server((host, int(port))).accept()
    time.sleep(1)
else:
    while True:
        try:
            meeting = socket.create_connection((host, int(port)), 60)
            break
        except OSError:
            time.sleep(0.1)
    meeting.recv(1)
"""
WAIT = """
import sys, time
print("begun", flush=True)
for _ in range(int(sys.argv[1]) * 10):
    time.sleep(0.1)
print("done", flush=True)
"""


@pytest.fixture(scope="module")
def server(cluster: RayCluster, scratch: Path) -> Iterator[RunningServer]:
    """A server whose jobs run on the cluster, at a quarter of the cores that a machine type stands for."""
    settings = {"engine": "ray", "ray_placement": "spread", "ray_cpu_share": 0.25, "ray_memory_share": 0.1}
    home = link_runtimes(scratch / "home")
    server = RunningServer(home, cluster.settings() | settings).start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def submitter(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Submitter:
    return Submitter(server, PROJECT, tmp_path_factory.mktemp("trainers"))


def details(submitter: Submitter, job: str) -> dict[str, Any]:
    found: dict[str, Any] = submitter.server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/{job}")
    return found


def absences(submitter: Submitter, job: str) -> list[str]:
    """What the history of a job says of its cluster."""
    return [event["message"] for event in details(submitter, job)["events"] if "The Ray cluster" in event["message"]]


def notes(server: RunningServer) -> list[str]:
    """For whom room is held."""
    return sorted(path.name for path in (server.home / "bridge" / "gangs").glob("[!.]*"))


def two_machines(cluster: RayCluster, hosts: list[str]) -> bool:
    """Whether these are the addresses of two machines of the cluster."""
    machines = {machine.host for machine in (cluster.head, *cluster.nodes)}
    return len(set(hosts)) == len(hosts) == 2 and machines.issuperset(hosts)


def test_a_gang_runs_on_the_machines_of_the_cluster(
    submitter: Submitter, cluster: RayCluster, server: RunningServer
) -> None:
    submitter.submit("gang", TELL, **GANG)
    submitter.wait("gang", {"SUCCEEDED"})
    lines = submitter.lines("gang")
    config = json.loads(next(line for line in lines if line.startswith("config")).partition(" ")[2])
    addresses = [address for members in config["cluster"].values() for address in members]
    assert two_machines(cluster, [address.rpartition(":")[0] for address in addresses])
    assert all(address.rpartition(":")[2].isdigit() for address in addresses)
    assert lines.count("threads 1") == 2
    assert details(submitter, "gang")["engine"] == "ray"
    eventually(lambda: notes(server), lambda held: held == [])


def test_a_version_is_served_there(server: RunningServer, cluster: RayCluster, tmp_path: Path) -> None:
    """By two hosts on two machines, of which nothing is left when it is deleted."""
    deployer = Deployer(server, "ray-hosts", tmp_path)
    deployer.deploy_routine("v1", manualScaling={"nodes": 2})
    hosts = eventually(lambda: ready(deployer), lambda found: len(found) == 2, within_s=WAIT_S)
    places = [host["address"].rpartition(":") for host in hosts]
    assert two_machines(cluster, [host for host, _, _ in places])
    for host, _, port in places:
        with socket.create_connection((host, int(port)), timeout=120) as stranger:
            stranger.sendall(pack_request(1, FrameKind.PREDICT, b'{"instances": [1]}') * 10)
            with contextlib.suppress(ConnectionResetError):  # it closed before it had read all of this
                assert stranger.recv(1) == b""
    assert [deployer.predict("v1", number) for number in range(10)] == [[number] for number in range(10)]
    deployer.finish(deployer.delete("v1"))
    link = BridgeProcess(Home(server.home), address="", python=lambda: Path(), ship=lambda: Path())
    eventually(link.gangs, lambda gangs: gangs == [], within_s=WAIT_S)
    assert not (server.home / "hosts" / "ray-hosts").exists()
    for machine in (cluster.head, *cluster.nodes):
        eventually(lambda: cluster.workspace_files(machine), lambda left: left == [])  # noqa: B023 - it is called at once


def ready(deployer: Deployer) -> list[dict[str, Any]]:
    return [host for host in deployer.details("v1")["hosts"] if host["state"] == "READY"]


def test_a_gang_that_cannot_fit_says_why_and_holds_nobody_up(submitter: Submitter, server: RunningServer) -> None:
    wide = GANG | {"masterType": "n1-standard-16", "workerType": "n1-standard-16"}
    submitter.submit("wide", WAIT, args=["0"], **wide)
    words = "it needs 2 × 4 CPUs and 6 GB; the cluster has 3 machines with 2 CPUs and 8 GB; a gang of machine type"
    told = eventually(lambda: details(submitter, "wide")["waiting"], lambda said: "the cluster has" in said)
    assert words in told
    submitter.submit("small", WAIT, args=["0"])
    submitter.wait("small", {"SUCCEEDED"})
    assert submitter.get("wide")["state"] == "QUEUED"
    assert notes(server)
    server.call("POST", f"/v1/projects/{PROJECT}/jobs/wide:cancel", {})
    eventually(lambda: notes(server), lambda held: held == [])


# In every run, test_bridge.py gives a replica a device, and tests/unit/engines/test_ray_engine.py asks for them.
@pytest.mark.soak
def test_a_tier_with_a_gpu_has_one(submitter: Submitter) -> None:
    tells = "import os\nprint('devices', os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\n"
    submitter.submit("gpu", tells, scaleTier="BASIC_GPU")
    submitter.wait("gpu", {"SUCCEEDED"})
    assert "devices 0" in submitter.lines("gpu")


def test_a_job_goes_on_over_the_death_of_its_server(submitter: Submitter, server: RunningServer) -> None:
    submitter.submit("survivor", WAIT, args=["4"])
    eventually(lambda: submitter.lines("survivor"), lambda lines: "begun" in lines)
    server.kill()
    server.start()
    submitter.wait("survivor", {"SUCCEEDED"})
    lines = submitter.lines("survivor")
    assert (lines.count("begun"), lines.count("done")) == (1, 1)
    eventually(lambda: notes(server), lambda held: held == [])


# In every run, a gang that runs is cancelled in test_bridge.py, and a job gives its room back in the test before.
@pytest.mark.soak
def test_a_job_is_cancelled(submitter: Submitter, server: RunningServer) -> None:
    submitter.submit("endless", WAIT, args=["1000"])
    eventually(lambda: submitter.lines("endless"), lambda lines: "begun" in lines)
    server.call("POST", f"/v1/projects/{PROJECT}/jobs/endless:cancel", {})
    submitter.wait("endless", {"CANCELLED"})
    assert "done" not in submitter.lines("endless")
    eventually(lambda: notes(server), lambda held: held == [])


def test_a_job_may_run_here_all_the_same(submitter: Submitter) -> None:
    submitter.labels = {"trainshed-engine": "local"}
    try:
        submitter.submit("here", WAIT, args=["0"])
    finally:
        submitter.labels = {}
    submitter.wait("here", {"SUCCEEDED"})
    assert details(submitter, "here")["engine"] == "local"


@pytest.mark.fault("F37")
@pytest.mark.soak
def test_a_head_that_does_not_answer_ends_nothing(submitter: Submitter, cluster: RayCluster) -> None:
    submitter.submit("patient", WAIT, args=["20"])
    eventually(lambda: submitter.lines("patient"), lambda lines: "begun" in lines)
    cluster.pause_head()
    try:
        words = f"The Ray cluster at {cluster.settings()['ray_address']} has not answered since"
        told = eventually(lambda: details(submitter, "patient")["waiting"], lambda said: said.startswith(words))
        assert told.endswith("The job goes on when it does.")
        eventually(lambda: absences(submitter, "patient"), lambda texts: texts == [told])
        assert submitter.get("patient")["state"] == "RUNNING"
    finally:
        cluster.resume_head()
    submitter.wait("patient", {"SUCCEEDED"})
    back = f"The Ray cluster at {cluster.settings()['ray_address']} answers again."
    assert absences(submitter, "patient") == [told, back]
    assert submitter.lines("patient").count("done") == 1
