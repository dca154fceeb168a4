"""Every route and method with every kind of token. The table is made from the router, so a new route is in it."""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import urlsplit

import pytest

from trainshed.api.app import ROUTES
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.testing.clusters.gangs import fetch_token_of
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.submitter import Submitter

PROJECT, OTHER = "matrix-one", "matrix-two"
BUCKET = "matrix-bucket"


@pytest.fixture(scope="module")
def call(server: RunningServer) -> Caller:
    return Caller(server.url)


@pytest.fixture(scope="module")
def tokens(server: RunningServer, call: Caller) -> Iterator[dict[str, str]]:
    def make(project: str, role: str) -> dict[str, str]:
        body = {"user": "alice", "project": project, "role": role}
        status, made = call("POST", "/trainshed/v1/tokens", token=server.token, body=body)
        assert status == 200, made
        return dict(made)

    status, _ = call("POST", f"/storage/v1/b?project={PROJECT}", token=server.token, body={"name": BUCKET})
    assert status == 200
    revoked = make(PROJECT, "owner")
    status, _ = call("POST", f"/trainshed/v1/tokens/{revoked['id']}:revoke", token=server.token)
    assert status == 200
    yield {
        "bad": f"ts_{secrets.token_urlsafe(32)}",
        "revoked": revoked["token"],
        "other": make(OTHER, "owner")["token"],
        "viewer": make(PROJECT, "viewer")["token"],
        "editor": make(PROJECT, "editor")["token"],
        "owner": make(PROJECT, "owner")["token"],
    }


WAITING = "import time\nwhile True:\n    time.sleep(0.1)\n"


