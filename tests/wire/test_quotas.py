"""Quotas over HTTP and by the command line: who may set them, what is shown, and how a refusal looks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainshed.cli.commands import main
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "quoted-one"
QUOTAS = f"/trainshed/v1/projects/{PROJECT}/quotas"


@pytest.fixture(scope="module")
def call(server: RunningServer) -> Caller:
    return Caller(server.url)


def token(server: RunningServer, call: Caller, role: str) -> str:
    body = {"user": f"{role}-of-{PROJECT}", "project": PROJECT, "role": role}
    status, made = call("POST", "/trainshed/v1/tokens", token=server.token, body=body)
    assert status == 200, made
    return str(made["token"])


def test_owners_set_limits_and_a_refusal_has_the_facts(server: RunningServer, call: Caller) -> None:
    owner, editor = token(server, call, "owner"), token(server, call, "editor")
    each_user = {"name": "jobs-per-day", "user": "*", "value": 0}
    assert call("POST", f"{QUOTAS}:set", token=editor, body=each_user)[0] == 403
    assert call("POST", f"{QUOTAS}:set", token=owner, body=each_user)[0] == 200
    status, refused = call("POST", f"{QUOTAS}:set", token=owner, body=each_user | {"user": ""})
    assert (status, "owner of all projects" in refused["error"]["message"]) == (400, True)
    whole = {"name": "versions", "project": PROJECT, "value": 3}
    assert call("POST", "/trainshed/v1/quotas:set", token=owner, body=whole)[0] == 403
    assert call("POST", "/trainshed/v1/quotas:set", token=server.token, body=whole)[0] == 200
    status, page = call("GET", QUOTAS, token=editor)
    assert (status, [(each["name"], each["user"], each["used"]) for each in page["quotas"]]) == (
        200,
        [("versions", "", 0), ("jobs-per-day", "*", None)],
    )
    status, mine = call("GET", f"{QUOTAS}?user=editor-of-{PROJECT}", token=editor)
    assert [(each["used"], each["value"], each["default"]) for each in mine["quotas"]] == [(0, 0, True)]

    assert call("POST", f"/storage/v1/b?project={PROJECT}", token=editor, body={"name": PROJECT})[0] == 200
    upload = f"/upload/storage/v1/b/{PROJECT}/o?uploadType=media&name=p.tar.gz"
    assert call("POST", upload, token=editor, body=b"x")[0] == 200
    job = {
        "jobId": "beyond",
        "trainingInput": {
            "packageUris": [f"gs://{PROJECT}/p.tar.gz"],
            "pythonModule": "trainer.task",
            "region": "here",
            "runtimeVersion": "2.21",
        },
    }
    status, answer = call("POST", f"/v1/projects/{PROJECT}/jobs", token=editor, body=job)
    assert (status, answer["error"]["status"]) == (429, "RESOURCE_EXHAUSTED"), answer
    failure, info = answer["error"]["details"]
    assert failure["violations"][0]["subject"] == f"projects/{PROJECT}/users/editor-of-{PROJECT}"
    assert info["metadata"] == {
        "quota": "jobs-per-day",
        "subject": f"projects/{PROJECT}/users/editor-of-{PROJECT}",
        "limit": "0",
        "used": "0",
    }
    assert call("GET", f"/v1/projects/{PROJECT}/jobs/beyond", token=editor)[0] == 404
    status, audit = call("GET", f"/trainshed/v1/projects/{PROJECT}/audit?resource=quotas", token=owner)
    resources = [each["resource"] for each in audit["entries"] if each["outcome"] == "OK"]
    assert f"projects/{PROJECT}/users/*/quotas/jobs-per-day=0" in resources
    assert call("POST", f"{QUOTAS}:unset", token=owner, body={"name": "jobs-per-day", "user": "*"})[0] == 200
    assert call("POST", f"{QUOTAS}:unset", token=owner, body={"name": "jobs-per-day", "user": "*"})[0] == 404


def test_the_command_line_sets_shows_and_removes_limits(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINSHED_URL", server.url)
    monkeypatch.setenv("TRAINSHED_TOKEN", server.token)

    def run(*words: str) -> str:
        done = CliRunner().invoke(main, ["quotas", *words])
        assert done.exit_code == 0, done.output
        return done.output

    of = ("--project", "quoted-two")
    assert "Set running-replicas of user [ada] of project [quoted-two] to 8." in run(
        "set", "running-replicas", "8", "--user", "ada", *of
    )
    assert "of project [quoted-two] to 20" in run("set", "queued-replicas", "20", *of)
    assert json.loads(run("list", "--format", "json", *of)) == [
        {"name": "queued-replicas", "project": "quoted-two", "user": "", "value": 20, "used": 0, "default": False},
        {"name": "running-replicas", "project": "quoted-two", "user": "ada", "value": 8, "used": 0, "default": False},
    ]
    assert "replicas in the queue" in run("describe", "queued-replicas", *of)
    assert run("list", "--all-projects", "--user", "ada").splitlines()[-1].split() == [
        *("running-replicas", "quoted-two", "ada", "8"),
    ]
    assert "Removed running-replicas" in run("unset", "running-replicas", "--user", "ada", *of)
    assert "Removed queued-replicas" in run("unset", "queued-replicas", *of)


def test_bytes_in_buckets_are_refused_and_a_job_that_writes_files_is_ended(
    server: RunningServer, call: Caller, tmp_path: Path
) -> None:
    project = "quoted-three"
    jobs = Submitter(server, project, tmp_path)
    limit = {"name": "bucket-bytes", "project": project, "value": 2_000_000}
    assert call("POST", "/trainshed/v1/quotas:set", token=server.token, body=limit)[0] == 200
    upload = f"/upload/storage/v1/b/{jobs.bucket}/o?uploadType=media&name="
    assert call("POST", f"{upload}small", token=server.token, body=b"x" * 1000)[0] == 200
    status, answer = call("POST", f"{upload}large", token=server.token, body=b"x" * 2_000_000)
    assert (status, answer["error"]["errors"][0]["reason"]) == (403, "quotaExceeded"), answer
    assert "bucket-bytes" in answer["error"]["message"]
    assert call("GET", f"/storage/v1/b/{jobs.bucket}/o/large", token=server.token)[0] == 404
    _, page = call("GET", f"/trainshed/v1/projects/{project}/quotas", token=server.token)
    assert 1000 <= page["quotas"][0]["used"] < 2_000_000

    folder = server.home / "buckets" / jobs.bucket
    jobs.submit(
        "fills",
        "import os, sys, time\n"
        "for number in range(30):\n"
        "    with open(os.path.join(sys.argv[1], f'part-{number}'), 'wb') as file:\n"
        "        file.write(b'x' * 100_000)\n"
        "print('filled', flush=True)\n"
        "time.sleep(600)\n",
        args=[str(folder)],
    )
    ended = jobs.wait("fills", ["FAILED"])
    assert "is beyond a limit: " in ended["errorMessage"], ended
    assert "2 MB of objects in buckets" in ended["errorMessage"]
    assert "filled" in jobs.lines("fills")
    for number in range(30):
        (folder / f"part-{number}").unlink()
    eventually(
        lambda: call("POST", f"{upload}later", token=server.token, body=b"x" * 1000),
        lambda answer: answer[0] == 200,
    )


def test_owners_of_a_project_set_how_long_it_keeps_things(
    server: RunningServer, call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, editor = token(server, call, "owner"), token(server, call, "editor")
    days = {"name": "log-days", "value": 30}
    assert call("POST", f"{QUOTAS}:set", token=editor, body=days)[0] == 403
    assert call("POST", f"{QUOTAS}:set", token=owner, body=days)[0] == 200
    for wrong in (days | {"value": 0}, days | {"user": "ada"}):
        assert call("POST", f"{QUOTAS}:set", token=owner, body=wrong)[0] == 400
    monkeypatch.setenv("TRAINSHED_URL", server.url)
    monkeypatch.setenv("TRAINSHED_TOKEN", owner)
    done = CliRunner().invoke(main, ["quotas", "set", "trial-days", "7", "--project", PROJECT])
    assert done.exit_code == 0, done.output
    _, page = call("GET", QUOTAS, token=editor)
    shown = {each["name"]: (each["value"], each["used"]) for each in page["quotas"] if each["name"].endswith("-days")}
    assert shown == {"log-days": (30, None), "trial-days": (7, None)}
    for name in shown:
        assert call("POST", f"{QUOTAS}:unset", token=owner, body={"name": name})[0] == 200
