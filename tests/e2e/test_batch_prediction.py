"""Batch predictions as jobs of a real server: rows in, results and errors out, the same as online."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.saved_models import saved_models


@pytest.fixture(scope="module")
def deployer(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    deployer = Deployer(framework_server, "e2e-batch", tmp_path_factory.mktemp("batch"))
    uri = deployer.upload_folder(saved_models() / "scores", "model")
    deployer.deploy("v1", uri, framework="TENSORFLOW", runtimeVersion="2.21")
    return deployer


class Batch:
    """A batch prediction that was submitted."""

    def __init__(self, deployer: Deployer, name: str, **changes: Any) -> None:
        self.deployer = deployer
        self.name = name
        model = {"modelName": f"projects/{deployer.project}/models/{deployer.model}"}
        given = {
            "dataFormat": "JSON",
            "outputPath": f"gs://{deployer.bucket}/{name}",
            "region": "us-central1",
            **({} if {"uri", "versionName"} & set(changes) else model),
            **changes,
        }
        deployer.server.call("POST", self.jobs, {"jobId": name, "predictionInput": given})

    @property
    def jobs(self) -> str:
        return f"/v1/projects/{self.deployer.project}/jobs"

    def job(self) -> dict[str, Any]:
        found: dict[str, Any] = self.deployer.server.call("GET", f"{self.jobs}/{self.name}")
        return found

    def count(self) -> int:
        """Rows that are predicted, as far as is told: at the end of each shard for certain."""
        return int(self.job()["predictionOutput"]["predictionCount"])

    def ended(self) -> dict[str, Any]:
        return eventually(self.job, lambda job: job["state"] in ("SUCCEEDED", "FAILED", "CANCELLED"), within_s=240)

    def read(self, name: str) -> bytes:
        path = f"/storage/v1/b/{self.deployer.bucket}/o/{quote(f'{self.name}/{name}', safe='')}?alt=media"
        status, content = Caller(self.deployer.server.url)("GET", path, token=self.deployer.server.token)
        assert status == 200, content
        return bytes(content)

    def lines(self) -> list[str]:
        path = f"/trainshed/v1/projects/{self.deployer.project}/jobs/{self.name}/logs"
        return [entry["message"] for entry in self.deployer.server.call("GET", path)["entries"]]


def rows(count: int) -> list[str]:
    return [json.dumps([number / 7, number * 0.01, -number / 3]) for number in range(count)]


def test_the_same_rows_give_the_same_bytes_as_online(deployer: Deployer) -> None:
    some = rows(300)
    lines = [*some[:100], "no json", *some[100:], "[1, 2]"]
    deployer.upload("rows/a.json", "\n".join(lines).encode())
    batch = Batch(deployer, "same", inputPaths=[f"gs://{deployer.bucket}/rows/*"])
    job = batch.ended()
    assert job["state"] == "SUCCEEDED", batch.lines()
    output = job["predictionOutput"]
    assert (output["predictionCount"], output["errorCount"]) == ("300", "2")
    path = f"{deployer.path}/versions/v1:predict"
    body = b'{"instances":[%b]}' % ",".join(some).encode()
    sent = {"authorization": f"Bearer {deployer.server.token}"}
    connection = Caller(deployer.server.url)
    status, online = connection("POST", path, headers=sent, body=body)
    assert status == 200
    results = batch.read("prediction.results-00000-of-00001").splitlines()
    assert [json.loads(line) for line in results] == online["predictions"]
    assert [json.dumps(each, separators=(",", ":")).encode() for each in online["predictions"][:3]] == results[:3]
    bad = [json.loads(line) for line in batch.read("prediction.errors_stats-00000-of-00001").splitlines()]
    assert [(error["file"], error["line"]) for error in bad] == [
        (f"gs://{deployer.bucket}/rows/a.json", 101),
        (f"gs://{deployer.bucket}/rows/a.json", 302),
    ]
    assert 'input "x" takes values of shape [3], but instance 0 has shape [2]' in bad[1]["error"]
    said = batch.lines()
    assert any("by version v1 of model m" in line for line in said)
    assert "Predicted 300 rows; 2 had errors." in said


def test_a_folder_with_a_model_needs_no_version(deployer: Deployer) -> None:
    deployer.upload("more/a.json", "\n".join(rows(5)).encode())
    uri = f"gs://{deployer.bucket}/model"
    batch = Batch(
        deployer, "folder", inputPaths=[f"gs://{deployer.bucket}/more/a.json"], uri=uri, runtimeVersion="2.21"
    )
    assert batch.ended()["predictionOutput"]["predictionCount"] == "5", batch.lines()
    assert any("TensorFlow 2.21" in line for line in batch.lines())


def test_results_are_not_written_through_a_link(deployer: Deployer, tmp_path: Path) -> None:
    deployer.upload("linked/rows/a.json", "\n".join(rows(5)).encode())
    (deployer.server.home / "buckets" / deployer.bucket / "linked" / "out").symlink_to(tmp_path)
    places = {
        "inputPaths": [f"gs://{deployer.bucket}/linked/rows/*"],
        "outputPath": f"gs://{deployer.bucket}/linked/out/x",
    }
    job = Batch(deployer, "linked", **places).ended()
    assert job["state"] == "FAILED"
    assert "There is a link on the way to" in job["errorMessage"]
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True)
class Held:
    """A version that predicts so many rows of a job as it is let, and then waits."""

    name: str
    limit: Path

    def let(self, rows: int) -> None:
        """Counted from the start of a job's process."""
        self.limit.with_name("new").write_text(str(rows))
        self.limit.with_name("new").rename(self.limit)


