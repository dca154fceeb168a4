"""Predictions as google-api-python-client and curl send them; and the fast path compared with the route."""

from __future__ import annotations

import http.client
import json
import re
import secrets
import socket
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from google.oauth2.credentials import Credentials

from trainshed.api.ml.predict import ROUTES
from trainshed.testing.fakes.hosts import FakeHost
from trainshed.testing.processes.gateway import RunningGateway
from trainshed.testing.processes.servers import Caller

with warnings.catch_warnings():  # httplib2 still calls pyparsing by its old names
    warnings.simplefilter("ignore", DeprecationWarning)
    from googleapiclient import discovery
    from googleapiclient.errors import HttpError

PROJECT, OTHER = "predict-one", "predict-two"
NAME = f"projects/{PROJECT}/models/digits"
BODY = {"instances": [[1.5, 2.0], [3.0, 4.0]]}
PATHS = [
    re.sub(r"\{(\w+)\}", lambda m: {"project": PROJECT, "model": "digits", "version": "v1"}[m[1]], route.path)
    for route in ROUTES
    if "{model}" in route.path
]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHost]:
    made = FakeHost(tmp_path_factory.mktemp("host") / "socket").start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def shed(tmp_path_factory: pytest.TempPathFactory, host: FakeHost) -> Iterator[RunningGateway]:
    running = RunningGateway(tmp_path_factory.mktemp("predict")).start()
    running.publish("digits", host.address, project=PROJECT)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def tokens(shed: RunningGateway) -> dict[str, str]:
    call = Caller(shed.url)

    def make(project: str, role: str, **more: Any) -> dict[str, str]:
        body = {"user": "alice", "project": project, "role": role, **more}
        status, made = call("POST", "/trainshed/v1/tokens", token=shed.token, body=body)
        assert status == 200, made
        return dict(made)

    revoked = make(PROJECT, "owner")
    for path in PATHS:  # it was good, and known, before it was revoked
        assert call("POST", path, token=revoked["token"], body=BODY)[0] == 200
    assert call("POST", f"/trainshed/v1/tokens/{revoked['id']}:revoke", token=shed.token)[0] == 200
    return {
        "bad": f"ts_{secrets.token_urlsafe(32)}",
        "revoked": revoked["token"],
        "other": make(OTHER, "owner")["token"],
        "viewer": make(PROJECT, "viewer")["token"],
        "owner": shed.token,
    }


@pytest.fixture(scope="module")
def projects(shed: RunningGateway) -> Iterator[Any]:
    built = discovery.build(
        "ml",
        "v1",
        credentials=Credentials(shed.token),  # type: ignore[no-untyped-call]
        client_options={"api_endpoint": shed.url},
        static_discovery=True,
        cache_discovery=False,
    )
    with closing(built) as client:
        yield client.projects()


class TestPythonClient:
    def test_predict_and_explain(self, projects: Any) -> None:
        for name in (NAME, f"{NAME}/versions/v1") * 2:
            assert projects.predict(name=name, body=BODY).execute() == {"predictions": BODY["instances"]}
            assert projects.explain(name=name, body=BODY).execute() == {"explanations": BODY["instances"]}

    @pytest.mark.parametrize(
        ("name", "body", "status", "said"),
        [
            (f"projects/{PROJECT}/models/absent", BODY, 404, "no model absent"),
            (f"{NAME}/versions/absent", BODY, 404, "no version absent"),
            (f"projects/{PROJECT}", BODY, 400, "Name the model"),
            (NAME, {"rows": []}, 400, "Prediction failed: Invalid inputs"),
        ],
    )
    def test_errors_are_told_in_googles_form(
        self, projects: Any, name: str, body: dict[str, Any], status: int, said: str
    ) -> None:
        with pytest.raises(HttpError) as caught:
            projects.predict(name=name, body=body).execute()
        error = json.loads(caught.value.content)["error"]
        assert (caught.value.resp.status, error["code"]) == (status, status)
        assert said in error["message"]
        assert said in caught.value.reason


def test_curl(shed: RunningGateway, tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps(BODY))
    command = ["curl", "-sS", "-X", "POST", "-H", f"Authorization: Bearer {shed.token}"]
    command += ["-H", "Content-Type: application/json", "-d", f"@{request}", f"{shed.url}/v1/{NAME}:predict"]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, check=True, timeout=60)
        assert json.loads(done.stdout) == {"predictions": BODY["instances"]}


def test_the_console_asks_with_its_session(shed: RunningGateway) -> None:
    opened = json.dumps({"token": shed.token}).encode()
    status, headers, _ = sent(shed, "/trainshed/v1/session", body=opened, token=None)
    assert status == 200
    cookie = {"cookie": headers["set-cookie"].partition(";")[0], "origin": shed.url, "x-trainshed-console": "1"}
    for _ in range(3):
        for path in PATHS:
            status, _, body = sent(shed, path, cookie, json.dumps(BODY).encode(), token=None)
            assert status == 200, body
            for missing in ("cookie", "origin", "x-trainshed-console"):
                rest = {name: value for name, value in cookie.items() if name != missing}
                assert sent(shed, path, rest, json.dumps(BODY).encode(), token=None)[0] in (401, 403)


