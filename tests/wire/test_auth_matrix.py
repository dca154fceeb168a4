"""Every route and method with every kind of token. The table is made from the router, so a new route is in it."""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import google.auth.transport.requests
import pytest
from google.oauth2 import service_account

from trainshed.api.access_matrix import IDENTITIES, AccessOutcome, Identity, Place, outcome
from trainshed.api.app import ROUTES
from trainshed.api.http.open_routes import OPEN_ROUTES, is_open
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access, Principal, Role
from trainshed.testing.clusters.gangs import HOUR_S, tokens_of
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.submitter import Submitter

PROJECT, OTHER = "matrix-one", "matrix-two"
BUCKET = "matrix-bucket"


@pytest.fixture(scope="module")
def call(server: RunningServer) -> Caller:
    return Caller(server.url)


@pytest.fixture(scope="module")
def tokens(server: RunningServer, call: Caller) -> Iterator[dict[str, str]]:
    """Tokens of people, by the name of the identity."""

    def make(project: str, role: str, **fields: object) -> dict[str, str]:
        body = {"user": "alice", "project": project, "role": role, **fields}
        status, made = call("POST", "/trainshed/v1/tokens", token=server.token, body=body)
        assert status == 200, made
        return dict(made)

    program = {"name": "program", "kind": "service-account"}
    assert call("POST", "/trainshed/v1/users", token=server.token, body=program)[0] == 200
    status, _ = call("POST", f"/storage/v1/b?project={PROJECT}", token=server.token, body={"name": BUCKET})
    assert status == 200
    upload = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=keeps-the-bucket"
    assert call("POST", upload, token=server.token, body=b"x")[0] == 200  # so no identity can delete the bucket
    revoked = make(PROJECT, "owner")
    status, _ = call("POST", f"/trainshed/v1/tokens/{revoked['id']}:revoke", token=server.token)
    assert status == 200
    expired = make(PROJECT, "owner", ttlSeconds=0.001)["token"]
    eventually(lambda: call("GET", "/trainshed/v1/session", token=expired)[0] == 401, within_s=30)
    yield {
        "bad": f"ts_{secrets.token_urlsafe(32)}",
        "revoked": revoked["token"],
        "expired": expired,
        "other project": make(OTHER, "owner")["token"],
        "viewer": make(PROJECT, "viewer")["token"],
        "editor": make(PROJECT, "editor")["token"],
        "service account": make(PROJECT, "editor", user="program")["token"],
        "owner": make(PROJECT, "owner")["token"],
        "viewer of all": make("*", "viewer")["token"],
        "owner of all": make("*", "owner")["token"],
    }


WAITING = "import time\nwhile True:\n    time.sleep(0.1)\n"
JOB = "carried"


