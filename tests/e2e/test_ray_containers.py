"""Containers on the machines of a real Ray cluster, by Podman and runc: told where everybody is, killed, cancelled."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.cache import CONTAINERS, RUNTIMES
from trainshed.testing.clusters.containers import Podman
from trainshed.testing.clusters.ray import NodeSize, RayCluster, ray_environment
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

PROJECT, BUCKET = "ray-containers", "ray-containers-data"
MASTER, WORKER = "master-replica-0", "worker-replica-0"
GANG = {"scaleTier": "CUSTOM", "masterType": "n1-standard-4", "workerType": "n1-standard-4", "workerCount": "1"}
WAIT_S = 240.0

#: The master connects to the worker, at the address that it was told. Both store what they found in the bucket by gs://.
MEET = """
import json, os, socket, sys, time, urllib.request
config = json.loads(os.environ["TF_CONFIG"])
role, addresses = config["task"]["type"], config["cluster"]
host, _, port = addresses[role][0].rpartition(":")
listener = socket.create_server((host, int(port)))
if role == "master":
    host, _, port = addresses["worker"][0].rpartition(":")
    until = time.time() + 120
    while True:
        try:
            meeting = socket.create_connection((host, int(port)), 5)
            break
        except OSError:
            if time.time() > until:
                raise
            time.sleep(0.2)
else:
    meeting, _ = listener.accept()
found = {"cluster": addresses, "args": sys.argv[1:], "environment": sorted(os.environ), "gcs": os.listdir("/gcs"),
         "credentials": os.listdir("/etc/trainshed"), "folders": os.listdir("/")}
token = open(os.environ["CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"]).read().strip()
url = "https://storage.googleapis.com/upload/storage/v1/b/BUCKET/o?uploadType=media&name=%s.json" % role
head = {"Authorization": "Bearer " + token}
request = urllib.request.Request(url, json.dumps(found).encode(), head, method="POST")
print("stored", json.load(urllib.request.urlopen(request))["name"], flush=True)
if role == "worker":
    meeting.sendall(b"stored")
else:
    assert meeting.recv(6) == b"stored"  # the end of the master is that of the job
""".replace("BUCKET", BUCKET)

#: Counts its starts in the bucket's folder, and goes on until it is told to end.
WAIT = """
import os, signal, sys, time
name, folder = os.environ["TRAINSHED_REPLICA"], "/gcs/BUCKET/" + sys.argv[1]
os.makedirs(folder, exist_ok=True)
def heard(number, frame):
    print(name, "heard signal", number, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, heard)
with open(folder + "/" + name, "a") as out:
    out.write("x")
print("here is", name, flush=True)
until = time.time() + 600
while time.time() < until and not os.path.exists(folder + "/done"):
    sum(range(20000))
    time.sleep(0.01)
