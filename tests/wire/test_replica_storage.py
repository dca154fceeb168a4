"""Google's clients inside a replica, as they come and with no configuration: they reach this server's buckets."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.processes.servers import Caller, RunningServer, files_of
from trainshed.testing.workloads.submitter import Submitter

BIN = Path(sys.executable).parent

#: runs one program after the other with the replica's environment, and shows what they say
RUNNER = """
import os, subprocess, sys

os.environ["PATH"] = "BIN" + os.pathsep + os.environ["PATH"]
os.environ.pop("PYTHONPATH", None)
for argv in COMMANDS:
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(f"[{done.returncode}] {' '.join(argv)[:60]}", done.stdout, sep="\\n", flush=True)
"""

LIBRARY = """
from google.api_core import exceptions
from google.cloud import storage

client = storage.Client()
assert client.project == "PROJECT", client.project
bucket = client.bucket("BUCKET")
bucket.blob("lib/hello world.txt").upload_from_string("hello")
assert bucket.blob("lib/hello world.txt").download_as_text() == "hello"
large = bucket.blob("lib/large.bin", chunk_size=1 << 20)
large.upload_from_string(b"x" * (5 << 20) + b"end")
assert bucket.blob("lib/large.bin").download_as_bytes(start=(5 << 20)) == b"end"
bucket.copy_blob(large, bucket, "lib/copy.bin")
assert [blob.name for blob in client.list_blobs(bucket, prefix="lib/")] == [
    "lib/copy.bin", "lib/hello world.txt", "lib/large.bin"]
with client.batch():
    for name in ("copy.bin", "large.bin"):
        bucket.delete_blob(f"lib/{name}")
assert [blob.name for blob in client.list_blobs(bucket, prefix="lib/")] == ["lib/hello world.txt"]
for attempt in (
    lambda: client.get_bucket("OTHER"),
    lambda: client.bucket("OTHER").blob("theirs.txt").download_as_text(),
    lambda: client.bucket("OTHER").blob("mine.txt").upload_from_string("x"),
    lambda: bucket.copy_blob(bucket.blob("lib/hello world.txt"), client.bucket("OTHER"), "mine.txt"),
):
    try:
        attempt()
    except exceptions.NotFound:
        continue
    raise AssertionError("another project's bucket was reached")
print("library: good")
"""

FILE_SYSTEM = """
import gcsfs

fs = gcsfs.GCSFileSystem()
fs.pipe("BUCKET/fs/a.txt", b"from gcsfs")
assert fs.cat("BUCKET/fs/a.txt") == b"from gcsfs"
assert fs.ls("BUCKET/fs") == ["BUCKET/fs/a.txt"]
print("file system: good")
"""

API_CLIENT = """
from googleapiclient import discovery

ml = discovery.build("ml", "v1", static_discovery=True)
state = "PREPARING"
while state == "PREPARING":  # the server sees a moment after its start that the program runs
    state = ml.projects().jobs().get(name="projects/PROJECT/jobs/api_client").execute()["state"]
print("state", state)
"""

PLAIN = """
import json, os, urllib.request
from pathlib import Path

token = Path(os.environ["CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"]).read_text().strip()
request = urllib.request.Request("https://us-central1-ml.googleapis.com/v1/projects/PROJECT/jobs/plain")
request.add_header("Authorization", f"Bearer {token}")
state = "PREPARING"
while state == "PREPARING":
    state = json.load(urllib.request.urlopen(request))["state"]
