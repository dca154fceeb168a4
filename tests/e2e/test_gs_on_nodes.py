"""Trainers on another machine than the server's: their packages, and `gs://` in their code and arguments.

The other machine is a network namespace with files of its own, where that can be made. It has a Python with TensorFlow
and uv, and nothing of the server's but what comes over the network.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from trainshed import packaging
from trainshed.artifacts.staging import Package
from trainshed.control.jobs.credentials import RemoteCredentials
from trainshed.engines.base import AttemptSpec
from trainshed.engines.shipping import ship
from trainshed.proxy.node_endpoint import NodeEndpoint
from trainshed.runtimes.uv import find_uv
from trainshed.testing.cache import link_runtimes, runtime_python
from trainshed.testing.clusters.gangs import tokens_of
from trainshed.testing.clusters.machines import Network, TestMachine
from trainshed.testing.fakes.s3_server import BUCKET, S3Server, s3_server
from trainshed.testing.processes.resources import held_port
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.gs_files import FILES, PARTS
from trainshed.testing.workloads.submitter import Submitter

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
PROJECT = "elsewhere"
IN_CLOUD = "kept-in-s3"  #: a bucket that the server keeps there

WAITING = """
import os, time
while not os.path.exists("go"):
    time.sleep(0.05)
"""

#: does on the other machine what is done there around a replica
AROUND = """
import json, os, subprocess, sys

folder = sys.argv[1]
with open(os.path.join(folder, "given.json")) as file:
    given = json.load(file)
sys.path.insert(0, given["code"])
from trainshed_node import package_install
from trainshed_node.remote import credentials, fetch, sidecar_proxy

site = os.path.join(folder, "site")
found = fetch.fetch_all(given["packages"], given["credentials"], os.path.join(folder, "fetched"), print)
with open(os.path.join(folder, "spec.json"), "w") as file:
    json.dump({"site": site, "uv": given["uv"], "python": given["argv"][0], "packages": found}, file)
assert package_install.install(folder) == 0
way = sidecar_proxy.SidecarProxy(given["credentials"]["sidecar_proxy"])
pid = way.start()

def fill(text):
    return text.replace("@node@", folder).replace("@sidecar_proxy@", way.address)

