"""Predictions under attack, overload and loss, as clients see them."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from trainshed.config import Settings
from trainshed.domain.models.hosting import ServingState
from trainshed.gateway import host_connection
from trainshed.gateway.routes import ModelRoute, VersionRoute
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.hosts import FakeHost, answering
from trainshed.testing.processes.gateway import RunningGateway
from trainshed.testing.processes.servers import Caller

PATH = "/v1/projects/trainshed/models/m:predict"
GOOD = {"instances": [1, 2]}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[FakeHost]:
    made = FakeHost(tmp_path / "socket").start()
    yield made
    made.stop()


@pytest.fixture
def timeout_s() -> float:
    return 90.0


@pytest.fixture
def shed(tmp_path: Path, host: FakeHost, timeout_s: float) -> Iterator[RunningGateway]:
    running = RunningGateway(tmp_path / "home", Settings(body_limit_mb=1, predict_timeout_s=timeout_s)).start()
    running.publish("m", host.address)
    assert ask(running) == (200, {"predictions": [1, 2]})  # from now on, by the fast path
    yield running
    running.stop()


def ask(shed: RunningGateway, body: object = GOOD, **headers: str) -> tuple[int, object]:
    return Caller(shed.url)("POST", PATH, token=shed.token, body=body, headers=headers)


def connected(shed: RunningGateway) -> socket.socket:
    address = urlsplit(shed.url)
    return socket.create_connection((address.hostname, address.port), timeout=90)


def head(shed: RunningGateway, *lines: str) -> bytes:
    netloc = urlsplit(shed.url).netloc
    own = (f"POST {PATH} HTTP/1.1", f"host: {netloc}", f"authorization: Bearer {shed.token}", *lines)
    return "\r\n".join((*own, "", "")).encode()


def first_line(client: socket.socket) -> bytes:
    return client.makefile("rb").readline()


@pytest.mark.fault("F53")
class TestBodies:
    def test_a_body_over_the_limit_is_refused_before_it_is_read(self, shed: RunningGateway, host: FakeHost) -> None:
        before = len(host.seen)
        with connected(shed) as client:
            client.sendall(head(shed, f"content-length: {100 << 20}"))
            assert b" 413 " in first_line(client)
        assert len(host.seen) == before

    def test_a_body_without_a_length_is_read_to_the_limit(self, shed: RunningGateway, host: FakeHost) -> None:
        before, memory = len(host.seen), psutil.Process().memory_info().rss
        with connected(shed) as client:
            client.sendall(head(shed, "transfer-encoding: chunked"))
            piece = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
            sent = 0
            try:
                while sent < 300 << 20:
                    client.sendall(piece)
                    sent += 65_536
            except (ConnectionResetError, BrokenPipeError):
                pass  # it has heard enough
        assert sent < 200 << 20, "what is discarded so that the client can read the refusal has a limit"
        assert psutil.Process().memory_info().rss - memory < 40 << 20
        assert len(host.seen) == before
        assert ask(shed)[0] == 200

    def test_a_chunked_body_within_the_limit_is_answered(self, shed: RunningGateway) -> None:
        with connected(shed) as client:
            client.sendall(head(shed, "transfer-encoding: chunked") + b'12\r\n{"instances": [1]}\r\n0\r\n\r\n')
            assert b" 200 " in first_line(client)

    def test_a_compressed_body_is_unpacked_up_to_the_limit(self, shed: RunningGateway, host: FakeHost) -> None:
        before = len(host.seen)
        bomb = gzip.compress(b"[" * (5 << 20))  # five times the limit
        assert ask(shed, bomb, **{"content-encoding": "gzip"})[0] == 413
        assert len(host.seen) == before
        assert ask(shed, gzip.compress(b'{"instances": [1]}'), **{"content-encoding": "gzip"})[0] == 200

    def test_a_body_that_comes_slowly_in_pieces_is_put_together(self, shed: RunningGateway, host: FakeHost) -> None:
        body = json.dumps({"instances": ["x" * 300_000]}).encode()
        with connected(shed) as client:
            client.sendall(head(shed, f"content-length: {len(body)}"))
            for start in range(0, len(body), 10_000):
                client.sendall(body[start : start + 10_000])
            assert b" 200 " in first_line(client)
        assert host.seen[-1][1] == body

    def test_bodies_in_small_and_large_pieces_are_put_together(self, shed: RunningGateway, host: FakeHost) -> None:
        body = json.dumps({"instances": [number / 7 for number in range(30_000)]}).encode()
        sizes = [*[1] * 300, 5000, *[100] * 50, 200_000, *[3] * 100, len(body)]
        with connected(shed) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.sendall(head(shed, f"content-length: {len(body)}"))
            at = 0
            for size in sizes:
                client.sendall(body[at : at + size])
                at += size
            assert b" 200 " in first_line(client)
        assert host.seen[-1][1] == body

    @pytest.mark.parametrize("spelling", [PATH, f"{PATH}?by=route"])
    def test_a_body_in_another_coding_is_refused_unread(
        self, shed: RunningGateway, host: FakeHost, spelling: str
    ) -> None:
        before = len(host.seen)
        with connected(shed) as client:
            request = head(shed, "transfer-encoding: gzip, chunked").replace(PATH.encode(), spelling.encode())
            client.sendall(request + b'12\r\n{"instances": [1]}\r\n0\r\n\r\n')
            answer = http.client.HTTPResponse(client)
            answer.begin()
            error = json.loads(answer.read())["error"]
        assert (answer.status, error["code"], error["status"]) == (501, 501, "UNIMPLEMENTED")
        assert "Transfer-Encoding 'gzip, chunked'" in error["message"]
        assert len(host.seen) == before

    def test_a_body_that_ends_early_asks_nobody(self, shed: RunningGateway, host: FakeHost) -> None:
        before = len(host.seen)
        with connected(shed) as client:
            client.sendall(head(shed, "content-length: 100") + b"{")
        assert ask(shed)[0] == 200
        assert len(host.seen) == before + 1


class TestTime:
    @pytest.fixture
    def timeout_s(self) -> float:
        return 3.0

    @pytest.mark.fault("F50")
    def test_a_request_ends_at_its_deadline_and_others_go_on(
        self, shed: RunningGateway, host: FakeHost, timeout_s: float
    ) -> None:
        async def hang_on_two(kind: int, body: bytes) -> tuple[int, bytes]:
            if b"2" in body:
                await asyncio.sleep(300)
            return 200, body

        host.behaviour = hang_on_two
        began = time.monotonic()
        results: list[int] = []
        hanging = threading.Thread(target=lambda: results.append(ask(shed, {"instances": [2]})[0]))
        hanging.start()
        while hanging.is_alive():
            assert ask(shed, {"instances": [1]})[0] == 200
            hanging.join(0.05)
        assert results == [504]
        assert time.monotonic() - began >= timeout_s
        assert shed.control_plane.unresponsive == []  # it answered others meanwhile

    @pytest.mark.fault("F50")
    def test_a_host_that_hangs_is_told_of(self, shed: RunningGateway, host: FakeHost) -> None:
        host.behaviour = answering("late", after_s=300)
        status, body = ask(shed)
        assert (status, json.loads(json.dumps(body))["error"]["status"]) == (504, "DEADLINE_EXCEEDED")
        eventually(lambda: shed.control_plane.unresponsive == [host.address.key])
        eventually(lambda: len(host.cancelled) == 1)


class TestLoss:
    @pytest.mark.fault("F57")
    def test_a_client_that_goes_away_takes_its_request_back(self, shed: RunningGateway, host: FakeHost) -> None:
        host.behaviour = answering("late", after_s=300)
        body = json.dumps(GOOD).encode()
        for number, spelling in enumerate((PATH, f"{PATH}?by=route"), start=len(host.seen)):
            with connected(shed) as client:
                request = head(shed, f"content-length: {len(body)}").replace(PATH.encode(), spelling.encode())
                client.sendall(request + body)
                eventually(lambda: len(host.seen), number.__lt__)
        eventually(lambda: len(host.cancelled) == 2)

    def test_a_client_that_goes_away_while_the_version_wakes_asks_nobody(
        self, shed: RunningGateway, host: FakeHost
    ) -> None:
        asleep = VersionRoute(project="trainshed", model="m", version="v1", state=ServingState.SLEEPING)
        shed.routes.publish(ModelRoute(project="trainshed", model="m", default="v1", versions={"v1": asleep}))
        before, body = len(host.seen), json.dumps(GOOD).encode()
        with connected(shed) as client:
            client.sendall(head(shed, f"content-length: {len(body)}") + body)
            eventually(lambda: len(shed.control_plane.activations) == 1)
        eventually(lambda: shed.connections == 0)  # the server has heard that the client is gone
        shed.publish("m", host.address)
        assert ask(shed)[0] == 200
        assert len(host.seen) == before + 1

    @pytest.mark.fault("F57")
    def test_a_client_that_reads_slowly_holds_up_nobody(self, shed: RunningGateway, host: FakeHost) -> None:
        big = json.dumps({"predictions": "x" * (20 << 20)}).encode()

        async def large(kind: int, body: bytes) -> tuple[int, bytes]:
            return (200, big) if b"large" in body else (200, b"{}")

        host.behaviour = large
        body = b'{"instances": ["large"]}'
        with connected(shed) as client:
            client.sendall(head(shed, f"content-length: {len(body)}") + body)
            assert client.recv(1)
            for _ in range(20):
                assert ask(shed)[0] == 200
            got = 1
            while got < len(big):
                piece = client.recv(1 << 20)
                assert piece
                got += len(piece)

    @pytest.mark.fault("F59")
    def test_a_killed_host_fails_its_requests_once_and_its_successor_answers(
        self, shed: RunningGateway, host: FakeHost, tmp_path: Path
    ) -> None:
        host.behaviour = answering("never", after_s=300)
        results: list[tuple[int, object]] = []
        callers = [threading.Thread(target=lambda: results.append(ask(shed))) for _ in range(5)]
        before = len(host.seen)
        for caller in callers:
            caller.start()
        eventually(lambda: len(host.seen) == before + 5)
        host.stop()
        for caller in callers:
            caller.join()
        assert [status for status, _ in results] == [503] * 5
        connection = http.client.HTTPConnection(urlsplit(shed.url).netloc, timeout=90)
        with closing(connection):  # still in the routes, but nobody listens: an answer, and not a closed connection
            connection.request("POST", PATH, b"{}", {"authorization": f"Bearer {shed.token}"})
            answer = connection.getresponse()
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        successor = FakeHost(tmp_path / "next").start()
        shed.publish("m", successor.address)
        assert ask(shed)[0] == 200
        successor.stop()

    def test_one_that_can_not_be_answered_fails_alone(self, shed: RunningGateway) -> None:
        results: Counter[tuple[int, int]] = Counter()
        lock = threading.Lock()

        def send(number: int) -> None:
            body = b"not JSON" if number == 7 else json.dumps({"instances": [number]}).encode()
            status, answer = ask(shed, body)
            with lock:
                results[(status, number == 7)] += 1
            assert number == 7 or answer == {"predictions": [number]}

        threads = [threading.Thread(target=send, args=(number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {(200, False): 31, (400, True): 1}


@pytest.mark.fault("F56")
class TestOverload:
    @pytest.fixture
    def few_in_flight(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The limit of connections that are made from now on."""
        monkeypatch.setattr(host_connection, "MAX_IN_FLIGHT", 20)

    def test_what_is_too_much_is_turned_away_and_it_recovers(
        self, few_in_flight: None, shed: RunningGateway, host: FakeHost
    ) -> None:
        full = threading.Event()

        async def when_full(kind: int, body: bytes) -> tuple[int, bytes]:
            while not full.is_set():
                await asyncio.sleep(0.01)
            return 200, b"{}"

        host.behaviour = when_full
        outcomes: Counter[int] = Counter()
        lock = threading.Lock()

        def send() -> None:
            status, _ = ask(shed)
            with lock:
                outcomes[status] += 1

        threads = [threading.Thread(target=send) for _ in range(200)]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: outcomes[429], (180).__eq__)
        finally:
            full.set()
        for thread in threads:
            thread.join()
        assert outcomes == {200: 20, 429: 180}
        assert [ask(shed)[0] for _ in range(5)] == [200] * 5

    def test_a_host_that_refuses_says_when_to_come_again(self, shed: RunningGateway, host: FakeHost) -> None:
        async def full(kind: int, body: bytes) -> tuple[int, bytes]:
            return 429, b'{"error": {"code": 429, "message": "full", "status": "RESOURCE_EXHAUSTED"}}'

        host.behaviour = full
        for spelling in (PATH, f"{PATH}?by=route"):
            connection = http.client.HTTPConnection(urlsplit(shed.url).netloc, timeout=90)
            with closing(connection):
                connection.request("POST", spelling, b"{}", {"authorization": f"Bearer {shed.token}"})
                answer = connection.getresponse()
                assert (answer.status, answer.headers["retry-after"]) == (429, "1")


@pytest.mark.fault("F15")
def test_a_stopping_server_answers_what_it_has(shed: RunningGateway, host: FakeHost) -> None:
    host.behaviour = answering("last output", after_s=0.5)
    results: list[tuple[int, object]] = []
    caller = threading.Thread(target=lambda: results.append(ask(shed)))
    before = len(host.seen)
    caller.start()
    eventually(lambda: len(host.seen) > before)
    shed.stop()
    caller.join()
    assert results == [(200, {"predictions": "last output"})]


def test_nothing_is_left_open(shed: RunningGateway) -> None:
    for _ in range(50):
        ask(shed)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        assert ask(shed)[0] == 200
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= before + 3)
