"""Secrets over HTTP and the command line, and a job that gets them: a planted value is nowhere but in the replica."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainshed.cli.commands import main
from trainshed.domain.jobs.states import TERMINAL_STATES
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "secretive-one"
SECRETS = f"/trainshed/v1/projects/{PROJECT}/secrets"
VALUE, LINES = "planted-for-a-variable", "planted-first-line\nplanted-second-line"
SOURCE = """
import os, pathlib, sys
value = os.environ["WANDB_API_KEY"]
lines = pathlib.Path(os.environ["TRAINSHED_SECRETS"], "cert").read_text()
assert sorted(os.listdir(os.environ["TRAINSHED_SECRETS"])) == ["cert"], os.listdir(os.environ["TRAINSHED_SECRETS"])
print("lengths", len(value), len(lines))
print("shown", value, "and", lines, flush=True)
sys.exit("ended with " + value)
"""


@pytest.fixture(scope="module")
def call(server: RunningServer) -> Caller:
    return Caller(server.url)


@pytest.fixture(scope="module")
def jobs(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Submitter:
    return Submitter(server, PROJECT, tmp_path_factory.mktemp("secrets"))


def test_a_job_has_its_secrets_and_nothing_else_has(server: RunningServer, jobs: Submitter, call: Caller) -> None:
    for name, value in (("wandb-api-key", VALUE), ("cert", LINES)):
        status, answer = call("POST", f"{SECRETS}/{name}:set", token=server.token, body={"value": value})
        assert (status, "planted" in str(answer)) == (200, False)
    jobs.labels = {"trainshed-secret-wandb-api-key": "variable", "trainshed-secret-cert": "file"}
    jobs.submit("told", SOURCE)
    ended = jobs.wait("told", ["FAILED"])
    lines = jobs.lines("told")
    assert f"lengths {len(VALUE)} {len(LINES)}" in lines
    assert "shown [secret] and [secret]" in lines
    assert "ended with [secret]" in ended["errorMessage"]
    details = f"/trainshed/v1/projects/{PROJECT}/jobs/told"
    for path in (SECRETS, f"{details}/logs", details, f"/trainshed/v1/projects/{PROJECT}/audit?pageSize=1000"):
        status, answer = call("GET", path, token=server.token)
        assert (status, "planted" in str(answer)) == (200, False), path
    assert [
        path
        for folder, _, names in os.walk(server.home)
        for path in (Path(folder, name) for name in names)
        if path.is_file() and b"planted-" in path.read_bytes().replace(SOURCE.encode(), b"")
    ] == []
    assert not (jobs.attempt("told") / "secrets").exists()


def test_what_cannot_be_given_is_refused(server: RunningServer, jobs: Submitter, call: Caller) -> None:
    def submit(labels: dict[str, str], **training: object) -> tuple[int, str]:
        body = {"jobId": "no", "labels": labels, "trainingInput": {"region": "r", **training}}
        status, answer = call("POST", f"/v1/projects/{PROJECT}/jobs", token=server.token, body=body)
        return status, str(answer["error"]["message"])

    module = {"runtimeVersion": "python", "packageUris": ["gs://x/y.whl"], "pythonModule": "trainer.task"}
    status, message = submit({"trainshed-secret-gone": "file"}, **module)
    assert (status, "has no secret gone" in message) == (400, True), message
    status, message = submit({"trainshed-secret-cert": "both"}, **module)
    assert (status, "must be file or variable" in message) == (400, True), message
    patch = {"labels": {"trainshed-secret-cert": "variable"}}
    path = f"/v1/projects/{PROJECT}/jobs/told?updateMask=labels"
    assert call("PATCH", path, token=server.token, body=patch)[0] == 400


LOAD = """
        import pathlib
        cls.value = os.environ["HOSTED_KEY"]
        cls.lines = pathlib.Path(os.environ["TRAINSHED_SECRETS"], "hosted-cert").read_text()
        print("loaded with", cls.value, "and", cls.lines, flush=True)
        sys.stderr.write("half a line: " + cls.value[:9])
        sys.stderr.flush()
        time.sleep(0.05)
        print(cls.value[9:], file=sys.stderr, flush=True)
