"""The audit record over HTTP: changes and refused tries are in it, secrets are not, and Google's client reads it."""

from __future__ import annotations

import base64
import json
import os
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from google.cloud import logging as google_logging
from google.oauth2.credentials import Credentials

from trainshed.api.app import ROUTES
from trainshed.api.http.audit import is_change, resource_name
from trainshed.testing.processes.servers import Caller, RunningServer

PROJECT, OTHER = "audited-one", "audited-two"
BUCKET = "audited-bucket"
PATH = f"/trainshed/v1/projects/{PROJECT}/audit"


@pytest.fixture(scope="module")
def call(server: RunningServer) -> Caller:
    return Caller(server.url)


@pytest.fixture(scope="module")
def tokens(server: RunningServer, call: Caller) -> dict[str, str]:
    def make(project: str, role: str) -> str:
        body = {"user": f"{role}-of-{project}", "project": project, "role": role}
        status, made = call("POST", "/trainshed/v1/tokens", token=server.token, body=body)
        assert status == 200, made
        return str(made["token"])

    assert call("POST", f"/storage/v1/b?project={PROJECT}", token=server.token, body={"name": BUCKET})[0] == 200
    return {
        "owner": make(PROJECT, "owner"),
        "editor": make(PROJECT, "editor"),
        "viewer": make(PROJECT, "viewer"),
        "other": make(OTHER, "owner"),
    }


def entries(call: Caller, token: str, query: str = "") -> list[dict[str, Any]]:
    status, page = call("GET", f"{PATH}?pageSize=1000&{query}", token=token)
    assert status == 200, page
    return list(page["entries"])[::-1]


def facts(found: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(each["user"], each["resource"], each["outcome"]) for each in found]


def test_changes_and_refused_tries_are_entries(server: RunningServer, call: Caller, tokens: dict[str, str]) -> None:
    before = len(entries(call, tokens["owner"]))
    models = f"/v1/projects/{PROJECT}/models"
    assert call("POST", models, token=tokens["editor"], body={"name": "digits"})[0] == 200
    assert call("POST", models, token=tokens["viewer"], body={"name": "no"})[0] == 403
    assert call("GET", models, token=tokens["other"])[0] == 403
    assert call("GET", f"/storage/v1/b/{BUCKET}/o", token=tokens["other"])[0] == 404
    assert call("GET", models)[0] == 401
    upload = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=a/b.txt"
    assert call("POST", upload, token=tokens["editor"], body=b"x")[0] == 200
    assert call("POST", models, token=tokens["editor"], body={"name": "digits"})[0] == 409  # neither of them
    assert call("GET", models, token=tokens["viewer"])[0] == 200
    assert call("DELETE", f"{models}/digits", token=tokens["editor"])[0] == 200
    found = entries(call, tokens["owner"])[before:]
    editor, viewer, other = (f"{role}-of-{PROJECT}" for role in ("editor", "viewer", "owner"))
    other = f"owner-of-{OTHER}"
    assert sorted(facts(found)) == sorted(
        [
            (editor, f"projects/{PROJECT}/models/digits", "OK"),
            (viewer, f"projects/{PROJECT}/models", "PERMISSION_DENIED"),
            (other, f"projects/{PROJECT}/models", "PERMISSION_DENIED"),
            (other, f"buckets/{BUCKET}/objects", "NOT_FOUND"),
            ("", f"projects/{PROJECT}/models", "UNAUTHENTICATED"),
            (editor, f"buckets/{BUCKET}/objects/a/b.txt", "OK"),
            (editor, f"projects/{PROJECT}/models/digits", "OK"),
        ]
    )
    assert {each["address"] for each in found} == {"127.0.0.1"}
    assert {each["project"] for each in found} == {PROJECT}


