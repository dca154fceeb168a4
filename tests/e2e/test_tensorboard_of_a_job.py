"""TensorBoard behind the server: the real one, at an address of the server's own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from trainshed.testing.clusters.gangs import alive
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.event_files import write_events
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "board-of-a-job"


def ask(
    server: RunningServer, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, list[tuple[str, str]], bytes]:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, [(name.lower(), value) for name, value in answer.getheaders()], answer.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def path(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where TensorBoard shows a job that wrote one scalar."""
    jobs = Submitter(framework_server, PROJECT, tmp_path_factory.mktemp("board"))
    jobs.submit("board", "pass", jobDir=f"gs://{jobs.bucket}/board")
    jobs.wait("board")
    write_events(
        framework_server.home / "buckets" / jobs.bucket / "board" / "eval", (time.time(), 12, {"accuracy": 0.75})
    )
    yield opened(framework_server)


def boards(server: RunningServer) -> list[psutil.Process]:
    """The processes below a server that are TensorBoard, or its reaper."""
    found = []
    for process in psutil.Process(server.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # others come and go
            found += [process] if "tensorboard" in process.cmdline() else []
    return found


def opened(server: RunningServer) -> str:
    where = f"/trainshed/v1/projects/{PROJECT}/jobs/board:tensorboard"
    status, answer = eventually(
        lambda: Caller(server.url)("POST", where, token=server.token, body={}),
        lambda response: response[0] != 503,  # the runtime is being built
        within_s=240,
    )
    assert status == 200, answer
    return str(answer["url"])


@pytest.mark.timeout(600)
def test_it_shows_what_the_job_wrote(framework_server: RunningServer, path: str) -> None:
    assert path == opened(framework_server)
    tags = eventually(
        lambda: json.loads(ask(framework_server, "GET", f"{path}data/plugin/scalars/tags")[2]),
        within_s=180,
    )
    assert list(tags["eval"]) == ["accuracy"]
    scalars = f"{path}data/plugin/scalars/scalars?run=eval&tag=accuracy"
    [[_, step, value]] = json.loads(ask(framework_server, "GET", scalars)[2])
    assert (step, value) == (12, 0.75)
    form = {"content-type": "application/x-www-form-urlencoded"}
    several = ask(
        framework_server, "POST", f"{path}data/plugin/scalars/scalars_multirun", b"tag=accuracy&runs=eval", form
    )
    assert json.loads(several[2])["eval"][0][1:] == [12, 0.75]


def test_the_start_is_in_the_audit_record(framework_server: RunningServer, path: str) -> None:
    status, page = eventually(
        lambda: Caller(framework_server.url)(
            "GET",
            f"/trainshed/v1/projects/{PROJECT}/audit?method=jobs.tensorboard",
            token=framework_server.token,
        ),
        lambda answer: bool(answer[1].get("entries")),
    )
    assert status == 200
    first = page["entries"][-1]
    assert (first["user"], first["resource"], first["outcome"]) == ("owner", f"projects/{PROJECT}/jobs/board", "OK")
    assert path.split("/")[-2] not in str(page), "the key of its URL is a secret"


def test_its_pages_have_an_origin_of_their_own(framework_server: RunningServer, path: str) -> None:
    status, headers, page = ask(framework_server, "GET", path, headers={"accept-encoding": "gzip"})
    assert status == 200
    assert page.startswith(b'<!doctype html><script src="trainshed-storage.js"></script>')
    for where in (path, f"{path}index.js", f"{path}data/environment", f"{path}no-such-thing"):
        _, headers, _ = ask(framework_server, "GET", where)
        policies = [value for name, value in headers if name == "content-security-policy"]
        sandbox = next(policy for policy in policies if policy.startswith("sandbox"))
        assert "allow-same-origin" not in sandbox
        assert "frame-ancestors 'self'" in sandbox
        assert ("access-control-allow-origin", "*") in headers
        assert not {"set-cookie", "server"} & {name for name, _ in headers}
    assert b"PageStorage" in ask(framework_server, "GET", f"{path}trainshed-storage.js")[2]
    status, headers, _ = ask(framework_server, "OPTIONS", f"{path}data/x", headers={"origin": "null"})
    assert status == 204
    assert ("access-control-allow-headers", "*") in headers


def test_its_pages_may_ask_it_and_nothing_else(framework_server: RunningServer, path: str) -> None:
    own = {"origin": "null", "sec-fetch-site": "cross-site"}
    assert ask(framework_server, "GET", f"{path}data/environment", headers=own)[0] == 200
    assert ask(framework_server, "GET", "/trainshed/v1/session", headers=own)[0] == 403
    elsewhere = own | {"host": "evil.example"}
    assert ask(framework_server, "GET", f"{path}data/environment", headers=elsewhere)[0] == 403


@pytest.mark.parametrize("key", ["", "x", "x/data/environment", "../healthz", "%2e%2e/healthz"])
def test_without_the_key_there_is_nothing(framework_server: RunningServer, path: str, key: str) -> None:
    assert ask(framework_server, "GET", f"/tensorboard/{key}")[0] in (401, 404)


def test_the_key_is_for_those_who_may_read_the_job(framework_server: RunningServer, path: str) -> None:
    call, where = Caller(framework_server.url), f"/trainshed/v1/projects/{PROJECT}/jobs"
    for project, wanted in ((PROJECT, 200), ("board-of-others", 403)):
        body = {"user": "eve", "project": project, "role": "viewer"}
        token = framework_server.call("POST", "/trainshed/v1/tokens", body)["token"]
        assert call("POST", f"{where}/board:tensorboard", token=token, body={})[0] == wanted
    assert call("POST", f"{where}/none:tensorboard", token=framework_server.token, body={})[0] == 404
    key = path.split("/")[2]
    assert key not in framework_server.log.read_text()
    for process in psutil.process_iter():
        try:
            assert key not in " ".join(process.cmdline())
        except psutil.Error:
            continue
    assert not list((framework_server.home / "tensorboards").glob("*/*.json"))


class _UnixConnection(http.client.HTTPConnection):
    """A connection to a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=120)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(120)
        self.sock.connect(os.fspath(self._path))


def test_its_address_opens_nothing_without_the_key(framework_server: RunningServer, path: str) -> None:
    ports = {
        connection.laddr.port
        for process in boards(framework_server)
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    sockets = list((framework_server.home / "tensorboards").glob("*/socket"))
    assert ports or sockets
    connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=120) for port in ports if not sockets]
    for connection in [*connections, *map(_UnixConnection, sockets)]:  # there may be boards of other jobs
        connection.request("GET", "/data/environment")
        assert connection.getresponse().status == 404
        connection.close()


@pytest.mark.timeout(600)
def test_it_ends_with_the_server(framework_server: RunningServer, tmp_path: Path, path: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "runtimes").symlink_to((framework_server.home / "runtimes").resolve())
    server = RunningServer(home).start()
    try:
        jobs = Submitter(server, PROJECT, tmp_path)
        jobs.submit("board", "pass", jobDir=f"gs://{jobs.bucket}/board")
        own = opened(server)
        assert ask(server, "GET", f"{own}data/environment")[0] == 200
        below = [each.pid for each in boards(server)]
        assert len(below) == 2  # it and its reaper
    finally:
        server.kill()
    eventually(lambda: [pid for pid in below if alive(pid)], lambda left: not left)