"""
HOSTED = {"trainshed-secret-hosted-key": "variable", "trainshed-secret-hosted-cert": "file"}


def test_a_version_and_its_batch_predictions_have_their_secrets(
    server: RunningServer, call: Caller, tmp_path: Path
) -> None:
    project = "secretive-models"
    deployer = Deployer(server, project, tmp_path)
    missing = {"name": "v", "deploymentUri": f"gs://{deployer.bucket}/m", "labels": HOSTED}
    status, answer = call("POST", f"{deployer.path}/versions", token=server.token, body=missing)
    assert status == 400, answer
    for name, value in (("hosted-key", VALUE), ("hosted-cert", LINES)):
        path = f"/trainshed/v1/projects/{project}/secrets/{name}:set"
        assert call("POST", path, token=server.token, body={"value": value})[0] == 200
    deployer.deploy_routine("v1", load=LOAD, answer="return [len(self.value), len(self.lines)]", labels=HOSTED)
    assert deployer.predict("v1", 1, 2) == [len(VALUE), len(LINES)]
    [log] = (server.home / "hosts" / project / "m" / "v1").glob("0.log")
    eventually(log.read_text, lambda text: "half a line: [secret]" in text)
    assert "loaded with [secret] and [secret]" in log.read_text()
    [given] = (server.home / "host-secrets").iterdir()
    assert [path.name for path in given.rglob("*") if path.is_file()] == ["hosted-cert"], "while it runs"
    raising = LOAD + "        raise ValueError('not with ' + cls.value)\n"
    assert "not with [secret]" in deployer.refused(deployer.create_routine("v2", load=raising, labels=HOSTED))
    patch = {"labels": {"trainshed-secret-hosted-key": "file"}}
    path = f"{deployer.path}/versions/v1?updateMask=labels"
    assert call("PATCH", path, token=server.token, body=patch)[0] == 400
    _predict_in_batch(server, deployer)
    shown = [path for path in server.home.rglob("*") if path.is_file() and given not in path.parents]
    assert [path for path in shown if VALUE.encode() in path.read_bytes()] == []
    for version in ("v2", "v1"):
        deployer.finish(deployer.delete(version))
    eventually(lambda: list((server.home / "host-secrets").iterdir()), lambda left: not left)


def _predict_in_batch(server: RunningServer, deployer: Deployer) -> None:
    uri = deployer.upload("rows.json", b"1\n2\n")
    prediction = {
        "versionName": f"projects/{deployer.project}/models/m/versions/v1",
        "inputPaths": [uri],
        "outputPath": f"gs://{deployer.bucket}/out",
        "dataFormat": "JSON",
        "region": "us-central1",
    }
    jobs = f"/v1/projects/{deployer.project}/jobs"
    server.call("POST", jobs, {"jobId": "rows", "labels": HOSTED, "predictionInput": prediction})
    ended = eventually(lambda: server.call("GET", f"{jobs}/rows"), lambda job: job["state"] in TERMINAL_STATES)
    assert ended["state"] == "SUCCEEDED", ended
    entries = server.call("GET", f"/trainshed/v1/projects/{deployer.project}/jobs/rows/logs")["entries"]
    assert any("loaded with [secret] and [secret]" in entry["message"] for entry in entries), entries
    [results] = (server.home / "buckets" / deployer.bucket / "out").glob("prediction.results*")
    assert results.read_text().split() == [str(len(VALUE)), str(len(LINES))]


def test_the_command_line_reads_values_from_stdin_and_files(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRAINSHED_URL", server.url)
    monkeypatch.setenv("TRAINSHED_TOKEN", server.token)
    of = ("--project", "secretive-two")

    def run(*words: str, stdin: bytes = b"", status: int = 0) -> str:
        done = CliRunner().invoke(main, ["secrets", *words], input=stdin)
        assert done.exit_code == status, done.output
        assert "planted" not in done.output
        return done.output

    run("set", "one", *of, stdin=b"planted-value\n")
    (tmp_path / "value").write_bytes(b"planted-in-a-file\n")
    run("set", "two", "--from-file", str(tmp_path / "value"), *of)
    assert "8 bytes" in run("set", "three", *of, stdin=b"planted", status=1)
    assert "not UTF-8" in run("set", "three", *of, stdin=b"planted\xff\xfe", status=1)
    assert run("list", "--format", "value(name)", *of).split() == ["one", "two"]
    assert "with a new key" in run("rotate-key")
    run("delete", "one", "--quiet", *of)
    assert run("list", "--format", "value(name)", *of).split() == ["two"]