def test_only_owners_read_it_and_only_of_their_project(call: Caller, tokens: dict[str, str]) -> None:
    for role, status in (("viewer", 403), ("editor", 403), ("other", 403), ("owner", 200)):
        assert call("GET", PATH, token=tokens[role])[0] == status
        assert call("GET", "/trainshed/v1/audit", token=tokens[role])[0] == 403


def test_sign_ins_are_entries(own_server: RunningServer) -> None:
    """On a server of its own: tries of others who are nobody would share one entry with these."""
    call, token = Caller(own_server.url), own_server.token
    assert call("POST", "/trainshed/v1/session", body={"token": token})[0] == 200
    assert call("POST", "/trainshed/v1/session", body={"token": "ts_not-known-to-anyone"})[0] == 401
    assert call("POST", "/token", body=f"grant_type=refresh_token&refresh_token={token}".encode())[0] == 200
    assert call("POST", "/token", body=b"grant_type=refresh_token&refresh_token=wrong")[0] == 400
    status, page = call("GET", "/trainshed/v1/audit?pageSize=1000", token=token)
    assert status == 200
    met = {(each["user"], each["resource"], each["outcome"]) for each in page["entries"]}
    assert {("owner", "session", "OK"), ("owner", "token", "OK")} <= met
    assert {("", "session", "UNAUTHENTICATED"), ("", "token", "INVALID_ARGUMENT")} <= met


def test_sign_outs_are_entries(own_server: RunningServer) -> None:
    call = Caller(own_server.url)
    session = call("POST", "/token", body=f"grant_type=refresh_token&refresh_token={own_server.token}".encode())[1]
    assert call("DELETE", "/trainshed/v1/session", token=session["access_token"])[0] == 200
    assert call("DELETE", "/trainshed/v1/session", token=own_server.token)[0] == 400
    status, page = call("GET", "/trainshed/v1/audit?method=sessions.end", token=own_server.token)
    assert status == 200
    assert facts(page["entries"]) == [("owner", "session", "OK")]


def test_reads_that_are_recorded_are_these() -> None:
    recorded = {route.schema.name for route in ROUTES if route.recorded and route.schema}
    assert recorded == {"sessions.end", "jobs.tensorboard"}


def test_google_cloud_logging_reads_it(server: RunningServer, call: Caller, tokens: dict[str, str]) -> None:
    for number in range(5):
        assert (
            call("POST", f"/v1/projects/{PROJECT}/models", token=tokens["editor"], body={"name": f"m{number}"})[0]
            == 200
        )
    log = f'logName="projects/{PROJECT}/logs/cloudaudit.googleapis.com%2Factivity"'
    with client_of(server, tokens["owner"]) as client:
        found = list(client.list_entries(filter_=f"{log} AND protoPayload.resourceName:models/m", page_size=2))
        newest = client.list_entries(filter_=log, order_by=google_logging.DESCENDING, max_results=1)
        assert [entry.payload["resourceName"] for entry in newest] == [f"projects/{PROJECT}/models/m4"]
    assert [entry.payload["resourceName"] for entry in found] == [f"projects/{PROJECT}/models/m{n}" for n in range(5)]
    assert {entry.payload["authenticationInfo"]["principalEmail"] for entry in found} == {f"editor-of-{PROJECT}"}
    assert {entry.log_name for entry in found} == {f"projects/{PROJECT}/logs/cloudaudit.googleapis.com%2Factivity"}
    assert all(entry.severity == "NOTICE" and entry.timestamp is not None for entry in found)
    body = {"resourceNames": [f"projects/{PROJECT}"], "filter": log}
    assert call("POST", "/v2/entries:list", token=tokens["editor"], body=body)[0] == 403


class client_of:
    """A client of Cloud Logging, closed at the end."""

    def __init__(self, server: RunningServer, token: str) -> None:
        make_client: Any = google_logging.Client
        make_credentials: Any = Credentials
        self._client = make_client(
            project=PROJECT,
            credentials=make_credentials(token),
            client_options={"api_endpoint": server.url},
            _use_grpc=False,
        )

    def __enter__(self) -> Any:
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client._connection.http.close()