@pytest.fixture(scope="module")
def job_tokens(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The tokens of a job that runs, by the name of the identity."""
    jobs = Submitter(server, PROJECT, tmp_path_factory.mktemp("job-tokens"))
    jobs.submit(JOB, WAITING)
    jobs.wait(JOB, {"RUNNING"})
    person = Principal(user="ada", project=PROJECT, role=Role.VIEWER)
    with tokens_of(server) as issued:
        yield {
            "OpenID group": issued.issue_for_person(person, label="by a provider", ttl_s=HOUR_S)[0],
            "OpenID group, signed out": issued.issue_for_person(person, label="by a provider", ttl_s=HOUR_S)[0],
            "job": issued.issue_for_job(PROJECT, JOB, ttl_s=HOUR_S),
            "fetch token": issued.issue_job_fetch_token(PROJECT, JOB, ttl_s=HOUR_S),
        }
    server.call("POST", f"/v1/projects/{PROJECT}/jobs/{JOB}:cancel")
    jobs.wait(JOB)


def path_of(route: Route, **names: str) -> str:
    known = {"project": PROJECT, "bucket": BUCKET, "to_bucket": BUCKET, **names}
    path = re.sub(r"\{(\w+)\*?\}", lambda m: known.get(m[1], f"no-such-{m[1]}"), route.path)
    return f"{path}?project={PROJECT}" if route.scope is ProjectScope.QUERY else path


def body_of(route: Route, project: str) -> dict[str, object]:
    """A body that names this project, for requests that have it there. An empty one would ask for all projects."""
    match route.method, route.path:
        case "POST", "/trainshed/v1/tokens":
            return {"user": "eve", "role": "viewer", "project": project}
        case "POST", "/v2/entries:list":
            return {"resourceNames": [f"projects/{project}"]}
    return {}


GUARDED = [route for route in ROUTES if not is_open(route)]


def test_only_owners_of_the_server_are_told_of_its_process_and_folder(
    server: RunningServer, call: Caller, tokens: dict[str, str]
) -> None:
    status, whole = call("GET", "/trainshed/v1/server", token=server.token)
    assert status == 200
    assert (whole["pid"], whole["home"]) == (server.pid, str(server.home))
    for role in ("viewer", "editor", "owner", "other project"):
        status, told = call("GET", "/trainshed/v1/server", token=tokens[role])
        assert status == 200
        assert told == {key: value for key, value in whole.items() if key not in ("pid", "home")}, role


def offenders(check: Callable[[Route], bool], routes: Iterable[Route] = GUARDED) -> list[str]:
    """The routes for which a check does not hold."""
    return [f"{route.method} {route.path}" for route in routes if not check(route)]


@pytest.mark.fault("F62")
def test_only_these_are_public() -> None:
    assert {(route.method, route.path) for route in ROUTES if route.access is Access.PUBLIC} == set(OPEN_ROUTES)
    assert {(route.method, route.path) for route in ROUTES if is_open(route)} == set(OPEN_ROUTES)
    assert all(route.path.startswith("/tensorboard/{key}/") for route in ROUTES if route.cross_origin)


#: of errors of the XML API
XML_CODES = {b"AuthenticationRequired": AccessOutcome.UNAUTHENTICATED, b"AccessDenied": AccessOutcome.DENIED}


def met(status: int, body: object) -> AccessOutcome:
    """What a response says of the access. A response of the route itself, also an error, is YES."""
    error = body.get("error", {}) if isinstance(body, dict) else {}
    of_mlflow = isinstance(body, dict) and "error_code" in body
    if isinstance(body, bytes) and b"<Error><Code>" in body:  # of the XML API
        code = body.partition(b"<Code>")[2].partition(b"</Code>")[0]
        hidden = code == b"NoSuchBucket" and f"does not exist: {BUCKET}".encode() in body
        return AccessOutcome.HIDDEN if hidden else XML_CODES.get(code, AccessOutcome.YES)
    if isinstance(error, str) or of_mlflow:  # of another protocol: the status code alone says it
        own = {401: AccessOutcome.UNAUTHENTICATED, 403: AccessOutcome.DENIED}
        return own.get(status, AccessOutcome.YES)
    match status, error.get("status"):
        case 401, "UNAUTHENTICATED":
            return AccessOutcome.UNAUTHENTICATED
        case 403, "PERMISSION_DENIED":
            return AccessOutcome.DENIED
        case 404, "NOT_FOUND" if f"does not exist: {BUCKET}" in str(error):
            return AccessOutcome.HIDDEN
    return AccessOutcome.YES


@pytest.mark.fault("F62")
@pytest.mark.parametrize("identity", IDENTITIES, ids=lambda identity: identity.name)
def test_every_request_meets_what_the_matrix_says(
    call: Caller, tokens: dict[str, str], job_tokens: dict[str, str], identity: Identity
) -> None:
    token = {**tokens, **job_tokens}.get(identity.name)
    project = OTHER if identity.place is Place.OTHER else PROJECT

    def as_expected(route: Route) -> bool:
        expected, body = outcome(route, identity), body_of(route, project)
        ends = identity.name == "OpenID group" and (route.method, route.path) == ("DELETE", "/trainshed/v1/session")
        own_token = job_tokens["OpenID group, signed out"] if ends else token
        answer = met(*call(route.method, path_of(route), token=own_token, body=body))
        if identity.name == "OpenID group" and route.path.endswith("/session:link"):
            return answer is AccessOutcome.UNAUTHENTICATED  # it is a session, and those make no links
        if expected is not AccessOutcome.OWN:
            return answer is expected
        if "{job}" in route.path:
            own = met(*call(route.method, path_of(route, job=JOB), token=token, body=body))
            return (answer, own) == (AccessOutcome.DENIED, AccessOutcome.YES)
        return answer is AccessOutcome.DENIED

    assert offenders(as_expected) == []


@pytest.mark.fault("F62")
def test_the_key_of_a_service_account_opens_what_its_tokens_do(
    server: RunningServer, call: Caller, tokens: dict[str, str]
) -> None:
    body = {"user": "program", "project": PROJECT, "role": "editor"}
    status, key = call("POST", "/trainshed/v1/tokens:createKey", token=server.token, body=body)
    assert status == 200, key
    load: Any = service_account.Credentials.from_service_account_info
    credentials = load(key["keyFile"], scopes=["https://www.googleapis.com/auth/cloud-platform"])
    request: Any = google.auth.transport.requests.Request
    credentials.refresh(request())
    identity = next(each for each in IDENTITIES if each.name == "service account")

    def as_expected(route: Route) -> bool:
        answer = call(route.method, path_of(route), token=credentials.token, body=body_of(route, PROJECT))
        return met(*answer) is outcome(route, identity)

    of_sessions = [route for route in GUARDED if route.path.startswith("/trainshed/v1/session")]
    assert offenders(as_expected, (route for route in GUARDED if route not in of_sessions)) == []


@pytest.mark.fault("F62")
@pytest.mark.parametrize("kind", ["bad", "revoked"])
def test_a_token_that_is_not_known_opens_nothing(call: Caller, tokens: dict[str, str], kind: str) -> None:
    def is_closed(route: Route) -> bool:
        return met(*call(route.method, path_of(route), token=tokens[kind])) is AccessOutcome.UNAUTHENTICATED

    assert offenders(is_closed) == []


@pytest.mark.fault("F62")
def test_another_projects_token_sees_nothing(call: Caller, tokens: dict[str, str]) -> None:
    def tells_nothing(route: Route) -> bool:
        _, body = call(route.method, path_of(route), token=tokens["other project"], body={})
        return PROJECT not in json.dumps(body if not isinstance(body, bytes) else body.decode("latin-1"))

    shared = (ProjectScope.BODY, ProjectScope.CALLER)
    assert offenders(tells_nothing, (route for route in GUARDED if route.scope in shared)) == []


def test_an_editor_makes_and_sees_no_tokens(call: Caller, tokens: dict[str, str]) -> None:
    token = {"user": "eve", "project": PROJECT}
    assert call("POST", "/trainshed/v1/tokens", token=tokens["editor"], body=token)[0] == 403
    assert call("GET", "/trainshed/v1/tokens", token=tokens["editor"])[0] == 403


def test_the_token_of_a_job_submits_no_job_and_opens_no_session(call: Caller, job_tokens: dict[str, str]) -> None:
    token = job_tokens["job"]
    job = {"jobId": "by_a_job", "trainingInput": {"region": "local", "scaleTier": "BASIC"}}
    status, refused = call("POST", f"/v1/projects/{PROJECT}/jobs", token=token, body=job)
    assert (status, refused["error"]["message"]) == (
        403,
        f"This token (job of project {PROJECT}) may not do this in project {PROJECT}. The request needs write access.",
    )
    assert call("POST", "/trainshed/v1/session", body={"token": token})[0] == 401
    assert call("POST", "/trainshed/v1/session:link", token=token)[0] == 403
    form = f"grant_type=refresh_token&refresh_token={token}".encode()
    status, exchanged = call("POST", "/token", body=form)
    assert status == 200  # Google's clients do that at their first request
    assert call("POST", f"/v1/projects/{PROJECT}/jobs", token=exchanged["access_token"], body=job)[0] == 403
    assert call("GET", f"/v1/projects/{PROJECT}/jobs/{JOB}", token=exchanged["access_token"])[0] == 200


def test_the_token_of_a_job_uses_objects_and_not_the_bucket_itself(call: Caller, job_tokens: dict[str, str]) -> None:
    token = job_tokens["job"]
    upload = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=by-a-job.txt"
    assert call("POST", upload, token=token, body=b"x")[0] == 200
    assert call("GET", f"/storage/v1/b/{BUCKET}/o/by-a-job.txt?alt=media", token=token)[1] == b"x"
    copy = f"/storage/v1/b/{BUCKET}/o/by-a-job.txt/copyTo/b/{BUCKET}/o/copy.txt"
    assert call("POST", copy, token=token, body={})[0] == 200
    assert call("DELETE", f"/storage/v1/b/{BUCKET}/o/copy.txt", token=token)[0] == 204
    asked = "&".join(
        f"permissions=storage.{name}"
        for name in ("objects.create", "objects.get", "buckets.get", "buckets.update", "buckets.getIamPolicy")
    )
    _, tested = call("GET", f"/storage/v1/b/{BUCKET}/iam/testPermissions?{asked}", token=token)
    assert tested["permissions"] == ["storage.objects.create", "storage.objects.get", "storage.buckets.get"]
    for method, path in (("PATCH", ""), ("DELETE", ""), ("GET", "/iam"), ("GET", "/acl")):
        assert call(method, f"/storage/v1/b/{BUCKET}{path}", token=token, body={})[0] == 403
    made = call("POST", f"/storage/v1/b?project={PROJECT}", token=token, body={"name": "matrix-by-a-job"})
    assert made[0] == 403


def test_a_fetch_token_gets_packages_of_its_own_job_and_no_other_token(
    call: Caller, job_tokens: dict[str, str]
) -> None:
    fetch_token = job_tokens["fetch token"]

    def packages(project: str, job: str) -> int:
        return call("GET", f"/trainshed/v1/projects/{project}/jobs/{job}/packages/{'0' * 64}", token=fetch_token)[0]

    assert packages(PROJECT, JOB) == 404  # there is none, and it may know
    assert packages(PROJECT, "another") == packages(OTHER, JOB) == 403
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
    _, foreign = call("GET", f"/storage/v1/b/{BUCKET}", token=tokens["other project"])
    _, absent = call("GET", "/storage/v1/b/matrix-absent", token=tokens["other project"])
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
