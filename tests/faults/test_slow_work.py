"""Requests that cost much, many at once, from a token that may only read: others are answered meanwhile."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from trainshed.api.shutdown import SHUTDOWN_GRACE_S
from trainshed.config import Home
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.job_logs import WrittenJob

PROJECT = "slow-work"
BUCKET = "slow-work"
ATTACKERS = 50
T0 = 1_763_000_000_000_000
TB = 1 << 40
MANY_FILES = 20_000
#: 64 terms, each of which costs a search of every line and none of which decides before the last
FILTER = " AND ".join([*(f'jsonPayload.message=~"l?o?s?s? [0-9]{{1,{n}}}"' for n in range(1, 64)), "nowhere"])
QUERY = json.dumps({"resourceNames": [f"projects/{PROJECT}"], "filter": FILTER}).encode()


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with a sparse file of 1 TB and a large folder in a bucket, a long log, and a log of 1 TB."""
    home = tmp_path_factory.mktemp("attacked") / "home"
    server = RunningServer(home).start()
    server.call("POST", f"/storage/v1/b?project={PROJECT}", {"name": BUCKET})
    server.stop()
    sparse = home / "buckets" / BUCKET / "sparse"
    sparse.touch()
    os.truncate(sparse, TB)
    (home / "buckets" / BUCKET / "many").mkdir()
    for number in range(MANY_FILES):
        (home / "buckets" / BUCKET / "many" / str(number)).touch()
    with closing(Database(Home(home).database)) as database:
        jobs = JobStore(database)
        long = WrittenJob(jobs, Home(home), project=PROJECT, job_id="long", created_us=T0)
        long.say([(T0 + n, f"loss {n}") for n in range(1, 40_000)])
        huge = WrittenJob(jobs, Home(home), project=PROJECT, job_id="huge", created_us=T0)
        huge.say([(T0 + 1, "the only line")])
        os.truncate(huge.path, TB)
    server.start()
    yield server
    server.kill()