print("state", state)
"""


class Replica:
    """Runs programs in jobs of one project."""

    def __init__(self, server: RunningServer, project: str, scratch: Path, *, other: str) -> None:
        self.jobs = Submitter(server, project, scratch)
        self._words = {"BUCKET": self.jobs.bucket, "PROJECT": project, "OTHER": other, "BIN": str(BIN)}

    def start(self, job: str, source: str) -> None:
        for word, value in self._words.items():
            source = source.replace(word, value)
        self.jobs.submit(job, source)

    def run(self, job: str, *commands: list[str]) -> str:
        """What the programs say. Each must succeed."""
        self.start(job, RUNNER.replace("COMMANDS", repr(list(commands))))
        done = self.jobs.wait(job)
        text = "\n".join(self.jobs.lines(job))
        assert done["state"] == "SUCCEEDED", text
        assert text.count("\n[0] ") == len(commands), text
        return text

    def python(self, job: str, source: str) -> str:
        return self.run(job, [sys.executable, "-W", "error::ResourceWarning", "-c", source])


@pytest.fixture(scope="module")
def replica(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    other = Submitter(server, "wire-theirs", tmp_path_factory.mktemp("theirs"))
    path = tmp_path_factory.mktemp("objects") / "theirs.txt"
    path.write_text("theirs")
    other.upload(path, "theirs.txt")
    yield Replica(server, "wire-replica", tmp_path_factory.mktemp("replica"), other=other.bucket)
    assert [entry.name for entry in (server.home / "buckets" / other.bucket).iterdir()] == ["theirs.txt"]


@pytest.fixture
def bucket(replica: Replica) -> Path:
    return replica.jobs.server.home / "buckets" / replica.jobs.bucket


def test_google_cloud_storage(replica: Replica, bucket: Path) -> None:
    assert "library: good" in replica.python("library", LIBRARY)
    assert (bucket / "lib" / "hello world.txt").read_text() == "hello"


def test_gcsfs(replica: Replica, bucket: Path) -> None:
    assert "file system: good" in replica.python("file_system", FILE_SYSTEM)
    assert (bucket / "fs" / "a.txt").read_bytes() == b"from gcsfs"


def test_gsutil(replica: Replica, bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.txt").write_text("from gsutil")
    (tmp_path / "large.bin").write_bytes(os.urandom(9 << 20))  # over gsutil's threshold for resumable uploads
    there = f"gs://{replica.jobs.bucket}/gsutil"
    said = replica.run(
        "gsutil",
        ["gsutil", "-m", "cp", "-r", str(tmp_path / "tree"), there],
        ["gsutil", "cp", str(tmp_path / "large.bin"), f"{there}/large.bin"],
        ["gsutil", "cat", f"{there}/**/a.txt"],
        ["gsutil", "ls", there],
    )
    assert "from gsutil" in said
    assert f"{there}/large.bin\n" in f"{said}\n"
    assert (bucket / "gsutil" / "large.bin").read_bytes() == (tmp_path / "large.bin").read_bytes()


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_gcloud(replica: Replica, bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("from gcloud")
    there = f"gs://{replica.jobs.bucket}/gcloud/a.txt"
    said = replica.run(
        "gcloud",
        ["gcloud", "storage", "cp", str(tmp_path / "a.txt"), there],
        ["gcloud", "storage", "cat", there],
        ["gcloud", "ai-platform", "jobs", "describe", "gcloud", "--format=value(state)"],
    )
    assert "from gcloud" in said
    assert "RUNNING" in said
    assert (bucket / "gcloud" / "a.txt").read_text() == "from gcloud"


def test_our_own_command_line(replica: Replica) -> None:
    said = replica.run(
        "trainshed",
        ["trainshed", "buckets", "ls"],
        ["trainshed", "jobs", "describe", "trainshed", "--format=value(state)"],
    )
    assert f"gs://{replica.jobs.bucket}/" in said
    assert "theirs" not in said
    assert "RUNNING" in said


def test_google_api_python_client(replica: Replica) -> None:
    assert "state RUNNING" in replica.python("api_client", API_CLIENT)


#: what Node's libraries do by themselves: a tunnel through the proxy, and TLS with the authorities that Node trusts
NODE = """
const fs = require("fs"), http = require("http"), https = require("https"), tls = require("tls");
const proxy = new URL(process.env.https_proxy), host = "storage.googleapis.com";
const token = fs.readFileSync(process.env.CLOUDSDK_AUTH_ACCESS_TOKEN_FILE, "utf8").trim();
http.request({ host: proxy.hostname, port: proxy.port, method: "CONNECT", path: host + ":443" })
  .on("connect", (_, socket) => {
    const createConnection = () => tls.connect({ socket, servername: host });
    const headers = { authorization: "Bearer " + token };
    https.get({ host, port: 443, path: "/storage/v1/b/BUCKET", headers, createConnection }, (answer) => {
      answer.on("data", (data) => console.log("answer", answer.statusCode, JSON.parse(data).name));
    });
  })
  .end();
"""


def test_node_trusts_this_server(replica: Replica) -> None:
    assert f"answer 200 {replica.jobs.bucket}" in replica.run("node", ["node", "-e", NODE])


def test_the_ml_api_by_a_regional_name_and_the_standard_library(replica: Replica) -> None:
    assert "state RUNNING" in replica.python("plain", PLAIN)


WAITING = """
import os, time
while not os.path.exists("go"):
    time.sleep(0.05)
