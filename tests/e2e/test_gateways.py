"""Several gateways on one port: what they answer, what they pass on, and what every one of them refuses."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import psutil
import pytest

from trainshed.testing.cache import link_runtimes
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.prediction_load import PredictionLoad

GATEWAYS = 2
MANY = 12  #: connections: at every gateway are some
FEW = 6  #: requests at a time, for which one host is enough
MAX_CONNECTIONS = 60
RATE = 20  #: requests a second: fewer than a busy machine sends
SOAK_REQUESTS, SOAK_SWITCHES = 100_000, 100
SLOW = ("while instances[0].startswith('/') and not os.path.exists(instances[0]):", "    time.sleep(0.01)")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The last test stops it."""
    running = RunningServer(
        link_runtimes(tmp_path_factory.mktemp("home")),
        {"gateways": GATEWAYS, "sleep_after_s": 1, "max_connections": MAX_CONNECTIONS},
    ).start()
    yield running
    assert running.close() == 0


@pytest.fixture(scope="module")
def model(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    """Two versions that answer with their names. v1 is the default."""
    made = Deployer(server, "e2e-gateways", tmp_path_factory.mktemp("scratch"))
    for version in ("v1", "v2"):
        made.deploy_routine(version, answer=f"return ['{version}'] * len(instances)")
    return made


class Client:
    """One connection that stays open."""

    def __init__(self, model: Deployer, token: str = "") -> None:
        self._token = token or model.server.token
        self._path = model.path
        self.predicted = 0  #: requests with status 200
        self.connection = http.client.HTTPConnection(urlsplit(model.server.url).netloc, timeout=60)

    @property
    def port(self) -> int:
        return int(self.connection.sock.getsockname()[1])

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        self.connection.request(method, path, body, {"authorization": f"Bearer {self._token}"})
        response = self.connection.getresponse()
        return response.status, json.loads(response.read())

    def predict(self, version: str = "", instances: Any = ("x",)) -> tuple[int, Any]:
        target = f"{self._path}/versions/{version}:predict" if version else f"{self._path}:predict"
        status, answer = self.send("POST", target, json.dumps({"instances": instances}))
        self.predicted += status == 200
        return status, answer


def gateways(server: RunningServer) -> list[psutil.Process]:
    children = psutil.Process(server.pid).children()
    return [each for each in children if "trainshed.api.gateways.process" in each.cmdline()]


def ports_of(process: psutil.Process) -> set[int]:
    """Return the ports of the clients that a process has connections to."""
    return {each.raddr.port for each in process.net_connections("tcp") if each.raddr}


def at_gateways(model: Deployer, clients: list[Client]) -> list[int]:
    """Return how many of these connections each gateway has."""
    ports = {client.port for client in clients}
    return [len(ports & ports_of(process)) for process in gateways(model.server)]


class Settled(Protocol):
    """Returns connections that gateways answer, some at each of them. They are closed after the test."""

    def __call__(self, *, number: int = MANY, token: str = "", version: str = "") -> list[Client]: ...


@pytest.fixture
def settled(model: Deployer) -> Iterator[Settled]:
    clients: list[Client] = []

    def connect(*, number: int = MANY, token: str = "", version: str = "") -> list[Client]:
        made = [Client(model, token) for _ in range(number)]
        clients.extend(made)

        def ask() -> list[int]:
            for client in made:
                assert client.predict(version)[0] == 200
            return at_gateways(model, made)

        eventually(ask, lambda held: len(held) == GATEWAYS and all(held) and sum(held) == number)
        return made

    yield connect
    for client in clients:
        client.connection.close()


def test_one_connection_has_predictions_at_a_gateway_and_everything_else_at_the_server(
    model: Deployer, settled: Settled
) -> None:
    client = settled()[0]
    data = os.urandom(3 << 20)
    upload = f"/upload/storage/v1/b/{model.bucket}/o?uploadType=media&name=large"
    for _ in range(3):
        assert client.predict() == (200, {"predictions": ["v1"]})
        assert client.send("POST", upload, data)[1]["size"] == str(len(data))
        assert client.send("POST", upload, iter([data[:100_000], data[100_000:]]))[0] == 200  # in chunks
        assert client.predict("v2") == (200, {"predictions": ["v2"]})
        assert client.send("GET", "/healthz")[0] == 200
        assert client.predict("none")[0] == 404
        assert client.send("POST", f"{model.path}:predict", b"no JSON")[0] == 400
        assert client.predict(instances=["x" * 500_000])[0] == 200
        assert client.predict(instances=["x" * (11 << 20)])[0] == 413
        client.connection.close()


def test_requests_that_come_in_pieces_or_ahead_of_responses_are_answered_in_order(
    model: Deployer, settled: Settled
) -> None:
    settled()
    body = b'{"instances": ["x"]}'
    head = f"authorization: Bearer {model.server.token}\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    one, two = (
        f"POST {model.path}/versions/{each}:predict HTTP/1.1\r\n{head}".encode() + body for each in ("v1", "v2")
    )
    get = f"GET /healthz HTTP/1.1\r\n{head.partition('content')[0]}\r\n".encode()
    for requests in ((one, two, one), (one, get, two), (get, one, get, two)) * 3:
        with socket.create_connection((urlsplit(model.server.url).hostname, urlsplit(model.server.url).port)) as client:
            stream = b"".join(requests)
            client.sendall(stream[:25])
            time.sleep(0.01)
            client.sendall(stream[25:-7])
            client.sendall(stream[-7:])
            received = b""
            client.settimeout(60)
            while received.count(b"HTTP/1.1 200") < len(requests) or not received.endswith(b"}"):
                data = client.recv(65_536)
                assert data, received
                received += data
        wanted = {one: b'"v1"', two: b'"v2"', get: b'"ok"'}
        places = [received.find(wanted[each]) for each in dict.fromkeys(requests)]
        assert -1 not in places and places == sorted(places)


