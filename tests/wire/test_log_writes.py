"""Unmodified google-cloud-logging writes with the credentials of a job, and the entries are in the job's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.cloud import logging as google_logging
from google.cloud.logging_v2.handlers import CloudLoggingHandler
from google.cloud.logging_v2.handlers.transports import SyncTransport
from google.oauth2.credentials import Credentials

from trainshed.testing.clusters.gangs import HOUR_S, tokens_of
from trainshed.testing.processes.servers import HttpAnswer, RunningServer, ask
from trainshed.testing.workloads.submitter import Submitter

PROJECT, JOB = "writing-logs", "writer"
SECRET = "planted-in-a-log\nab="
WAITING = "import time\nwhile True:\n    time.sleep(0.1)\n"


@dataclass
class Writer:
    server: RunningServer
    jobs: Submitter
    token: str  #: of the job

    def client(self, token: str) -> Any:
        make_client: Any = google_logging.Client
        make_credentials: Any = Credentials
        return make_client(
            project=PROJECT,
            credentials=make_credentials(token),
            client_options={"api_endpoint": self.server.url},
            _use_grpc=False,
        )

    def write(self, token: str, **entry: Any) -> HttpAnswer:
        body = {"entries": [{"logName": f"projects/{PROJECT}/logs/by-hand", "textPayload": "x", **entry}]}
        headers = {"authorization": f"Bearer {token}"}
        return ask(self.server.url, "POST", "/v2/entries:write", body=body, headers=headers)

    def entries(self, log: str) -> list[tuple[str, str]]:
        name = f'logName="projects/{PROJECT}/logs/{log}" AND resource.labels.job_id="{JOB}"'
        body = {"resourceNames": [f"projects/{PROJECT}"], "filter": name}
        found = self.server.call("POST", "/v2/entries:list", body)
        return [(entry["severity"], entry["jsonPayload"]["message"]) for entry in found.get("entries", ())]


@pytest.fixture(scope="module")
def writer(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writer]:
    jobs = Submitter(server, PROJECT, tmp_path_factory.mktemp("log-writes"))
    server.call("POST", f"/trainshed/v1/projects/{PROJECT}/secrets/key:set", {"value": SECRET})
    jobs.labels = {"trainshed-secret-key": "file"}
    jobs.submit(JOB, WAITING)
    jobs.labels = {}
    jobs.wait(JOB, {"RUNNING"})
    with tokens_of(server) as issued:
        yield Writer(server, jobs, issued.issue_for_job(PROJECT, JOB, ttl_s=HOUR_S))
    server.call("POST", f"/v1/projects/{PROJECT}/jobs/{JOB}:cancel")
    jobs.wait(JOB)


def test_a_handler_writes_into_the_log_of_its_job(writer: Writer) -> None:
    client = writer.client(writer.token)
    handler: Any = CloudLoggingHandler(client, name="python", transport=SyncTransport)
    logger = logging.getLogger("trainshed.tests.handler")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        logger.info("step %d", 1)
        logger.error("two\nlines with ümlauts")
        client.logger("python").log_struct({"loss": 0.5}, severity="NOTICE")
    finally:
        logger.removeHandler(handler)
        client._connection.http.close()
    assert writer.entries("python")[-3:] == [  # the client adds one about itself
        ("INFO", "step 1"),
        ("ERROR", "two\nlines with ümlauts"),
        ("NOTICE", '{"loss":0.5}'),
    ]


def test_a_job_writes_to_its_own_log_only(writer: Writer) -> None:
    other = {"labels": {"ml.googleapis.com/job_id": "another"}}
    assert writer.write(writer.token, **other).status == 403
    assert writer.write(writer.token, resource={"type": "ml_job", "labels": {"job_id": "another"}}).status == 403
    assert writer.write(writer.token, logName="projects/another-project/logs/x").status == 403
    assert writer.write(writer.token, logName=f"projects/{PROJECT}/logs/service").status == 400
    assert writer.write(writer.token, textPayload=None).status == 400
    own = {"labels": {"ml.googleapis.com/job_id": JOB}}
    assert writer.write(writer.token, **own, severity=430).status == 200
    assert writer.entries("by-hand") == [("WARNING", "x")]


def test_secrets_of_the_job_are_masked(writer: Writer) -> None:
    name = f"projects/{PROJECT}/logs/secretive"
    assert writer.write(writer.token, logName=name, textPayload=f"so {SECRET}").status == 200
    payload = {"textPayload": None, "jsonPayload": {"key": SECRET}}
    assert writer.write(writer.token, logName=name, **payload).status == 200
    assert writer.entries("secretive") == [("DEFAULT", "so [secret]\n[secret]"), ("DEFAULT", '{"key":"[secret]"}')]


def test_people_name_the_job(writer: Writer) -> None:
    body = {"user": "ada", "project": PROJECT}
    editor, viewer = (
        writer.server.call("POST", "/trainshed/v1/tokens", {**body, "role": role})["token"]
        for role in ("editor", "viewer")
    )
    named = {"labels": {"ml.googleapis.com/job_id": JOB}, "logName": f"projects/{PROJECT}/logs/people"}
    assert writer.write(editor).status == 400
    assert writer.write(viewer, **named).status == 403
    assert writer.write(editor, **named).status == 200
    assert writer.entries("people") == [("DEFAULT", "x")]
    missing = writer.write(editor, labels={"ml.googleapis.com/job_id": "none"})
    assert missing.status == 404


def test_nothing_is_written_to_a_job_that_has_ended(writer: Writer) -> None:
    writer.jobs.submit("ended", "pass\n")
    writer.jobs.wait("ended")
    late = writer.write(writer.server.token, labels={"ml.googleapis.com/job_id": "ended"})
    assert (late.status, "does not run" in late.json["error"]["message"]) == (400, True)


def test_the_logs_of_a_project_are_listed(writer: Writer) -> None:
    assert writer.write(writer.token, logName=f"projects/{PROJECT}/logs/listed").status == 200
    path = f"/v2/projects/{PROJECT}/logs"
    names = [f"projects/{PROJECT}/logs/{log}" for log in ("listed", "master-replica-0", "service")]
    found = writer.server.call("GET", path)["logNames"]
    assert set(names) < set(found)
    assert found == sorted(found)
    assert f"projects/{PROJECT}/logs/cloudaudit.googleapis.com%2Factivity" in found
    pages, token = [], ""
    while True:
        page = writer.server.call("GET", f"{path}?pageSize=2&pageToken={token}")
        pages += page["logNames"]
        if not (token := page.get("nextPageToken", "")):
            break
    assert pages == found
    audit = f"projects/{PROJECT}/logs/cloudaudit"
    reader = writer.server.call(
        "POST", "/trainshed/v1/tokens", {"user": "reader", "role": "viewer", "project": PROJECT}
    )
    headers = {"authorization": f"Bearer {reader['token']}"}
    visible = ask(writer.server.url, "GET", path, headers=headers).json["logNames"]
    assert [name for name in visible if name.startswith(audit)] == []
    other = ask(writer.server.url, "GET", f"{path}?resourceNames=projects/another-project", headers=headers)
    assert other.status == 403
    assert writer.server.call("GET", "/v2/projects/nobody-was-here/logs") == {
        "logNames": ["projects/nobody-was-here/logs/cloudaudit.googleapis.com%2Factivity"]
    }