"""


def test_the_token_of_a_job_ends_with_it_and_is_in_no_log(replica: Replica) -> None:
    jobs, server = replica.jobs, replica.jobs.server
    replica.start("waiting", WAITING)
    jobs.wait("waiting", {"RUNNING"})
    folder = jobs.attempt("waiting") / "credentials"
    token = (folder / "token").read_text().strip()
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    call = Caller(server.url)
    form = f"grant_type=refresh_token&refresh_token={token}".encode()
    access = call("POST", "/token", body=form)[1]["access_token"]
    objects, theirs = f"/storage/v1/b/{jobs.bucket}/o", "/v1/projects/wire-theirs/jobs"
    for secret in (token, access):
        assert call("GET", objects, token=secret)[0] == 200
        assert call("GET", theirs, token=secret)[0] == 403
        assert call("GET", "/trainshed/v1/tokens", token=secret)[0] == 403
    named = [each for each in server.call("GET", "/trainshed/v1/tokens")["tokens"] if each["label"] == "job waiting"]
    assert [(each["user"], each["project"], each["role"]) for each in named] == [("job:waiting", "wire-replica", "job")]

    (jobs.attempt("waiting") / "work" / "go").touch()
    assert jobs.wait("waiting")["state"] == "SUCCEEDED"
    for secret in (token, access):
        assert call("GET", objects, token=secret)[0] == 401
    assert call("POST", "/token", body=form)[1]["error"] == "invalid_grant"
    assert not any("waiting" in each["label"] for each in server.call("GET", "/trainshed/v1/tokens")["tokens"])
    kept = set()
    for path, content in files_of(server.home):
        if folder not in path.parents:
            assert not any(secret.encode() in content for secret in (token, access)), path
            kept.add(path)
    assert {server.log, jobs.attempt("waiting") / "log.jsonl", jobs.attempt("waiting") / "spec.json"} <= kept


AFTER = (
    WAITING
    + """
import subprocess
subprocess.run(["PYTHON", "-c", '''
from google.cloud import storage
storage.Client().bucket("BUCKET").blob("after.txt").upload_from_string("after")
'''], check=True)
""".replace("PYTHON", sys.executable)
)


def test_a_job_reaches_the_next_server_too(own_server: RunningServer, tmp_path: Path) -> None:
    replica = Replica(own_server, "restarted", tmp_path / "scratch", other="")
    replica.start("after", AFTER)
    replica.jobs.wait("after", {"RUNNING"})
    own_server.kill()
    own_server.start()
    (replica.jobs.attempt("after") / "work" / "go").touch()
    assert replica.jobs.wait("after")["state"] == "SUCCEEDED", replica.jobs.lines("after")
    assert (own_server.home / "buckets" / replica.jobs.bucket / "after.txt").read_text() == "after"


SHOW = """
import json, os
print("env", json.dumps({key: value for key, value in os.environ.items() if key != "TF_CONFIG"}))
"""


def test_with_the_real_cloud_chosen_the_environment_is_left_alone(tmp_path: Path) -> None:
    server = RunningServer(tmp_path / "home", {"gs_in_trainers": "google"}).start()
    try:
        jobs = Submitter(server, "real-cloud", tmp_path / "scratch")
        jobs.submit("show", SHOW)
        assert jobs.wait("show")["state"] == "SUCCEEDED"
        [line] = [line for line in jobs.lines("show") if line.startswith("env ")]
        seen = json.loads(line.removeprefix("env "))
        for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "CURL_CA_BUNDLE", "BOTO_CONFIG", "TRAINSHED_URL"):
            assert seen.get(name) == os.environ.get(name)
        assert not (jobs.attempt("show") / "credentials").exists()
        assert not (server.home / "proxy-port").exists()
        host = {"host": "storage.googleapis.com"}
        assert Caller(server.url)("GET", "/healthz", headers=host)[0] == 403
    finally:
        server.kill()


def test_an_idle_connection_through_the_proxy_does_not_hold_up_the_end(own_server: RunningServer) -> None:
    port = int((own_server.home / "proxy-port").read_text())
    connection = http.client.HTTPSConnection(
        "127.0.0.1", port, context=ssl.create_default_context(cafile=own_server.authority), timeout=30
    )
    connection.set_tunnel("storage.googleapis.com", 443)
    connection.request("GET", "/storage/v1/b/absent", headers={"Authorization": f"Bearer {own_server.token}"})
    assert connection.getresponse().read()
    assert own_server.stop() == 0
    assert "timeout graceful shutdown exceeded" not in own_server.log.read_text()
    connection.close()
