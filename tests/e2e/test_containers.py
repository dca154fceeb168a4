"""Jobs that run container images, for real: Podman or Docker, runc, and an image from Debian's packages."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.clusters.containers import Docker, Podman
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.image_registry import ImageRegistry
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.job_logs import records

PROJECT = "container-course"
BUCKET = "container-course-data"
GANG = {
    "scaleTier": "CUSTOM",
    "masterType": "n1-highcpu-1",
    "workerType": "n1-highcpu-1",
    "workerCount": "1",
    "parameterServerType": "n1-highcpu-1",
    "parameterServerCount": "1",
}

#: in a container: what a replica is told, what it may do, and what it sees
LOOK = """
import json, os, signal, socket, ssl, sys, urllib.request
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # which the first process of a container else does not hear
config = json.loads(os.environ["TF_CONFIG"])
role = config["task"]["type"]
if role == "ps":
    import time
    time.sleep(600)
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
limits = [
    path for path in ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max")
    if os.path.exists(path)
]
found = {
    "config": config, "cluster_spec": json.loads(os.environ["CLUSTER_SPEC"]), "args": sys.argv[1:],
    "capabilities": int(status["CapEff"], 16) | int(status["CapBnd"], 16), "no_new_privs": status["NoNewPrivs"],
    "folders": sorted(os.listdir("/")), "gcs": sorted(os.listdir("/gcs")),
    "memory": int(open(limits[0]).read()), "pid": os.getpid(),
    "environment": sorted(os.environ),
}
def refused(path):
    try:
        open(path, "w")
    except OSError as exc:
        return exc.strerror
    return ""
paths = ["/etc/trainshed/token", "/etc/trainshed/new", "/usr/changed", "/tmp/kept"]
found["refused"] = [refused(path) for path in paths]
listener = socket.create_server(("127.0.0.1", int(config["cluster"][role][0].rpartition(":")[2])))
with open(f"/gcs/BUCKET/{role}.json", "w") as out:
    json.dump(found, out)
token = open(os.environ["CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"]).read().strip()
url = "https://storage.googleapis.com/upload/storage/v1/b/BUCKET/o?uploadType=media&name=by-gs-%s.txt" % role
request = urllib.request.Request(url, b"from " + role.encode(), {"Authorization": "Bearer " + token}, method="POST")
print("stored", json.load(urllib.request.urlopen(request))["name"], flush=True)
""".replace("BUCKET", BUCKET)

#: counts its starts in the bucket, and goes on until it is told to end
WAIT = """
import os, signal, sys, time
name, folder = os.environ["TRAINSHED_REPLICA"], "/gcs/BUCKET/" + sys.argv[1]
os.makedirs(folder, exist_ok=True)
def heard(number, frame):
    print("heard signal", number, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, heard)
with open(folder + "/" + name, "a") as out:
    out.write("x")
print("here is", name, flush=True)
until = time.time() + 300
while time.time() < until and not (name.startswith("master") and os.path.exists(folder + "/done")):
    sum(range(20000))
    time.sleep(0.01)
""".replace("BUCKET", BUCKET)

#: Reports its parameter as hypertune does, more often than hypertune keeps reports.
REPORTS = """
import json, os, sys, time
x, path = sys.argv[sys.argv.index("--x") + 1], os.environ["CLOUD_ML_HP_METRIC_FILE"]
os.makedirs(os.path.dirname(path), exist_ok=True)
lines = []
for step in range(1, 121):
    lines.append(json.dumps({"timestamp": time.time(), "global_step": str(step), "score": x}) + "\\n")
    with open(path, "w") as out:
        out.writelines(lines[-100:])
    if step == 60:
        time.sleep(2.5)  # so that the first ones are read before they are dropped