def test_a_revoked_token_is_refused_by_all_before_that_is_acknowledged(
    server: RunningServer, model: Deployer, settled: Settled
) -> None:
    for _ in range(5):
        made = server.call("POST", "/trainshed/v1/tokens", {"user": "ann", "project": model.project, "role": "viewer"})
        clients = settled(token=made["token"])
        server.call("POST", f"/trainshed/v1/tokens/{made['id']}:revoke")
        assert [client.predict()[0] for client in clients] == [401] * len(clients)


def test_a_disabled_user_is_refused_by_all(server: RunningServer, model: Deployer, settled: Settled) -> None:
    made = server.call("POST", "/trainshed/v1/tokens", {"user": "ben", "project": model.project, "role": "viewer"})
    clients = settled(token=made["token"])
    server.call("POST", "/trainshed/v1/users/ben:disable")
    assert [client.predict()[0] for client in clients] == [401] * len(clients)


def test_a_deleted_version_is_refused_by_all_when_that_is_done(model: Deployer, settled: Settled) -> None:
    model.deploy_routine("v3")
    clients = settled(version="v3")
    model.finish(model.delete("v3"))
    assert [client.predict("v3")[0] for client in clients] == [404] * len(clients)


def test_switches_of_the_default_version_under_load_fail_no_request_and_reach_all_at_once(
    model: Deployer, settled: Settled
) -> None:
    statuses: Counter[int] = Counter()
    stopping = threading.Event()

    def go_on(client: Client) -> None:
        while not stopping.is_set():
            statuses[client.predict()[0]] += 1

    callers = [threading.Thread(target=go_on, args=(client,)) for client in settled(number=4)]
    clients = settled()
    for caller in callers:
        caller.start()
    for number in range(10):
        version = f"v{number % 2 + 1}"
        model.server.call("POST", f"{model.path}/versions/{version}:setDefault", {})
        assert [client.predict()[1]["predictions"] for client in clients] == [[version]] * len(clients)
    stopping.set()
    for caller in callers:
        caller.join()
    model.server.call("POST", f"{model.path}/versions/v1:setDefault", {})
    assert set(statuses) == {200}