credentials.unpack_credentials(given["credentials"], folder, fill)
env = dict(os.environ, PYTHONPATH=site)
env.update((name, fill(value)) for name, value in given["env"].items())
status = subprocess.call(given["argv"], env=env, cwd=folder)
os.kill(pid, 9)
sys.exit(status)
"""


class Elsewhere:
    """A job of a server on this machine, whose replica runs on another one."""

    def __init__(self, server: RunningServer, machine: TestMachine, scratch: Path, s3: S3Server) -> None:
        self.s3 = s3  #: where it keeps a bucket. Nobody has started it
        self.jobs = Submitter(server, PROJECT, scratch)
        self.bucket = f"gs://{self.jobs.bucket}"
        self.files = server.home / "buckets" / self.jobs.bucket
        self._server = server
        self._machine = machine
        self.jobs.submit("away", WAITING)
        self.jobs.wait("away", {"RUNNING"})

    def end(self) -> None:
        (self.jobs.attempt("away") / "work" / "go").touch()
        self.jobs.wait("away")

    def train(self, name: str, package: Path, *args: str, runtime: str = "2.21") -> str:
        """Run `trainer.task` of the package in `package` there. What it said; it must have succeeded."""
        python = runtime_python(runtime)
        with packaging.build(package) as archive:
            content = archive.path.read_bytes()
            uri = f"{self.bucket}/{archive.path.name}"
            sent = Package(uri=uri, path=archive.path, sha256=hashlib.sha256(content).hexdigest())
            return self.run(name, [str(python), "-m", "trainer.task", *args], sent)

    def run(self, name: str, argv: list[str], *packages: Package) -> str:
        """Run a program there, by a Python that the machine has. What it said; it must have succeeded."""
        folder = self._machine.folder / name
        folder.mkdir()
        code = ship(self._machine.folder / "node").relative_to(self._machine.folder)
        given = self._given(packages) | {
            "argv": argv,
            "uv": str(find_uv()),
            "code": str(self._machine.inside(str(code))),
        }
        (folder / "given.json").write_text(json.dumps(given))
        (folder / "around.py").write_text(AROUND)
        there = self._machine.inside(name)
        done = self._machine.run([argv[0], "-I", there / "around.py", there], timeout_s=500)
        assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
        return done.stdout + done.stderr

    def _given(self, packages: tuple[Package, ...]) -> dict[str, object]:
        with tokens_of(self._server) as tokens:
            reach = NodeEndpoint(
                tls_url=self._server.tls_url, authority=self._server.authority.read_text(), serves_gs=True
            )
            issues = RemoteCredentials(
                reach, issue=tokens.issue_for_job, issue_fetch_token=tokens.issue_job_fetch_token
            )
            made = issues.inject(
                AttemptSpec(
                    project=PROJECT,
                    job="away",
                    attempt=1,
                    folder=self.jobs.attempt("away"),
                    python=Path(),
                    module="",
                    args=(),
                    packages=packages,
                    site=Path(),
                    replicas=(),
                    env={"TRAINSHED_PROJECT": PROJECT},
                    grace_s=1,
                    max_running_s=3600,
                    log_limit_bytes=1,
                )
            )
        return {"packages": made.packages, "credentials": dict(made.credentials), "env": dict(made.spec.env)}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    scratch = tmp_path_factory.mktemp("elsewhere")
    home = link_runtimes(scratch / "home")
    network = Network(scratch / "machines")
    (home / "config.toml").write_text(f'[buckets.{IN_CLOUD}]\nurl = "s3://{BUCKET}/here"\nproject = "{PROJECT}"\n')
    with held_port() as port:
        s3 = S3Server(port)
        server = RunningServer(home, {"host": network.host}, environment=s3.env).start()
        made = Elsewhere(server, network.machine("one"), scratch / "jobs", s3)
        yield made
        made.end()
    network.close()
    assert server.close() == 0


def trainer(folder: Path, source: str) -> Path:
    (folder / "trainer").mkdir()
    (folder / "trainer" / "__init__.py").touch()
    (folder / "trainer" / "task.py").write_text(source)
    return folder / "trainer"


@pytest.mark.timeout(600)
def test_tensorflow_works_on_gs(elsewhere: Elsewhere, tmp_path: Path) -> None:
    source = f"{FILES}\nimport sys\neverything(sys.argv[1])\n"
    said = elsewhere.train("files", trainer(tmp_path, source), f"{elsewhere.bucket}/files")
    assert [line for line in said.splitlines() if line.startswith("done:")] == [f"done: {part}" for part in PARTS]
    assert "Downloading the package: gs://" in said
    assert (elsewhere.files / "files" / "files" / "one.txt").read_text() == "first\nsecond\nthird\n"
    assert (elsewhere.files / "files" / "models" / "model" / "saved_model.pb").is_file()
    assert [*(elsewhere.files / "files" / "checkpoints" / "ckpt").glob("*.index")]


CLIENTS = """
import subprocess, sys
import gcsfs
from google.cloud import storage

client = storage.Client()
assert client.project == "elsewhere", client.project
bucket = client.bucket(sys.argv[1])
bucket.blob("clients/one.txt").upload_from_string("hello")
assert bucket.blob("clients/one.txt").download_as_text() == "hello"
assert gcsfs.GCSFileSystem().cat(f"{sys.argv[1]}/clients/one.txt") == b"hello"
for argv in (["gsutil", "cat", f"gs://{sys.argv[1]}/clients/*.txt"], ["trainshed", "buckets", "ls"]):
    print(argv, subprocess.run([f"{sys.argv[2]}/{argv[0]}", *argv[1:]], check=True, stdout=subprocess.PIPE, text=True))
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("in_cloud", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["folder", "s3"])
def test_googles_clients_and_our_own_work_there(elsewhere: Elsewhere, in_cloud: bool) -> None:
    folder, bucket = Path(sys.executable).parent, IN_CLOUD if in_cloud else elsewhere.jobs.bucket
    with s3_server(elsewhere.s3.port) if in_cloud else nullcontext():
        said = elsewhere.run(f"clients-{bucket}", [sys.executable, "-c", CLIENTS, bucket, str(folder)])
    assert "stdout='hello'" in said
    assert f"gs://{bucket}/" in said


