"""A bucket that is kept in S3, to all who use a server: the command line, Google's client, jobs and TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google.cloud.storage as storage
import pytest
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.oauth2.credentials import Credentials

from trainshed.testing.cache import link_runtimes
from trainshed.testing.fakes.s3_server import BUCKET, S3Server, s3_server
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.gs_files import FILES, PARTS
from trainshed.testing.workloads.submitter import Submitter

PROJECT, KEPT = "vision", "kept-in-s3"


@dataclass(frozen=True, slots=True)
class Lab:
    """A server that keeps one bucket in an S3."""

    server: RunningServer
    s3: S3Server

    def run(self, *words: str, fails: bool = False) -> str:
        """`trainshed ...`, and what it said."""
        argv = [sys.executable, "-m", "trainshed.cli", *words]
        env = self.server.env() | {"TRAINSHED_PROJECT": PROJECT}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=240)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    home = link_runtimes(tmp_path_factory.mktemp("lab") / "home")
    with s3_server() as s3:
        (home / "config.toml").write_text(f'[buckets.{KEPT}]\nurl = "s3://{BUCKET}/mnist"\nproject = "{PROJECT}"\n')
        server = RunningServer(home, environment=s3.env).start()
        yield Lab(server, s3)
        assert server.close() == 0


@pytest.fixture
def jobs(lab: Lab, tmp_path: Path) -> Submitter:
    return Submitter(lab.server, PROJECT, tmp_path, bucket=KEPT)


@pytest.mark.soak
def test_the_command_line_works_on_it(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.csv").write_text("1,2\n")
    (folder / "sub" / "b.csv").write_text("3,4\n")
    assert f"gs://{KEPT}/" in lab.run("buckets", "ls")
    lab.run("buckets", "cp", "-r", str(folder), f"gs://{KEPT}")
    assert lab.s3.get("mnist/data/sub/b.csv") == b"3,4\n"
    lab.s3.put("mnist/data/c.csv", b"5,6\n")
    assert lab.run("buckets", "cat", f"gs://{KEPT}/data/**.csv") == "1,2\n5,6\n3,4\n"
    lab.run("buckets", "mv", f"gs://{KEPT}/data/c.csv", f"gs://{KEPT}/data/d.csv")
    lab.run("buckets", "rsync", "-r", f"gs://{KEPT}/data", str(tmp_path / "back"))
    assert sorted(path.name for path in (tmp_path / "back").rglob("*.csv")) == ["a.csv", "b.csv", "d.csv"]
    assert "is kept in s3://lab-data/mnist" in lab.run("buckets", "rb", f"gs://{KEPT}", fails=True)
    lab.run("buckets", "rm", "-r", f"gs://{KEPT}/data")
    assert f"gs://{KEPT}/data" not in lab.run("buckets", "ls", f"gs://{KEPT}")


def test_googles_client_works_on_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    client: Any = storage.Client(
        project=PROJECT,
        credentials=Credentials(token=lab.server.token),  # type: ignore[no-untyped-call]
        client_options=ClientOptions(api_endpoint=lab.server.url),
    )
    try:
        bucket = client.bucket(KEPT)
        blob = bucket.blob("client/ä b.txt", chunk_size=256 << 10)
        blob.metadata = {"Key": "value"}
        blob.upload_from_string("x" * 600_000, content_type="text/x-odd", if_generation_match=0)
        assert blob.download_as_text() == "x" * 600_000
        assert blob.download_as_bytes(start=10, end=19) == b"x" * 10
        found = bucket.get_blob("client/ä b.txt")
        assert (found.metadata, found.content_type, found.md5_hash) == ({"Key": "value"}, "text/x-odd", blob.md5_hash)
        with pytest.raises(exceptions.PreconditionFailed):
            blob.upload_from_string("y", if_generation_match=0)
        bucket.copy_blob(blob, bucket, "client/copy")
        assert [each.name for each in client.list_blobs(KEPT, prefix="client/")] == ["client/copy", "client/ä b.txt"]
        found.metadata = {"Key": "other"}
        with pytest.raises(exceptions.BadRequest, match="can't be changed from here without writing it anew"):
            found.patch()
    finally:
        client.close()


#: what `open` can't do and Google's clients do: asks the storage API, by the name that it has at Google
ASKS = """
import argparse, os, sys, urllib.request