@pytest.mark.soak  # ten switches are in every run, above
@pytest.mark.timeout(0)
def test_a_hundred_switches_fail_none_of_a_hundred_thousand_requests(model: Deployer, settled: Settled) -> None:
    settled()
    with PredictionLoad(model, threads=8).going() as load:
        for number in range(SOAK_SWITCHES):
            version = f"v{number % 2 + 1}"
            model.server.call("POST", f"{model.path}/versions/{version}:setDefault", {})
            load.wait_for_more(SOAK_REQUESTS // SOAK_SWITCHES)
    model.server.call("POST", f"{model.path}/versions/v1:setDefault", {})
    assert set(load.counts) == {(200, "v1"), (200, "v2")}
    assert len(load.seen) >= SOAK_REQUESTS


def start_rollout(model: Deployer, version: str, **plan: Any) -> str:
    """Start a rollout. Returns its path."""
    path = f"/trainshed{model.path}/rollouts"
    body = {"version": version, "minRequests": 20, "stepSeconds": 0, **plan}
    return f"{path}/{model.server.call('POST', path, body)['id']}"


def ended(model: Deployer, rollout: str) -> tuple[str, int]:
    """Wait for the end of a rollout. Returns its state and its last stage."""
    body = eventually(lambda: model.server.call("GET", rollout), lambda body: body["state"] != "RUNNING")
    return body["state"], body["stage"]


def roll_back(model: Deployer) -> None:
    model.server.call("POST", f"/trainshed{model.path}:rollback", {})


def test_rollouts_are_decided_by_what_gateways_answer(model: Deployer, settled: Settled) -> None:
    model.deploy_routine("failing", answer="raise ValueError('no')")
    settled()
    with PredictionLoad(model, threads=4).going() as load:
        load.wait_for_more(100)
        rollout = start_rollout(model, "v2", shadowSeconds=600, abortIf=["changed>5%"])
        assert ended(model, rollout) == ("ROLLED_BACK", 0)
        assert set(load.counts) == {(200, "v1")}
        rollout = start_rollout(model, "v2", shadowSeconds=0.1, steps=[20, 100], abortIf=["error_rate>1%"])
        assert ended(model, rollout)[0] == "PROMOTED"
        roll_back(model)
        assert set(load.counts) == {(200, "v1"), (200, "v2")}
        rollout = start_rollout(model, "failing", steps=[50, 100], abortIf=["error_rate>1%"])
        assert ended(model, rollout) == ("ROLLED_BACK", 0)
        ended_s = time.monotonic()
        load.wait_for_more(100)
    assert any(each.status != 200 for each in load.seen)
    assert {each.status for each in load.seen if each.began_s > ended_s} == {200}


def test_connections_are_with_the_server_while_it_mirrors_their_requests(model: Deployer, settled: Settled) -> None:
    clients = settled()
    rollout = start_rollout(model, "v2", shadowSeconds=600, abortIf=["error_rate>1%"])

    def mirrored() -> int:
        assert [client.predict() for client in clients] == [(200, {"predictions": ["v1"]})] * len(clients)
        return int(model.server.call("GET", rollout)["measured"]["version"]["compared"])

    eventually(mirrored, lambda number: number >= 5 * MANY)
    assert sum(at_gateways(model, clients)) == 0
    roll_back(model)
    assert ended(model, rollout)[0] != "RUNNING"

    def answered() -> int:
        assert [client.predict() for client in clients] == [(200, {"predictions": ["v1"]})] * len(clients)
        return sum(at_gateways(model, clients))

    eventually(answered, lambda number: number == len(clients))


def test_a_version_that_is_asleep_wakes_up_for_a_request_at_a_gateway(model: Deployer, settled: Settled) -> None:
    model.deploy_routine("v5", autoScaling={"minNodes": 0})
    clients = settled(version="v5")
    eventually(lambda: model.details("v5")["hosts"], lambda hosts: hosts == [])
    assert [client.predict("v5") for client in clients] == [(200, {"predictions": ["x"]})] * len(clients)


def test_counts_are_of_the_server_and_no_logged_request_is_lost(model: Deployer, settled: Settled) -> None:
    model.deploy_routine("v4")
    logging = {"samplingPercentage": 1.0, "bigqueryTableName": f"gs://{model.bucket}/log"}
    patch = f"{model.path}/versions/v4?updateMask=requestLoggingConfig"
    model.finish(model.server.call("PATCH", patch, {"requestLoggingConfig": logging}))
    clients = settled(version="v4")
    eventually(lambda: counted(model, "v4"), lambda number: number == sum(client.predicted for client in clients))
    marks = [f"mark-{number}" for number in range(300)]
    for number, mark in enumerate(marks):
        assert clients[number % len(clients)].predict("v4", [mark])[0] == 200
    for process in gateways(model.server):  # what was answered is in the log even so
        process.kill()
    eventually(lambda: missing(model, marks), lambda left: not left, within_s=30)


def counted(model: Deployer, version: str) -> int:
    traffic = model.server.call("GET", f"/trainshed{model.path}")["traffic"]
    return int(traffic.get(version, {}).get("count", 0))


def missing(model: Deployer, marks: list[str]) -> set[str]:
    folder = model.server.home / "buckets" / model.bucket / "log"
    text = "".join(path.read_text() for path in folder.rglob("*.jsonl"))
    return {mark for mark in marks if f'{mark}\\"' not in text}


def test_a_limit_of_requests_a_second_is_of_all_gateways_together(
    server: RunningServer, model: Deployer, settled: Settled
) -> None:
    limit = {"project": model.project, "name": "requests-per-second", "value": RATE}
    clients = settled()
    server.call("POST", "/trainshed/v1/quotas:set", limit)
    statuses: Counter[int] = Counter()
    start = time.monotonic()
    while statuses[200] < 2 * RATE or not statuses[429]:
        for client in clients:
            statuses[client.predict()[0]] += 1
    elapsed = time.monotonic() - start
    server.call("POST", "/trainshed/v1/quotas:unset", {key: limit[key] for key in ("project", "name")})
    assert set(statuses) == {200, 429}
    assert statuses[200] <= RATE * (elapsed + 1) + 1


def test_a_gateway_that_is_killed_costs_its_own_connections_and_is_replaced(model: Deployer, settled: Settled) -> None:
    clients = settled()
    eventually(lambda: at_gateways(model, clients), lambda numbers: max(numbers) - min(numbers) <= 1)  # none moves now
    killed, other = gateways(model.server)
    held = ports_of(other)
    kept = [client for client in clients if client.port in held]
    killed.kill()
    for _ in range(50):
        assert [client.predict()[0] for client in kept] == [200] * len(kept)
    eventually(lambda: len(gateways(model.server)), lambda number: number == GATEWAYS)
    settled()


@pytest.mark.soak  # it takes the timeout, which a test in tests/unit/api/test_gateways.py shortens
def test_a_gateway_that_hangs_is_killed_so_that_a_change_is_acknowledged(
    server: RunningServer, model: Deployer, settled: Settled
) -> None:
    made = server.call("POST", "/trainshed/v1/tokens", {"user": "cal", "project": model.project, "role": "viewer"})
    settled(token=made["token"])
    [owner] = settled(number=GATEWAYS)[:1]
    assert owner.send("GET", "/healthz")[0] == 200  # from now on, the server has this connection
    hung = gateways(server)[0]
    hung.send_signal(signal.SIGSTOP)
    assert owner.send("POST", f"/trainshed/v1/tokens/{made['id']}:revoke")[0] == 200
    assert not hung.is_running() or hung.status() == psutil.STATUS_ZOMBIE
    eventually(lambda: len(gateways(server)), lambda number: number == GATEWAYS)


def test_a_killed_server_ends_its_gateways(tmp_path: Path) -> None:
    running = RunningServer(tmp_path / "home", {"gateways": GATEWAYS}).start()
    processes = gateways(running)
    assert len(processes) == GATEWAYS
    running.kill()
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert not alive


def test_the_limit_of_connections_is_of_all_processes_together(server: RunningServer) -> None:
    address = urlsplit(server.url)

    def connected() -> int:
        processes = [psutil.Process(server.pid), *gateways(server)]
        found = [each for process in processes for each in process.net_connections("tcp")]
        return sum(each.status == psutil.CONN_ESTABLISHED and each.laddr.port == address.port for each in found)

    clients = [socket.create_connection((address.hostname, address.port)) for _ in range(3 * MAX_CONNECTIONS)]
    try:
        eventually(connected, lambda number: number == MAX_CONNECTIONS)
        assert server.call("GET", "/trainshed/v1/tokens") is not None  # in the place of an idle one
    finally:
        for client in clients:
            client.close()


def test_a_stopped_server_answers_what_is_in_progress(server: RunningServer, model: Deployer, settled: Settled) -> None:
    """The last test: the server is gone after it."""
    model.deploy_routine("slow", answer="\n        ".join(SLOW), autoScaling={"minNodes": 1, "maxNodes": 2})
    clients, processes = settled(number=FEW, version="slow"), gateways(server)
    release = server.home / "release"
    with ThreadPoolExecutor(FEW + 1) as pool:
        try:
            answers = [pool.submit(client.predict, "slow", [str(release)]) for client in clients]
            eventually(lambda: model.details("slow")["scaling"]["inFlight"], lambda number: number == FEW)
            stopped = pool.submit(server.stop)
            eventually(lambda: refuses(server))
            assert not any(answer.done() for answer in answers)
        finally:
            release.touch()
        assert [answer.result() for answer in answers] == [(200, {"predictions": [str(release)]})] * FEW
        assert stopped.result() == 0
    assert not psutil.wait_procs(processes, timeout=30)[1]


def refuses(server: RunningServer) -> bool:
    address = urlsplit(server.url)
    try:
        socket.create_connection((address.hostname, address.port)).close()
    except ConnectionRefusedError:
        return True
    return False