def call(server: RunningServer, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes, str, float]:
    """Status, body, Retry-After and seconds."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=110)
    began = time.monotonic()
    try:
        connection.request(method, path, body, {"authorization": f"Bearer {server.token}"})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers.get("retry-after", ""), time.monotonic() - began
    finally:
        connection.close()


@contextmanager
def attack(
    server: RunningServer, method: str, path: str, body: bytes | None = None, *, status: int = 200
) -> Iterator[list[float]]:
    """The same request again and again, from many clients. Gives the seconds of those that got their answer."""
    stop, took = threading.Event(), list[float]()

    def go_on() -> None:
        while not stop.is_set():
            got, answer, retry_after, seconds = call(server, method, path, body)
            assert got == status or (got == 429 and retry_after), answer
            if got == status:
                took.append(seconds)

    with ThreadPoolExecutor(ATTACKERS) as pool:
        attackers = [pool.submit(go_on) for _ in range(ATTACKERS)]
        try:
            eventually(lambda: len(took), lambda count: count > 4)
            yield took
        finally:
            stop.set()
    for attacker in attackers:
        attacker.result()


def normal_calls(server: RunningServer) -> float:
    """The median seconds of ordinary requests, all of which are answered."""
    answers = [call(server, "GET", f"/v1/projects/{PROJECT}/jobs") for _ in range(15)]
    assert {status for status, *_ in answers} == {200}
    return statistics.median(seconds for *_, seconds in answers)


def test_metadata_of_a_huge_file_is_answered_at_once_and_its_checksum_follows(attacked: RunningServer) -> None:
    path = f"/storage/v1/b/{BUCKET}/o/sparse"
    with attack(attacked, "GET", path):
        normal_calls(attacked)
    body = eventually(lambda: json.loads(call(attacked, "GET", path)[1]), lambda found: "crc32c" in found)
    assert body["size"] == str(TB)
    assert "md5Hash" not in body


def test_ordinary_calls_do_not_wait_behind_log_queries(attacked: RunningServer) -> None:
    with attack(attacked, "POST", "/v2/entries:list", QUERY) as took:
        normal_s = normal_calls(attacked)
    assert normal_s < statistics.median(took)


def test_a_query_that_stops_early_says_where_to_go_on(attacked: RunningServer) -> None:
    tokens, token = set(), ""
    for _ in range(3):
        body = json.loads(QUERY) | {"pageToken": token}
        status, answer, *_ = call(attacked, "POST", "/v2/entries:list", json.dumps(body).encode())
        assert status == 200
        token = json.loads(answer)["nextPageToken"]
        tokens.add(token)
    assert len(tokens) == 3


@pytest.mark.parametrize("query", ["", "?before=end", "?tail=5", "?since=2025-01-01T00:00:00Z"])
def test_a_log_of_a_terabyte_is_read_like_a_short_one(attacked: RunningServer, query: str) -> None:
    status, body, *_ = call(attacked, "GET", f"/trainshed/v1/projects/{PROJECT}/jobs/huge/logs{query}")
    assert status == 200
    assert json.loads(body)["entries"][-1]["message"] == "the only line"


def test_ordinary_calls_do_not_wait_behind_listings_of_a_large_folder(attacked: RunningServer) -> None:
    with attack(attacked, "GET", f"/storage/v1/b/{BUCKET}/o?prefix=many/&maxResults=1") as took:
        normal_s = normal_calls(attacked)
    assert normal_s < statistics.median(took) / 2


PATTERN = f"gs://{BUCKET}/many/1*.nothing"  # a part of that folder
PREDICTION = {"modelName": f"projects/{PROJECT}/models/m", "dataFormat": "JSON", "outputPath": f"gs://{BUCKET}/out"}
PREDICT = json.dumps({"jobId": "p1", "predictionInput": PREDICTION | {"inputPaths": [PATTERN]}}).encode()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        pytest.param("POST", f"/v1/projects/{PROJECT}/jobs", PREDICT, 400, marks=pytest.mark.soak),  # 40 s
        ("DELETE", f"/storage/v1/b/{BUCKET}", None, 409),
    ],
    ids=["checks of the inputs of a job", "deletes of a bucket"],
)
def test_ordinary_calls_do_not_wait_behind(
    attacked: RunningServer, method: str, path: str, body: bytes | None, status: int
) -> None:
    with attack(attacked, method, path, body, status=status) as took:
        normal_s = normal_calls(attacked)
    assert normal_s < statistics.median(took) / 2


def test_clients_that_leave_make_room_for_others(attacked: RunningServer) -> None:
    address = urlsplit(attacked.url)
    for _ in range(3):
        connections = [http.client.HTTPConnection(address.netloc, timeout=110) for _ in range(ATTACKERS)]
        for connection in connections:
            connection.request("POST", "/v2/entries:list", QUERY, {"authorization": f"Bearer {attacked.token}"})
        for connection in connections:
            connection.close()
    eventually(lambda: call(attacked, "POST", "/v2/entries:list", QUERY)[0], lambda status: status == 200)


def test_a_server_under_attack_ends_when_it_is_told_to(attacked: RunningServer) -> None:
    connections = [http.client.HTTPConnection(urlsplit(attacked.url).netloc, timeout=110) for _ in range(ATTACKERS)]
    for connection in connections:
        connection.request("POST", "/v2/entries:list", QUERY, {"authorization": f"Bearer {attacked.token}"})
    try:
        assert attacked.stop() == 0
    finally:
        for connection in connections:
            connection.close()
    attacked.start()


@contextmanager
def stuck_server(home: Path) -> Iterator[RunningServer]:
    """A server whose threads for cloud listings all wait for a cloud that accepts connections and never answers."""
    home.mkdir()
    (home / "config.toml").write_text('[buckets.stuck]\nurl = "s3://silent"\nproject = "slow-work"\n')
    with socket.create_server(("127.0.0.1", 0), backlog=256) as silent:
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
        endpoint = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        server = RunningServer(home, environment=keys | endpoint).start()
        connections = [http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=110) for _ in range(ATTACKERS)]
        try:
            for connection in connections:
                connection.request("GET", "/storage/v1/b/stuck/o", headers={"authorization": f"Bearer {server.token}"})
            silent.settimeout(110)
            with silent.accept()[0] as asked:
                asked.settimeout(110)
                assert asked.recv(65_536)  # a thread waits for the answer to this
                yield server
        finally:
            server.kill()
            for connection in connections:
                connection.close()


def refuses(server: RunningServer) -> bool:
    """Whether it accepts no more connections."""
    address = urlsplit(server.url)
    try:
        socket.create_connection((address.hostname, address.port)).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_server_with_stuck_threads_ends_at_the_second_signal(tmp_path: Path) -> None:
    with stuck_server(tmp_path / "home") as server:
        os.kill(server.pid, signal.SIGTERM)
        eventually(lambda: refuses(server))
        os.kill(server.pid, signal.SIGTERM)
        assert server.stop() == 1
        assert "server.exit_forced after_s=2 " in server.log.read_text()


@pytest.mark.soak  # it waits for the cloud's timeouts
def test_a_server_with_stuck_threads_ends_within_its_grace(tmp_path: Path) -> None:
    with stuck_server(tmp_path / "home") as server:
        began = time.monotonic()
        assert server.stop() in (0, 1)
        assert time.monotonic() - began < 2 * SHUTDOWN_GRACE_S


#: A process with a thread that never ends, as a system call on a dead disk would be.
HANGS = """
import signal, sys, threading
from trainshed.api.shutdown import ExitDeadline
threading.Thread(target=threading.Event().wait).start()
deadline, told = ExitDeadline(), threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
print("ready", flush=True)
told.wait()
deadline.set(float(sys.argv[1]))
deadline.set(float(sys.argv[2]))
"""


@pytest.mark.fault("F15")
@pytest.mark.parametrize(("first_s", "second_s"), [(0.2, 600), (600, 0.2)])
def test_a_thread_that_never_ends_does_not_keep_the_process(first_s: float, second_s: float, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HANGS, str(first_s), str(second_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=110) == 1