def test_a_raw_body_and_its_type_pass_through(shed: RunningGateway, host: FakeHost) -> None:
    data = bytes(range(256))
    for path in (f"/v1/{NAME}:rawPredict", f"/v1/{NAME}/versions/v1:rawPredict"):
        status, headers, body = sent(shed, path, {"content-type": "image/x-digit"}, data)
        assert (status, headers["content-type"], body) == (200, "image/x-digit", data)
        assert headers["content-security-policy"] == "sandbox"
    assert host.seen[-1][1] == b"\x0d\x00image/x-digit" + data


def sent(
    shed: RunningGateway,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"{}",
    token: str | None = "",
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer. The owner's token goes along, unless another one is given."""
    own = {} if token is None else {"authorization": f"Bearer {token or shed.token}"}
    connection = http.client.HTTPConnection(urlsplit(shed.url).netloc, timeout=60)
    with closing(connection):
        connection.request("POST", path, body, {**own, **(headers or {})})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


class TestShortWay:
    """The first request to a URL goes by the route; from then on those like it don't. Nobody may see a difference."""

    @pytest.fixture(autouse=True)
    def learned(self, shed: RunningGateway) -> None:
        for path in PATHS:
            assert sent(shed, path, body=json.dumps(BODY).encode())[0] == 200

    @staticmethod
    def by_route(path: str) -> str:
        """The same path in a spelling that nobody has used before."""
        TestShortWay.spellings += 1
        return f"{path}?new={TestShortWay.spellings}"

    spellings = 0

    @pytest.mark.parametrize("path", PATHS)
    @pytest.mark.parametrize("kind", ["none", "bad", "revoked"])
    def test_without_a_good_token_there_is_no_way_in(
        self, shed: RunningGateway, host: FakeHost, tokens: dict[str, str], path: str, kind: str
    ) -> None:
        before = len(host.seen)
        status, headers, body = sent(shed, path, token=tokens.get(kind))
        assert (status, json.loads(body)["error"]["status"]) == (401, "UNAUTHENTICATED")
        assert headers["www-authenticate"].startswith("Bearer")
        assert len(host.seen) == before

    @pytest.mark.parametrize("path", PATHS)
    def test_another_projects_token_sees_nothing(
        self, shed: RunningGateway, host: FakeHost, tokens: dict[str, str], path: str
    ) -> None:
        before = len(host.seen)
        foreign = sent(shed, path, token=tokens["other"])
        absent = sent(shed, path.replace("digits", "absent"), token=tokens["other"])
        assert (foreign[0], foreign[2]) == (403, absent[2])
        assert len(host.seen) == before

    @pytest.mark.parametrize("path", PATHS)
    def test_who_may_read_may_predict(self, shed: RunningGateway, tokens: dict[str, str], path: str) -> None:
        for _ in range(2):
            assert sent(shed, path, body=json.dumps(BODY).encode(), token=tokens["viewer"])[0] == 200

    @pytest.mark.parametrize("path", PATHS)
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
    def test_pages_of_other_sites_are_refused(
        self, shed: RunningGateway, host: FakeHost, path: str, headers: dict[str, str]
    ) -> None:
        before = len(host.seen)
        assert sent(shed, path, headers)[0] == 403
        assert len(host.seen) == before

    @pytest.mark.parametrize("path", PATHS)
    @pytest.mark.parametrize(
        "body", [b'{"instances": [1, 2]}', b'{"instances": []}', b"", b"{", b"[" * 100, b"\xff" * 9]
    )
    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"content-type": "application/json; charset=utf-8"},
            {"accept": "*/*", "user-agent": "x", "x-goog-user-project": OTHER},
            {"connection": "close"},
            {"content-encoding": "identity"},
            {"content-encoding": "gzip"},
            {"expect": "100-continue"},
            {"transfer-encoding": "chunked"},
        ],
        ids=lambda h: " ".join(f"{k}={v}" for k, v in h.items()) or "plain",
    )
    def test_both_ways_give_the_same_answer(
        self, shed: RunningGateway, path: str, body: bytes, headers: dict[str, str]
    ) -> None:
        chunked = "transfer-encoding" in headers
        data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked and body else b"0\r\n\r\n" if chunked else body
        route, short = (sent(shed, spelling, headers, data) for spelling in (self.by_route(path), path))
        for answer in (route, short):
            answer[1].pop("date", None)
        assert short == route
        assert short[1]["x-content-type-options"] == "nosniff"

    def test_a_header_twice_is_for_the_route(self, shed: RunningGateway, host: FakeHost) -> None:
        address, before = urlsplit(shed.url), len(host.seen)
        connection = http.client.HTTPConnection(address.netloc, timeout=60)
        with closing(connection):
            connection.putrequest("POST", PATHS[0], skip_host=True)
            for name, value in (("host", address.netloc), ("host", "evil.example"), ("content-length", "2")):
                connection.putheader(name, value)
            connection.putheader("authorization", f"Bearer {shed.token}")
            connection.endheaders(b"{}")
            assert connection.getresponse().status in (400, 403)
        assert len(host.seen) == before

    def test_a_token_ends_with_its_time(self, shed: RunningGateway) -> None:
        for ttl_s in (1.0, 5.0, 30.0):  # on a slow machine one may end before it is first used
            body = {"user": "bob", "project": PROJECT, "role": "viewer", "ttlSeconds": ttl_s}
            status, made = Caller(shed.url)("POST", "/trainshed/v1/tokens", token=shed.token, body=body)
            assert status == 200
            answers = [sent(shed, PATHS[0], token=made["token"])[0]]
            if answers != [401]:
                break
        while answers[-1] != 401 and len(answers) < 100_000:
            answers.append(sent(shed, PATHS[0], token=made["token"])[0])
        assert set(answers[:-1]) == {400}  # it got as far as the host, which wants instances
        assert answers[-1] == 401

    def test_requests_on_one_connection_are_answered_in_their_order(self, shed: RunningGateway) -> None:
        bodies = [json.dumps({"instances": [number]}).encode() for number in range(30)]
        address = urlsplit(shed.url)
        requests = [
            f"POST {PATHS[0] if number % 3 else self.by_route(PATHS[0])} HTTP/1.1\r\nhost: {address.netloc}\r\n"
            f"authorization: Bearer {shed.token}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
            for number, body in enumerate(bodies)
        ]
        with socket.create_connection((address.hostname, address.port), timeout=60) as client:
            client.sendall(b"".join(requests))
            got = b""
            while got.count(b"predictions") < 30:
                piece = client.recv(65_536)
                assert piece
                got += piece
        assert [int(number) for number in re.findall(rb'"predictions": \[(\d+)\]', got)] == list(range(30))

    def test_a_version_that_is_withdrawn_is_gone_at_once(self, shed: RunningGateway, host: FakeHost) -> None:
        shed.publish("brief", host.address, project=PROJECT)
        path = f"/v1/projects/{PROJECT}/models/brief:predict"
        assert [sent(shed, path, body=b'{"instances": []}')[0] for _ in range(2)] == [200, 200]
        shed.routes.withdraw(PROJECT, "brief")
        status, _, body = sent(shed, path)
        assert (status, json.loads(body)["error"]["status"]) == (404, "NOT_FOUND")