OLD = """
import json, os, sys, urllib.request

with open(os.environ["CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"]) as file:
    token = file.read().strip()
request = urllib.request.Request("https://us-central1-ml.googleapis.com/v1/projects/elsewhere/jobs/away")
request.add_header("Authorization", "Bearer " + token)
state = "PREPARING"
while state == "PREPARING":  # the server sees a moment after its start that the program runs
    state = json.load(urllib.request.urlopen(request))["state"]
print("Python", sys.version_info[:2], "state", state)
"""


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("oldest_python")
def test_the_oldest_python_has_the_same(elsewhere: Elsewhere, tmp_path: Path) -> None:
    said = elsewhere.train("old", trainer(tmp_path, OLD), runtime="1.15")
    assert "Python (3, 7) state RUNNING" in said


#: of each sample: its runtime, its arguments with BUCKET, and a file that it leaves
TRAINED = {
    "iris": (
        "2.21",
        "--train_file BUCKET/iris/iris_training.csv --test_file BUCKET/iris/iris_test.csv --outdir BUCKET/out/iris "
        "--train_steps 100",
        "iris/export/exporter/*/saved_model.pb",
    ),
    "mnist_async": (
        "2.21",
        "--data_dir BUCKET/records --job-dir BUCKET/out/mnist_async --train_steps 30 --eval_steps 2",
        "mnist_async/export/Servo/*/saved_model.pb",
    ),
    "mnist_sync": (
        "2.21",
        "--data_dir BUCKET/mnist --job-dir BUCKET/out/mnist_sync --epochs 1 --steps_per_epoch 20",
        "mnist_sync/mnist_classification_multiworkermirrored/saved_model.pb",
    ),
    "mnist_model_parallel": (
        "2.21",
        "--data_dir BUCKET/mnist --job-dir BUCKET/out/mnist_model_parallel --train_steps 20",
        "mnist_model_parallel/model.ckpt-20.index",
    ),
    "taxi": (
        "2.15",
        "--train-files BUCKET/taxi/*train*.csv --eval-files BUCKET/taxi/*eval*.csv --job-dir BUCKET/out/taxi "
        "--train-steps 50 --eval-steps 5",
        "taxi/export/estimate/*/saved_model.pb",
    ),
    "taxi with Keras": (
        "2.21",
        "--train-files BUCKET/taxi/*train*.csv --eval-files BUCKET/taxi/*eval*.csv --job-dir BUCKET/out/taxi_keras "
        "--train-steps 50 --eval-steps 5",
        "taxi_keras/export/estimate/*/saved_model.pb",
    ),
}


@pytest.fixture(scope="module")
def data(elsewhere: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the samples learn from, in the bucket."""
    made = tmp_path_factory.mktemp("data")
    script = SAMPLES / "mnist_async" / "scripts" / "create_records.py"
    subprocess.run([sys.executable, script, "--output-dir", made, "--limit", "500"], check=True, timeout=120)
    folders = {"records": made, "taxi": SAMPLES / "data" / "taxi"}
    folders |= {"mnist": SAMPLES / "data" / "mnist", "iris": SAMPLES / "iris" / "data"}
    for name, folder in folders.items():
        for path in folder.iterdir():
            elsewhere.jobs.upload(path, f"{name}/{path.name}")


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("sample", TRAINED)
def test_samples_work_on_addresses_alone(elsewhere: Elsewhere, sample: str) -> None:
    runtime, words, left = TRAINED[sample]
    args = words.replace("BUCKET", elsewhere.bucket).split()
    folder = SAMPLES / sample.partition(" ")[0] / "trainer"
    elsewhere.train(sample.replace(" ", "_"), folder, *args, runtime=runtime)
    assert [*(elsewhere.files / "out").glob(left)], [*(elsewhere.files / "out").rglob("*")]