""".replace("BUCKET", BUCKET)


@dataclass(frozen=True)
class Place:
    """A server, the cluster that its jobs run on, and the Podman of the cluster's machines."""

    server: RunningServer
    cluster: RayCluster
    podman: Podman

    def submit(self, job: str, source: str, *args: str) -> None:
        command = {"containerCommand": ["python3", "-c"], "containerArgs": [source, *args]}
        configs = {"masterConfig": command | {"imageUri": self.podman.base()}, "workerConfig": command}
        body = {"jobId": job, "trainingInput": {"region": "us-central1", **configs, **GANG}}
        self.server.call("POST", f"/v1/projects/{PROJECT}/jobs", body)

    def wait(self, job: str, *states: str) -> None:
        def look() -> str:
            return str(self.server.call("GET", f"/v1/projects/{PROJECT}/jobs/{job}")["state"])

        state = eventually(look, lambda seen: seen in (*states, "SUCCEEDED", "FAILED", "CANCELLED"), within_s=WAIT_S)
        assert state in states, "\n".join(self.lines(job)[-40:])

    def lines(self, job: str) -> list[str]:
        answer = self.server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/{job}/logs")
        return [entry["message"] for entry in answer["entries"]]

    def details(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self.server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/{job}")
        return found

    @property
    def bucket(self) -> Path:
        return self.server.home / "buckets" / BUCKET

    def started(self, job: str, count: int) -> None:
        """Wait until each replica has been started so often."""
        paths = [self.bucket / job / name for name in (MASTER, WORKER)]

        def counts() -> list[int]:
            return [len(path.read_text()) if path.exists() else 0 for path in paths]

        try:
            eventually(counts, lambda seen: seen == [count, count], within_s=WAIT_S)
        except AssertionError:
            raise AssertionError("\n".join(self.lines(job)[-40:])) from None

    def containers(self, job: str) -> dict[str, str]:
        """The ids of a job's containers, by replica."""
        found = self.podman.containers(f"{PROJECT}/{job}")
        return {each["Labels"]["trainshed.replica"]: each["Id"] for each in found}

    def nothing_is_left(self, job: str) -> None:
        eventually(lambda: self.containers(job), lambda left: left == {}, within_s=WAIT_S)
        folders = [machine.folder for machine in (self.cluster.head, *self.cluster.nodes)]
        pattern = f"home/.cache/trainshed/replicas/trainshed/{PROJECT}/{job}/*/*/*"
        eventually(
            lambda: [path for each in folders for path in each.glob(pattern) if path.is_dir()], lambda left: not left
        )


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """The machines see the folder of buckets, but not this machine's /tmp."""
    scratch = Path(tempfile.mkdtemp(prefix="trainshed-ray-", dir="/var/tmp"))
    for name in ("home", "podman"):
        (scratch / name).mkdir()
    (scratch / "home" / "runtimes").symlink_to(RUNTIMES)
    podman = Podman(CONTAINERS, scratch / "podman")
    podman.base()
    shares = {"ray_placement": "spread", "ray_cpu_share": 0.25, "ray_memory_share": 0.1}
    settings = {"engine": "ray", "grace_s": 10, "node_buckets": str(scratch / "home" / "buckets"), **shares}
    size = NodeSize(cpus=2, memory_gb=8)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in podman.env.items():
            patch.setenv(name, value)
        with RayCluster(ray_environment(RUNTIMES), scratch, nodes=1, size=size, runtimes=RUNTIMES) as cluster:
            running = RunningServer(scratch / "home", cluster.settings() | settings).start()
            running.call("POST", f"/storage/v1/b?project={PROJECT}", {"name": BUCKET})
            yield Place(running, cluster, podman)
            assert running.close() == 0
    shutil.rmtree(scratch, ignore_errors=True)


def test_a_gang_of_containers_meets_at_the_addresses_of_the_machines(place: Place) -> None:
    place.submit("gang", MEET, "--epochs", "2")
    place.wait("gang", "SUCCEEDED")
    hosts = {place.cluster.head.host, place.cluster.nodes[0].host}
    for role in ("master", "worker"):
        found = json.loads((place.bucket / f"{role}.json").read_text())
        assert {address.rpartition(":")[0] for each in found["cluster"].values() for address in each} == hosts
        assert found["args"] == ["--epochs", "2"]
        assert found["gcs"] == [BUCKET]
        assert "token" in found["credentials"]
        assert not {"work", "home", "mnt"} & set(found["folders"])
        strange = [
            name for name in found["environment"] if name.startswith(("RAY_", "CONTAINERS_", "TRAINSHED_SERVER"))
        ]
        assert strange == [], "of the machine's own environment"
    lines = place.lines("gang")
    assert "stored master.json" in lines
    assert "stored worker.json" in lines
    assert lines.count(f"Running the image {place.podman.base()}.") == 2
    assert place.details("gang")["engine"] == "ray"
    place.nothing_is_left("gang")


def test_a_killed_container_is_started_again_by_the_rules_of_gangs(place: Place) -> None:
    place.submit("chaos", WAIT, "chaos")
    place.started("chaos", 1)
    before = place.containers("chaos")
    assert set(before) == {MASTER, WORKER}
    place.server.call("POST", f"/trainshed/v1/projects/{PROJECT}/jobs/chaos:chaos", {"kill": WORKER, "signal": "KILL"})
    place.started("chaos", 2)  # both: they are an all-reduce group
    after = place.containers("chaos")
    assert set(after) == {MASTER, WORKER}
    assert not set(before.values()) & set(after.values())
    samples = place.server.home / "jobs" / PROJECT / "chaos" / "1" / "samples.jsonl"

    def busy() -> set[str]:
        return {each["r"] for each in map(json.loads, samples.read_text().splitlines()) if each["cpu"] and each["rss"]}

    eventually(busy, lambda seen: seen == {MASTER, WORKER}, within_s=WAIT_S)
    (place.bucket / "chaos" / "done").touch()
    place.wait("chaos", "SUCCEEDED")
    assert any(WORKER in line and "signal 9" in line for line in place.details("chaos")["restarts"])
    place.nothing_is_left("chaos")


def test_cancelling_asks_the_containers_to_end_and_leaves_nothing(place: Place) -> None:
    place.submit("cancelled", WAIT, "cancelled")
    place.started("cancelled", 1)
    place.server.call("POST", f"/v1/projects/{PROJECT}/jobs/cancelled:cancel", {})
    place.wait("cancelled", "CANCELLED")
    assert {f"{name} heard signal 15" for name in (MASTER, WORKER)} <= set(place.lines("cancelled"))
    place.nothing_is_left("cancelled")


def test_an_image_that_no_machine_has_fails_the_job_with_a_sentence(place: Place) -> None:
    body = {"region": "us-central1", "masterConfig": {"imageUri": "localhost/no-such-image:1"}, "scaleTier": "BASIC"}
    place.server.call("POST", f"/v1/projects/{PROJECT}/jobs", {"jobId": "missing", "trainingInput": body})
    place.wait("missing", "FAILED")
    message = place.server.call("GET", f"/v1/projects/{PROJECT}/jobs/missing")["errorMessage"]
    assert "The image localhost/no-such-image:1 is not on this machine, and it can't be pulled" in message