@pytest.fixture
def planted(server: RunningServer, call: Caller) -> Iterator[list[str]]:
    """Sends secrets in every part of every request. Yields the secrets."""
    status, made = call(
        "POST", "/trainshed/v1/tokens", token=server.token, body={"user": "planter", "project": "*", "role": "owner"}
    )
    assert status == 200
    valid = made["token"]
    secret = f"ts_{secrets.token_urlsafe(32)}"
    body = dict.fromkeys(("jobId", "name", "user", "project", "label", "token", "password", "filter"), secret)
    for route in ROUTES:
        path = route.path.replace("*", "")
        for token in (None, secret, valid):
            names = {"project": PROJECT, "bucket": BUCKET, "to_bucket": BUCKET}
            filled = "/".join(
                part
                if "{" not in part
                else part.replace(part[: part.index("}") + 1], names.get(part[1 : part.index("}")], secret))
                for part in path.split("/")
            )
            headers = {"user-agent": secret, "x-goog-api-key": secret, "referer": f"http://localhost/{secret}"}
            query = "" if filled.endswith("/token") else f"?key={secret}&project={PROJECT}"
            call(route.method, filled + query, token=token, body=body, headers=headers)
    call("GET", f"/{secret}/nowhere")
    call("GET", "/healthz", headers={"host": secret.lower().replace("_", "-")})
    yield [secret, valid, server.token]


def test_it_holds_no_secret(server: RunningServer, call: Caller, planted: list[str]) -> None:
    status, page = call("GET", "/trainshed/v1/audit?pageSize=1000", token=server.token)
    assert status == 200
    assert len(page["entries"]) > 50
    with closing(sqlite3.connect(f"file:{server.home / 'state.db'}?mode=ro", uri=True)) as database:
        kept = json.dumps(page) + str(database.execute("select * from audit").fetchall())
    assert "planter" in kept
    for secret in planted:
        assert secret not in kept
        assert base64.b64encode(secret.encode()).decode().rstrip("=") not in kept


def test_every_change_is_recorded_and_no_name_of_a_resource_is_a_key() -> None:
    for route in ROUTES:
        if is_change(route) and route.method == "GET":
            assert route.path in ("/console/enter", "/console/oidc/callback")
        assert "KEY" not in resource_name(route, {"key": "KEY", "path": "KEY"}) or "{key}" not in route.path


def audit_command(server: RunningServer, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "trainshed.cli", "audit", "--project", PROJECT, *arguments]


def test_the_command_filters_and_follows(server: RunningServer, call: Caller, tokens: dict[str, str]) -> None:
    env = {**os.environ, "TRAINSHED_HOME": str(server.home)}
    models = f"/v1/projects/{PROJECT}/models"
    assert call("POST", models, token=tokens["viewer"], body={"name": "asked"})[0] == 403
    refused = audit_command(server, "--outcome", "refused", "--user", f"viewer-of-{PROJECT}", "--format", "json")
    done = subprocess.run(refused, env=env, capture_output=True, text=True, check=True, timeout=60)
    found = json.loads(done.stdout)
    assert {each["outcome"] for each in found} == {"PERMISSION_DENIED"}
    assert found[-1]["resource"] == f"projects/{PROJECT}/models"
    table = subprocess.run(audit_command(server), env=env, capture_output=True, text=True, check=True, timeout=60)
    assert table.stdout.split()[:6] == ["TIME", "USER", "ADDRESS", "METHOD", "RESOURCE", "OUTCOME"]
    follow = audit_command(server, "--follow", "--format", "json", "--limit", "1")
    with subprocess.Popen(follow, env=env, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["outcome"]
        assert call("POST", models, token=tokens["editor"], body={"name": "followed"})[0] == 200
        assert json.loads(following.stdout.readline())["resource"] == f"projects/{PROJECT}/models/followed"
        following.terminate()