def test_without_the_fast_path_the_route_answers_alike(tmp_path: Path, shed: RunningGateway, host: FakeHost) -> None:
    slow = RunningGateway(tmp_path / "slow", fast_path=False).start()
    try:
        slow.publish("digits", host.address, project=PROJECT)
        url = f"/v1/{NAME}:predict"
        wanted = Caller(shed.url)("POST", url, token=shed.token, body=BODY)
        assert wanted[0] == 200
        for _ in range(3):  # the first would teach the fast path the others
            assert Caller(slow.url)("POST", url, token=slow.token, body=BODY) == wanted
        assert Caller(slow.url)("POST", url, body=BODY)[0] == 401
    finally:
        slow.stop()


def test_beyond_the_limit_of_a_second_predictions_are_refused_on_both_paths(tmp_path: Path, host: FakeHost) -> None:
    for fast in (True, False):
        shed = RunningGateway(tmp_path / str(fast), fast_path=fast).start()
        try:
            shed.publish("digits", host.address, project=PROJECT)
            call = Caller(shed.url)
            quota = {"name": "requests-per-second", "project": PROJECT, "value": 3}
            predict = f"/v1/{NAME}:predict"
            assert call("POST", predict, token=shed.token, body=BODY)[0] == 200
            assert call("POST", "/trainshed/v1/quotas:set", token=shed.token, body=quota)[0] == 200
            answers = [call("POST", predict, token=shed.token, body=BODY) for _ in range(40)]
            refused = [body["error"] for status, body in answers if status == 429]
            assert {status for status, _ in answers} == {200, 429}
            assert "3 of 3 predictions a second are in use (requests-per-second)" in refused[0]["message"]
            assert [each["@type"].rpartition(".")[2] for each in refused[0]["details"]] == [
                *("QuotaFailure", "ErrorInfo", "RetryInfo"),
            ]
            _, page = call("GET", f"/trainshed/v1/projects/{PROJECT}/quotas", token=shed.token)
            assert [(each["name"], each["value"]) for each in page["quotas"]] == [("requests-per-second", 3)]
            assert call("POST", "/trainshed/v1/quotas:set", token=shed.token, body=quota | {"value": 0})[0] == 200
            status, headers, body = sent(shed, predict, {}, json.dumps(BODY).encode(), token=shed.token)
            assert (status, "retry-after" in headers) == (429, False), body
        finally:
            shed.stop()