given = argparse.ArgumentParser()
given.add_argument("--data")
given.add_argument("--job-dir")
given = given.parse_args()
assert given.data == "gs://kept-in-s3/in/data.txt", given
with open(os.environ["CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"]) as file:
    token = file.read().strip()

def ask(path, data=None):
    url = "https://storage.googleapis.com" + path
    request = urllib.request.Request(url, data, {"Authorization": "Bearer " + token, "Content-Type": "text/plain"})
    return urllib.request.urlopen(request).read()

found = ask("/storage/v1/b/kept-in-s3/o/in%2Fdata.txt?alt=media")
name = given.job_dir.replace("gs://kept-in-s3/", "") + "/model.joblib"
ask("/upload/storage/v1/b/kept-in-s3/o?uploadType=media&name=" + name, b"learnt from " + found)
print("loss = 0.5, step = 10")
"""


def test_a_job_takes_its_package_from_there_and_leaves_its_model_there(lab: Lab, jobs: Submitter) -> None:
    lab.s3.put("mnist/in/data.txt", b"data")
    where = {"jobDir": f"gs://{KEPT}/out/asks"}
    jobs.submit("asks", ASKS, args=["--data", f"gs://{KEPT}/in/data.txt"], **where)
    done = jobs.wait("asks")
    assert done["state"] == "SUCCEEDED", (done.get("errorMessage"), jobs.lines("asks"))
    assert lab.s3.get("mnist/out/asks/model.joblib") == b"learnt from data"
    exports = lab.server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/asks/exports")["exports"]
    assert [each["uri"] for each in exports] == [f"gs://{KEPT}/out/asks/"]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_tensorflow_works_on_it(lab: Lab, jobs: Submitter) -> None:
    source = f"{FILES}\nimport sys\neverything(sys.argv[sys.argv.index('--job-dir') + 1])\n"
    jobs.submit("tensorflow", source, runtimeVersion="2.21", jobDir=f"gs://{KEPT}/tf")
    done = jobs.wait("tensorflow", timeout_s=500)
    assert done["state"] == "SUCCEEDED", (done.get("errorMessage"), jobs.lines("tensorflow")[-20:])
    assert [line for line in jobs.lines("tensorflow") if line.startswith("done:")] == [
        f"done: {part}" for part in PARTS
    ]
    assert lab.s3.get("mnist/tf/files/one.txt") == b"first\nsecond\nthird\n"
    stats = lab.server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/tensorflow/stats")
    [loss] = [metric for metric in stats["metrics"] if metric["name"] == "loss"]
    assert len(loss["value"]) == 5
    predict_with_what_it_left(lab, jobs)


def predict_with_what_it_left(lab: Lab, jobs: Submitter) -> None:
    """The model and the rows in the cloud, the results in a folder."""
    lab.s3.put("mnist/rows/a.json", b"1.0\n2.5\n")
    lab.server.call("POST", f"/storage/v1/b?project={PROJECT}", {"name": "results-here"})
    given = {
        "dataFormat": "JSON",
        "inputPaths": [f"gs://{KEPT}/rows/*"],
        "outputPath": "gs://results-here/out",
        "region": "us-central1",
        "runtimeVersion": "2.21",
        "uri": f"gs://{KEPT}/tf/models/model",
    }
    lab.server.call("POST", f"/v1/projects/{PROJECT}/jobs", {"jobId": "predicts", "predictionInput": given})
    done = jobs.wait("predicts", timeout_s=200)
    assert done["state"] == "SUCCEEDED", (done.get("errorMessage"), jobs.lines("predicts")[-20:])
    [results] = (lab.server.home / "buckets" / "results-here" / "out").glob("prediction.results-*")
    assert [json.loads(line) for line in results.read_text().splitlines()] == [{"y": 2.0}, {"y": 5.0}]