"""
SEARCH = {
    "hyperparameterMetricTag": "score",
    "algorithm": "GRID_SEARCH",
    "maxTrials": 2,
    "maxParallelTrials": 2,
    "params": [{"parameterName": "x", "type": "DISCRETE", "discreteValues": [1, 2]}],
}


@dataclass(frozen=True)
class Containers:
    """A server, and what runs its containers."""

    server: RunningServer
    runner: Podman | Docker

    def submit(self, job: str, image: str = "", source: str = "", *args: str, **training: Any) -> None:
        """A job whose replicas run `source` in Python, or what the image says if there is none."""
        config: dict[str, Any] = {"imageUri": image or self.runner.base()}
        if source:
            config |= {"containerCommand": ["python3", "-c"], "containerArgs": [source, *args]}
        roles = [f"{role}Config" for role in ("master", "worker", "parameterServer") if role == "master" or training]
        configs = {role: config if role == "masterConfig" else _but_image(config) for role in roles}
        labels = training.pop("labels", {})
        body = {"jobId": job, "labels": labels, "trainingInput": {"region": "us-central1", **configs, **training}}
        self.server.call("POST", f"/v1/projects/{PROJECT}/jobs", body)

    def wait(self, job: str, *states: str) -> dict[str, Any]:
        ends = ("SUCCEEDED", "FAILED", "CANCELLED")

        def look() -> dict[str, Any]:
            found: dict[str, Any] = self.server.call("GET", f"/v1/projects/{PROJECT}/jobs/{job}")
            return found

        found = eventually(look, lambda seen: seen["state"] in (*states, *ends), within_s=240)
        assert found["state"] in states, (found, self.lines(job)[-20:])
        return found

    def lines(self, job: str) -> list[str]:
        answer = self.server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/{job}/logs")
        return [entry["message"] for entry in answer["entries"]]

    def attempt(self, job: str) -> Path:
        return self.server.home / "jobs" / PROJECT / job / "1"

    @property
    def bucket(self) -> Path:
        return self.server.home / "buckets" / BUCKET

    def starts(self, job: str, replica: str) -> int:
        path = self.bucket / job / replica
        return len(path.read_text()) if path.exists() else 0

    def journal(self, job: str, event: str) -> dict[str, Any]:
        return next(each for each in records(self.attempt(job) / "journal.jsonl") if each["event"] == event)


def _but_image(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "imageUri"}


@pytest.fixture(scope="module")
def jobs(runner: Podman | Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    runner.base()
    home = tmp_path_factory.mktemp("containers") / "home"
    settings = {
        "grace_s": 30,
        "container_tool": runner.kind,
        "container_read_only": "true",
        "image_registries": "127.0.0.1:*",
    }
    running = RunningServer(home, settings, environment=runner.env).start()
    running.call("POST", f"/storage/v1/b?project={PROJECT}", {"name": BUCKET})
    yield Containers(running, runner)
    assert running.close() == 0


def test_a_gang_is_told_what_it_needs_and_sees_nothing_else(jobs: Containers) -> None:
    jobs.submit("gang", "", LOOK, "--epochs", "2", jobDir=f"gs://{BUCKET}/gang", useChiefInTfConfig=True, **GANG)
    done = jobs.wait("gang", "SUCCEEDED")
    assert "startTime" in done
    found = json.loads((jobs.bucket / "chief.json").read_text())
    assert found["args"] == ["--epochs", "2", "--job-dir", f"gs://{BUCKET}/gang"]
    assert set(found["config"]["cluster"]) == {"chief", "worker", "ps"}
    assert found["config"]["task"]["type"] == "chief"
    assert set(found["cluster_spec"]["cluster"]) == {"master", "worker", "ps"}
    assert found["cluster_spec"]["task"]["type"] == "master"
    assert found["capabilities"] == 0
    assert found["no_new_privs"] == "1"
    assert found["gcs"] == [BUCKET]
    assert found["refused"] == ["Read-only file system"] * 3 + [""]
    assert not {"work", "home", "mnt"} & set(found["folders"])
    assert 0.9e9 - 4096 <= found["memory"] <= 0.9e9
    mine = {name for name in found["environment"] if name.startswith(("CONTAINERS_", "DOCKER_", "TRAINSHED_SERVER"))}
    assert mine == set(), "of the server's own environment"
    assert (jobs.bucket / "by-gs-chief.txt").read_bytes() == b"from chief"
    assert "stored by-gs-chief.txt" in jobs.lines("gang")
    assert jobs.runner.containers(f"{PROJECT}/gang") == []


def test_an_image_runs_its_own_command_by_tag_and_by_digest(jobs: Containers, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("import sys; print('the image says', sys.argv[1:], flush=True)\n")
    head = f"FROM {jobs.runner.base()}\nWORKDIR /root\nCOPY task.py /root/\n"
    (tmp_path / "Dockerfile").write_text(head + 'ENTRYPOINT ["python", "task.py"]\nCMD ["by", "itself"]\n')
    jobs.runner("build", "-t", "trainshed-tests/own", str(tmp_path))
    jobs.submit("own", "trainshed-tests/own")
    jobs.wait("own", "SUCCEEDED")
    assert "the image says ['by', 'itself']" in jobs.lines("own")
    jobs.submit("own_args", jobs.runner.pinned("trainshed-tests/own"), args=["--x", "1"])
    jobs.wait("own_args", "SUCCEEDED")
    assert "the image says ['--x', '1']" in jobs.lines("own_args")
    pinned = f"Running the image {jobs.runner.pinned('trainshed-tests/own')}"
    assert any(line.startswith(pinned) for line in jobs.lines("own_args"))


def test_trials_report_from_their_containers(jobs: Containers) -> None:
    image = {"imageUri": jobs.runner.base(), "containerCommand": ["python3", "-c"], "containerArgs": [REPORTS]}
    jobs.submit("search", masterConfig=image, scaleTier="CUSTOM", masterType="n1-highcpu-1", hyperparameters=SEARCH)
    trials = jobs.wait("search", "SUCCEEDED")["trainingOutput"]["trials"]
    assert [(trial["trialId"], trial["finalMetric"]) for trial in trials] == [
        (number, {"trainingStep": "120", "objectiveValue": float(number)}) for number in ("2", "1")
    ]
    curves = jobs.server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/search/search")["curves"]
    assert [list(map(int, curve["x"])) for curve in curves] == [list(range(1, 121))] * 2


def test_a_failure_names_the_replica_and_shows_its_last_words(jobs: Containers) -> None:
    jobs.submit("fails", "", "raise ValueError('no such digit')")
    done = jobs.wait("fails", "FAILED")
    assert "The replica master 0 exited with a non-zero status of 1." in done["errorMessage"]
    assert "ValueError: no such digit" in done["errorMessage"]
    jobs.submit("no_program", masterConfig={"imageUri": jobs.runner.base(), "containerCommand": ["/no/such/program"]})
    done = jobs.wait("no_program", "FAILED")
    assert "/no/such/program" in done["errorMessage"]
    assert jobs.runner.containers(f"{PROJECT}/fails") == []


def test_a_killed_replica_is_started_again_and_its_container_is_gone(jobs: Containers) -> None:
    jobs.submit("chaos", "", WAIT, "chaos", **GANG)
    jobs.wait("chaos", "RUNNING")
    all_of_it = ("master-replica-0", "worker-replica-0", "ps-replica-0")
    eventually(lambda: [jobs.starts("chaos", name) for name in all_of_it], lambda counts: counts == [1, 1, 1])
    before = {each["Labels"]["trainshed.replica"]: each["Id"] for each in jobs.runner.containers(f"{PROJECT}/chaos")}
    jobs.server.call(
        "POST", f"/trainshed/v1/projects/{PROJECT}/jobs/chaos:chaos", {"kill": "worker-replica-0", "signal": "KILL"}
    )
    eventually(lambda: jobs.starts("chaos", "worker-replica-0"), lambda count: count == 2)
    after = {each["Labels"]["trainshed.replica"]: each["Id"] for each in jobs.runner.containers(f"{PROJECT}/chaos")}
    assert set(after) == set(before) == {"master-replica-0", "worker-replica-0", "ps-replica-0"}
    assert {name for name in before if before[name] != after[name]} == {"worker-replica-0"}
    eventually(lambda: _samples(jobs, "chaos"), lambda seen: all(seen.get(name, {}).get("cpu", 0) for name in after))
    sample = _samples(jobs, "chaos")["master-replica-0"]
    assert sample["rss"] < 60e6, "that of the tool's own processes is not the replica's"
    (jobs.bucket / "chaos" / "done").touch()
    jobs.wait("chaos", "SUCCEEDED")
    assert "restarted worker-replica-0 (killed by signal 9)" in "\n".join(
        jobs.server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/chaos")["restarts"]
    )
    assert "heard signal 15" in jobs.lines("chaos"), "what still runs at the end is asked to end first"
    assert jobs.runner.containers(f"{PROJECT}/chaos") == []


def _samples(jobs: Containers, job: str) -> dict[str, dict[str, Any]]:
    return {each["r"]: each for each in records(jobs.attempt(job) / "samples.jsonl")}


# In every run, the end of the gang above asks what still runs to end, and a job that pulls its image is cancelled.
@pytest.mark.soak
def test_cancelling_ends_the_container(jobs: Containers) -> None:
    jobs.submit("cancelled", "", WAIT, "cancelled")
    jobs.wait("cancelled", "RUNNING")
    eventually(lambda: jobs.starts("cancelled", "master-replica-0"), lambda count: count == 1)
    jobs.server.call("POST", f"/v1/projects/{PROJECT}/jobs/cancelled:cancel", {})
    jobs.wait("cancelled", "CANCELLED")
    assert "heard signal 15" in jobs.lines("cancelled")
    assert jobs.runner.containers(f"{PROJECT}/cancelled") == []


@pytest.mark.parametrize("killed", [("pid",), ("reaper", "pid")], ids=["supervisor", "supervisor and reaper"])
def test_nothing_is_left_of_a_job_whose_supervising_processes_are_killed(
    jobs: Containers, killed: tuple[str, ...]
) -> None:
    job = "left_by_" + "_".join(killed)
    jobs.submit(job, "", WAIT, job)
    jobs.wait(job, "RUNNING")
    eventually(lambda: jobs.starts(job, "master-replica-0"), lambda count: count == 1)
    [container] = jobs.runner.containers(f"{PROJECT}/{job}")
    pids = [jobs.journal(job, "supervisor_started")[name] for name in killed]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)  # so that neither sees the other's end
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    done = jobs.wait(job, "FAILED")
    assert "submit it again" in done["errorMessage"]
    assert jobs.runner.containers(f"{PROJECT}/{job}") == []
    eventually(lambda: Path(f"/proc/{container['Pid']}").exists(), lambda there: not there)


def test_an_image_that_is_not_there_is_named(jobs: Containers) -> None:
    jobs.submit("missing", "localhost/no/such/image:7")
    done = jobs.wait("missing", "FAILED")
    assert "The image localhost/no/such/image:7 is not on this machine, and it can't be pulled:" in done["errorMessage"]
    assert f"{jobs.runner.kind} build -t localhost/no/such/image:7 ." in done["errorMessage"]


def test_an_image_for_another_machine_is_refused(jobs: Containers, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    jobs.runner(
        "build",
        "--platform",
        "linux/s390x",
        "-t",
        "trainshed-tests/foreign",
        "-f",
        "-",
        str(tmp_path),
        stdin="FROM scratch\nCOPY file /\n",
    )
    jobs.submit("foreign", "trainshed-tests/foreign")
    done = jobs.wait("foreign", "FAILED")
    assert "trainshed-tests/foreign is made for s390x, and this machine is" in done["errorMessage"]


def test_an_image_is_pulled_and_its_progress_told(jobs: Containers, podman: Podman, tmp_path: Path) -> None:
    podman("save", "--format", "oci-dir", "-o", str(tmp_path / "oci"), podman.base())
    with ImageRegistry(tmp_path / "oci") as registry:
        jobs.runner.trust(registry.address)
        name = f"{registry.address}/trainers/python:3"
        jobs.submit("pulled", name, "print('from afar', flush=True)")
        jobs.wait("pulled", "SUCCEEDED")
        jobs.runner("rmi", name)
        jobs.submit("pulled_by_digest", f"{registry.address}/trainers/python@{registry.digest}", "print('the same')")
        jobs.wait("pulled_by_digest", "SUCCEEDED")
    assert "the same" in jobs.lines("pulled_by_digest")
    lines = jobs.lines("pulled")
    assert f"The image {name} is not on this machine: pulling it with {jobs.runner.kind}." in lines
    assert any(word in line for line in lines for word in ("Copying blob", "Digest: sha256:"))
    assert "from afar" in lines


def test_a_pull_that_hangs_can_be_cancelled(jobs: Containers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        name = f"127.0.0.1:{silent.getsockname()[1]}/trainers/python:3"
        jobs.submit("hanging", name)
        told = f"pulling it with {jobs.runner.kind}"
        eventually(lambda: jobs.lines("hanging"), lambda lines: any(told in line for line in lines))
        jobs.server.call("POST", f"/v1/projects/{PROJECT}/jobs/hanging:cancel", {})
        jobs.wait("hanging", "CANCELLED")
        left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if name.encode() in _read(path)]
        assert left == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


def test_what_does_not_go_together_is_refused_at_once(jobs: Containers) -> None:
    training = {"region": "us-central1", "masterConfig": {"imageUri": "x"}, "runtimeVersion": "2.21"}
    body = {"jobId": "both", "trainingInput": training}
    status, answer = Caller(jobs.server.url)("POST", f"/v1/projects/{PROJECT}/jobs", token=jobs.server.token, body=body)
    assert status == 400
    assert "brings its own environment along" in answer["error"]["message"]


SECRETS = """
import os, pathlib, sys
value = os.environ["PLANTED_KEY"]
lines = pathlib.Path(os.environ["TRAINSHED_SECRETS"], "planted-cert").read_text()
print("lengths", len(value), len(lines))
print("shown", value, "and", lines, flush=True)
"""


def test_a_container_has_its_secrets_and_nothing_else_has(jobs: Containers) -> None:
    value, lines = "planted-for-a-variable", "planted-first-line\nplanted-second-line"
    for name, text in (("planted-key", value), ("planted-cert", lines)):
        jobs.server.call("POST", f"/trainshed/v1/projects/{PROJECT}/secrets/{name}:set", {"value": text})
    labels = {"trainshed-secret-planted-key": "variable", "trainshed-secret-planted-cert": "file"}
    jobs.submit(job := f"secrets_{jobs.runner.kind}", "", SECRETS, labels=labels)
    jobs.wait(job, "SUCCEEDED")
    assert {f"lengths {len(value)} {len(lines)}", "shown [secret] and [secret]"} <= set(jobs.lines(job))
    assert any(line.startswith("Its sandbox is that of its containers") for line in jobs.lines(job))
    found = [path for path in jobs.attempt(job).rglob("*") if path.is_file() and value.encode() in path.read_bytes()]
    assert found == []