@pytest.fixture(scope="module")
def held(deployer: Deployer, tmp_path_factory: pytest.TempPathFactory) -> Held:
    limit = tmp_path_factory.mktemp("held") / "limit"
    waits = (
        "self.rows = getattr(self, 'rows', 0) + len(instances)\n"
        f"        while self.rows > int(open({str(limit)!r}).read()):\n"
        "            time.sleep(0.01)"
    )
    deployer.deploy_routine("held", answer=waits, runtimeVersion="2.21")
    return Held(f"projects/{deployer.project}/models/{deployer.model}/versions/held", limit)


def test_a_killed_job_goes_on_behind_what_is_done(deployer: Deployer, held: Held) -> None:
    held.let(60)
    for number in range(4):
        deployer.upload(f"four/{number}.json", "\n".join(rows(50)).encode())
    paths = [f"gs://{deployer.bucket}/four/*"]
    batch = Batch(deployer, "killed", inputPaths=paths, versionName=held.name, batchSize="5")
    eventually(batch.count, lambda count: count >= 50)
    first = batch.read("prediction.results-00000-of-00004")
    kill = {"kill": "master-replica-0"}
    deployer.server.call("POST", f"/trainshed{batch.jobs}/killed:chaos", kill)
    held.let(1000)
    job = batch.ended()
    assert job["state"] == "SUCCEEDED", batch.lines()
    assert job["predictionOutput"]["predictionCount"] == "200"
    said = [line for line in batch.lines() if "were done before and are not repeated" in line]
    assert len(said) == 1 and not said[0].startswith("0 of 4")
    assert [len(batch.read(f"prediction.results-{n:05d}-of-00004").splitlines()) for n in range(4)] == [50] * 4
    assert batch.read("prediction.results-00000-of-00004") == first


def test_a_version_may_be_deleted_while_it_predicts_and_a_job_cancelled(deployer: Deployer, held: Held) -> None:
    held.let(60)
    paths = [f"gs://{deployer.bucket}/four/*"]
    batch = Batch(deployer, "cancelled", inputPaths=paths, versionName=held.name, batchSize="1")
    eventually(batch.count, lambda count: count >= 50)
    deployer.finish(deployer.delete("held"))
    held.let(120)
    eventually(batch.count, lambda count: count >= 100)
    deployer.server.call("POST", f"{batch.jobs}/cancelled:cancel", {})
    assert batch.ended()["state"] == "CANCELLED"
    status, _ = Caller(deployer.server.url)(
        "GET",
        f"/storage/v1/b/{deployer.bucket}/o/{quote('cancelled/prediction.errors_stats-00000-of-00001', safe='')}",
        token=deployer.server.token,
    )
    assert status == 404


def test_a_model_that_can_not_be_loaded_fails_the_job(deployer: Deployer) -> None:
    deployer.upload("broken/saved_model.pb", b"no graph")
    paths = [f"gs://{deployer.bucket}/rows/*"]
    batch = Batch(deployer, "broken", inputPaths=paths, uri=f"gs://{deployer.bucket}/broken", runtimeVersion="2.21")
    job = batch.ended()
    assert job["state"] == "FAILED"
    assert "Failed to load model" in job["errorMessage"]