@pytest.fixture(scope="module")
def fetch_token(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A token that fetches the packages of a job that runs."""
    jobs = Submitter(server, PROJECT, tmp_path_factory.mktemp("fetch-token"))
    jobs.submit("carried", WAITING)
    jobs.wait("carried", {"RUNNING"})
    yield fetch_token_of(server, PROJECT, "carried")
    server.call("POST", f"/v1/projects/{PROJECT}/jobs/carried:cancel")
    jobs.wait("carried")


def path_of(route: Route) -> str:
    known = {"project": PROJECT, "bucket": BUCKET, "dbucket": BUCKET}
    path = re.sub(r"\{(\w+)\*?\}", lambda m: known.get(m[1], f"no-such-{m[1]}"), route.path)
    return f"{path}?project={PROJECT}" if route.scope is ProjectScope.QUERY else path


GUARDED = [route for route in ROUTES if route.access is not Access.PUBLIC]


def test_only_owners_of_the_server_are_told_of_its_process_and_folder(
    server: RunningServer, call: Caller, tokens: dict[str, str]
) -> None:
    status, whole = call("GET", "/trainshed/v1/server", token=server.token)
    assert status == 200
    assert (whole["pid"], whole["home"]) == (server.pid, str(server.home))
    for role in ("viewer", "editor", "owner", "other"):
        status, told = call("GET", "/trainshed/v1/server", token=tokens[role])
        assert status == 200
        assert told == {key: value for key, value in whole.items() if key not in ("pid", "home")}, role


def offenders(check: Callable[[Route], bool], routes: Iterable[Route] = GUARDED) -> list[str]:
    """The routes for which a check does not hold."""
    return [f"{route.method} {route.path}" for route in routes if not check(route)]


@pytest.mark.fault("F62")
def test_only_these_are_public() -> None:
    public = {f"{route.method} {route.path}" for route in ROUTES if route.access is Access.PUBLIC}
    assert public == {
        *("GET /healthz", "GET /trainshed/v1/openapi.json", "POST /token", "POST /oauth2/token"),
        *("GET /", "GET /console/{path*}", "GET /console/enter", "POST /trainshed/v1/session"),
        *(f"{method} /tensorboard/{{key}}/{{path*}}" for method in ("GET", "POST", "OPTIONS")),  # the key opens them
        "GET /tensorboard/{key}/trainshed-storage.js",
    }
    assert all(route.path.startswith("/tensorboard/{key}/") for route in ROUTES if route.cross_origin)


@pytest.mark.fault("F62")
@pytest.mark.parametrize("kind", ["none", "bad", "revoked"])
def test_without_a_good_token_there_is_no_way_in(call: Caller, tokens: dict[str, str], kind: str) -> None:
    def is_closed(route: Route) -> bool:
        status, body = call(route.method, path_of(route), token=tokens.get(kind))
        return status == 401 and body["error"]["status"] == "UNAUTHENTICATED"

    assert offenders(is_closed) == []


@pytest.mark.fault("F62")
def test_another_projects_token_sees_nothing(call: Caller, tokens: dict[str, str]) -> None:
    def is_closed(route: Route) -> bool:
        status, body = call(route.method, path_of(route), token=tokens["other"], body={})
        match route.scope:
            case ProjectScope.PATH | ProjectScope.QUERY:
                return (status, body["error"]["status"]) == (403, "PERMISSION_DENIED")
            case ProjectScope.BUCKET:
                return (status, body["error"]["status"]) == (404, "NOT_FOUND")
            case ProjectScope.SERVER if route.access > Access.READ:
                return status == 403
            case _:
                return PROJECT not in json.dumps(body if not isinstance(body, bytes) else body.decode("latin-1"))

    assert offenders(is_closed) == []


@pytest.mark.fault("F62")
def test_a_read_only_token_changes_nothing(call: Caller, tokens: dict[str, str]) -> None:
    def only_reads(route: Route) -> bool:
        status, body = call(route.method, path_of(route), token=tokens["viewer"], body={})
        if route.access > Access.READ and route.scope is not ProjectScope.BODY:
            return (status, body["error"]["status"]) == (403, "PERMISSION_DENIED")
        return status in (400, 403, 404) if route.access > Access.READ else status not in (401, 403)

    assert offenders(only_reads) == []


def test_an_editor_does_not_administer(call: Caller, tokens: dict[str, str]) -> None:
    token = {"user": "eve", "project": PROJECT}

    def is_closed(route: Route) -> bool:
        body = token if route.schema is not None and route.schema.body is not None else {}
        return call(route.method, path_of(route), token=tokens["editor"], body=body)[0] in (403, 404)

    assert offenders(is_closed, (route for route in GUARDED if route.access is Access.ADMIN)) == []


def test_a_fetch_token_of_one_job_can_do_nothing_else(call: Caller, fetch_token: str) -> None:
    def is_closed(route: Route) -> bool:
        status, body = call(route.method, path_of(route), token=fetch_token, body={"user": "eve", "project": PROJECT})
        return (status, body["error"]["status"]) == (403, "PERMISSION_DENIED")

    assert offenders(is_closed) == []


def test_a_fetch_token_gets_packages_of_its_own_job_and_no_other_token(call: Caller, fetch_token: str) -> None:
    def packages(project: str, job: str) -> int:
        return call("GET", f"/trainshed/v1/projects/{project}/jobs/{job}/packages/{'0' * 64}", token=fetch_token)[0]

    assert packages(PROJECT, "carried") == 404  # there is none, and it may know
    assert packages(PROJECT, "another") == packages(OTHER, "carried") == 403
    form = f"grant_type=refresh_token&refresh_token={fetch_token}".encode()
    assert call("POST", "/token", body=form)[1]["error"] == "invalid_grant"
    assert call("POST", "/trainshed/v1/session", body={"token": fetch_token})[0] == 401
    assert call("GET", "/no/such/path", token=fetch_token)[0] == 404


@pytest.mark.fault("F66")
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=lambda h: " ".join(f"{k}={v}" for k, v in h.items()),
)
def test_pages_of_other_sites_are_refused(server: RunningServer, call: Caller, headers: dict[str, str]) -> None:
    def is_closed(route: Route) -> bool:
        return call(route.method, path_of(route), token=server.token, headers=headers)[0] == 403

    assert offenders(is_closed, (route for route in ROUTES if not route.cross_origin)) == []


@pytest.mark.fault("F62")
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_what_is_not_in_the_table_needs_a_token_all_the_same(call: Caller, server: RunningServer, method: str) -> None:
    assert call(method, "/no/such/path")[0] == 401
    assert call(method, "/no/such/path", token=server.token)[0] == 404


@pytest.mark.fault("F64")
def test_no_token_reaches_the_log_or_an_answer(server: RunningServer, call: Caller, tokens: dict[str, str]) -> None:
    _, listed = call("GET", "/trainshed/v1/tokens", token=server.token)
    seen = json.dumps(listed) + server.log.read_text()
    for secret in (server.token, *tokens.values()):
        assert secret not in seen


@pytest.mark.fault("F64", "F72")
def test_a_token_is_hashed_at_rest(server: RunningServer, tokens: dict[str, str]) -> None:
    stored = b"".join(path.read_bytes() for path in server.home.glob("state.db*"))
    for secret in (server.token, tokens["owner"]):
        assert secret.encode() not in stored


def test_an_owner_of_one_project_makes_tokens_for_it_alone(call: Caller, tokens: dict[str, str]) -> None:
    for project, wanted in ((PROJECT, 200), (OTHER, 403), ("*", 403)):
        body = {"user": "bob", "project": project, "role": "viewer"}
        assert call("POST", "/trainshed/v1/tokens", token=tokens["owner"], body=body)[0] == wanted


@pytest.mark.fault("F63")
def test_a_foreign_bucket_is_told_from_an_absent_one_by_nothing(call: Caller, tokens: dict[str, str]) -> None:
    _, foreign = call("GET", f"/storage/v1/b/{BUCKET}", token=tokens["other"])
    _, absent = call("GET", "/storage/v1/b/matrix-absent", token=tokens["other"])
    assert json.dumps(foreign).replace(BUCKET, "X") == json.dumps(absent).replace("matrix-absent", "X")


def test_two_hosts_are_one_too_many(server: RunningServer) -> None:
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\nconnection: close\r\n\r\n")
        assert client.recv(1000).split(b" ")[1] in (b"400", b"403")


def test_two_tokens_are_one_too_many(server: RunningServer) -> None:
    address = urlsplit(server.url)
    head = f"GET /trainshed/v1/tokens HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {server.token}\r\n"
    for second, wanted in (("", b"200"), ("authorization: Bearer other\r\n", b"401")):
        with socket.create_connection((address.hostname, address.port), timeout=30) as client:
            client.sendall(f"{head}{second}connection: close\r\n\r\n".encode())
            assert client.recv(1000).split(b" ")[1] == wanted
