"""Hosts on other machines, as the gateway meets them: over TCP, behind a secret, lost with requests under way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from trainshed.config import Settings
from trainshed.domain.models.hosting import HostEndpoint
from trainshed.gateway import connection_pool as reaching
from trainshed.gateway.routes import HostAddress
from trainshed.node.process.ports import free_ports
from trainshed.serving.frames import ANSWER_HEAD, FrameKind, auth_frame, pack_request
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.hosts import FakeHost, answering, echo
from trainshed.testing.processes.gateway import RunningGateway
from trainshed.testing.processes.servers import Caller
from trainshed.testing.workloads.deployer import Callers

PATH = "/v1/projects/trainshed/models/m:predict"
SECRET = "a-secret-of-this-version"
WAIT_S = 90.0
HOST = "import sys; from trainshed.serving.main import main; sys.exit(main(sys.argv[1:]))"
MODEL = """
class Model:
    @classmethod
    def from_path(cls, folder):
        return cls()

    def predict(self, instances, **kwargs):
        return instances
"""


@pytest.fixture
def shed(tmp_path: Path) -> Iterator[RunningGateway]:
    running = RunningGateway(tmp_path / "home", Settings(predict_timeout_s=90.0)).start()
    yield running
    running.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[FakeHost, FakeHost]]:
    """Two hosts of one version."""
    made = tuple(FakeHost(tmp_path / name, key=name, secret=SECRET).start() for name in ("one", "two"))
    yield made[0], made[1]
    for host in made:
        host.stop()


def ask(shed: RunningGateway, value: int = 1) -> tuple[int, Any]:
    return Caller(shed.url)("POST", PATH, token=shed.token, body={"instances": [value]})


class TestGateway:
    def test_requests_are_shared_out(self, shed: RunningGateway, pair: tuple[FakeHost, FakeHost]) -> None:
        async def slowly(kind: int, body: bytes) -> tuple[int, bytes]:
            await asyncio.sleep(0.02)
            return await echo(kind, body)

        for host in pair:
            host.behaviour = slowly
        shed.publish("m", *(host.address for host in pair))
        with Callers(partial(ask, shed), 4) as callers:
            eventually(lambda: min(len(host.seen) for host in pair), (10).__lt__)
        assert callers.wrong == []

    def test_a_lost_host_fails_no_request(self, shed: RunningGateway, pair: tuple[FakeHost, FakeHost]) -> None:
        pair[0].behaviour = answering("never", after_s=300)
        shed.publish("m", *(host.address for host in pair))
        with Callers(partial(ask, shed), 8) as callers:
            eventually(lambda: len(pair[0].seen), (2).__lt__)  # which wait there for an answer that will not come
            pair[0].stop()
            before = callers.statuses[200]
            eventually(lambda: callers.statuses[200], (before + 20).__lt__)
        assert callers.wrong == []
        bodies = Counter(body for _, body in pair[1].seen)
        assert all(bodies[body] for _, body in pair[0].seen)

    def test_by_both_ways(self, shed: RunningGateway, pair: tuple[FakeHost, FakeHost]) -> None:
        """A request that the route reads is sent again just so."""
        pair[0].behaviour = answering("never", after_s=300)
        shed.publish("m", *(host.address for host in pair))
        results: list[tuple[int, Any]] = []

        def send() -> None:
            caller = Caller(shed.url)
            results.append(caller("POST", f"{PATH}?by=route", token=shed.token, body={"instances": [5]}))

        threads = [threading.Thread(target=send) for _ in range(6)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(pair[0].seen))
        pair[0].stop()
        for thread in threads:
            thread.join()
        assert results == [(200, {"predictions": [5]})] * 6

    def test_one_that_kills_its_hosts_is_not_sent_to_all(self, shed: RunningGateway, tmp_path: Path) -> None:
        hosts = [FakeHost(tmp_path / str(number), key=str(number), secret=SECRET).start() for number in range(5)]

        def deadly(host: FakeHost) -> Any:
            async def die(kind: int, body: bytes) -> None:
                threading.Thread(target=host.stop).start()

            return die

        for host in hosts:
            host.behaviour = deadly(host)
        shed.publish("m", *(host.address for host in hosts))
        status, answer = ask(shed)
        assert (status, "ended before it answered" in json.dumps(answer)) == (503, True)
        assert sum(len(host.seen) for host in hosts) == 3
        for host in hosts:
            host.stop()

    def test_a_wrong_secret_gets_no_answer(
        self, shed: RunningGateway, pair: tuple[FakeHost, FakeHost], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reaching, "UNREACHABLE_AFTER_S", 0.5)
        right = pair[0].address
        assert right.endpoint is not None
        wrong = replace(right, key="wrong", endpoint=replace(right.endpoint, secret="another"))
        shed.publish("m", wrong)
        assert ask(shed)[0] == 503
        assert pair[0].seen == []
        eventually(lambda: shed.control_plane.unreachable, lambda keys: "wrong" in keys)
        shed.publish("m", right)
        assert ask(shed) == (200, {"predictions": [1]})

    def test_a_host_whose_machine_says_nothing_is_told_of(
        self, shed: RunningGateway, pair: tuple[FakeHost, FakeHost], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shed.publish("m", pair[0].address)
        assert ask(shed) == (200, {"predictions": [1]})  # it is connected, and stays so however short the time gets
        monkeypatch.setattr(reaching, "UNREACHABLE_AFTER_S", 0.5)
        monkeypatch.setattr(reaching, "CONNECT_TIMEOUT_S", 0.2)
        with closing(socket.create_server(("127.0.0.1", 0))) as deaf:  # which takes connections, and says nothing
            host, port = deaf.getsockname()
            silent = HostAddress(socket=Path(), key="deaf", endpoint=HostEndpoint(host=host, port=port, secret=SECRET))
            shed.publish("m", silent, pair[0].address)
            eventually(lambda: shed.control_plane.unreachable, lambda keys: "deaf" in keys)
            assert ask(shed) == (200, {"predictions": [1]})

    def test_a_connection_that_is_lost_is_made_again(
        self, shed: RunningGateway, pair: tuple[FakeHost, FakeHost], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reaching, "RETRY_INTERVAL_S", 0.05)
        shed.publish("m", *(host.address for host in pair))
        assert ask(shed)[0] == 200
        pair[0].cut()
        with Callers(partial(ask, shed), 4) as callers:
            seen = len(pair[0].seen)
            eventually(lambda: len(pair[0].seen), (seen + 5).__lt__)
        assert callers.wrong == []
        assert shed.control_plane.unreachable == []


class TestHost:
    """A real host's process that listens on a port."""

    @pytest.fixture
    def process(self, tmp_path: Path, place: tuple[str, int]) -> Iterator[subprocess.Popen[bytes]]:
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "plain.py").write_text(MODEL)
        spec = {
            "format": 1,
            "loader": "custom",
            "prediction_class": "plain.Model",
            "site": str(tmp_path / "site"),
            "model_dir": str(tmp_path),
            "address": place,
            "secret": SECRET,
            "body_limit": 1 << 20,
        }
        (tmp_path / "spec.json").write_text(json.dumps(spec))
        command = [sys.executable, "-c", HOST, "host", str(tmp_path / "spec.json")]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                assert json.loads(process.stdout.readline())["event"] == "ready"
                yield process
            finally:
                process.kill()

    @pytest.fixture
    def place(self) -> tuple[str, int]:
        return "127.0.0.1", free_ports(1)[0]

    @pytest.fixture(autouse=True)
    def ended_well(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0

    @staticmethod
    def answer(sock: socket.socket) -> tuple[int, bytes]:
        with sock.makefile("rb") as file:
            length, _, status = ANSWER_HEAD.unpack(file.read(ANSWER_HEAD.size))
            return status, file.read(length)

    def test_it_answers_whoever_knows_the_secret(self, place: tuple[str, int]) -> None:
        with socket.create_connection(place, timeout=60) as sock:
            sock.sendall(auth_frame(SECRET) + pack_request(1, FrameKind.PREDICT, b'{"instances": [7]}'))
            assert self.answer(sock) == (200, b'{"predictions":[7]}')

    def test_it_reads_frames_however_they_come(self, place: tuple[str, int]) -> None:
        with socket.create_connection(place, timeout=60) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in auth_frame(SECRET) + pack_request(1, FrameKind.PREDICT, b'{"instances": [7]}'):
                sock.sendall(bytes([byte]))
            assert self.answer(sock) == (200, b'{"predictions":[7]}')

    @pytest.mark.parametrize(
        "first",
        [
            auth_frame("b" * len(SECRET)),
            auth_frame("short"),
            pack_request(1, FrameKind.PREDICT, b'{"instances": [7]}'),
            b"GET / HTTP/1.1\r\nhost: here\r\n\r\n" + b"x" * 100,
            b"\xff" * 100,
        ],
        ids=["wrong", "short", "none", "http", "noise"],
    )
    def test_it_says_nothing_to_others(self, place: tuple[str, int], first: bytes) -> None:
        with socket.create_connection(place, timeout=60) as sock:
            sock.sendall(first + pack_request(2, FrameKind.STATS, b"") * 10)
            with contextlib.suppress(ConnectionResetError):  # it closed before it had read all of this
                assert sock.recv(1) == b""
        self.test_it_answers_whoever_knows_the_secret(place)

    def test_it_ends_when_told_to_while_connections_come_in(
        self, place: tuple[str, int], process: subprocess.Popen[bytes]
    ) -> None:
        """And whatever it is just doing with them."""
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):  # it listens no more at some time
            for number in range(60):
                stack.enter_context(socket.create_connection(place, timeout=60)).sendall(auth_frame(SECRET))
                if number == 20:
                    process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0

    @pytest.mark.soak
    def test_half_a_greeting_holds_nobody_up(self, place: tuple[str, int]) -> None:
        with socket.create_connection(place, timeout=60) as sock:
            sock.sendall(auth_frame(SECRET)[:-1])
            self.test_it_answers_whoever_knows_the_secret(place)
            assert sock.recv(1) == b""

    @pytest.mark.soak
    def test_many_strangers_do_not_keep_its_gateway_out(self, place: tuple[str, int]) -> None:
        strangers = [socket.create_connection(place, timeout=60) for _ in range(80)]
        assert strangers[-1].recv(1) == b""  # there are enough already
        for stranger in strangers:
            stranger.close()

        def served() -> bool:
            with socket.create_connection(place, timeout=60) as sock:
                sock.sendall(auth_frame(SECRET) + pack_request(1, FrameKind.STATS, b""))
                try:
                    return len(sock.recv(1)) == 1
                except ConnectionResetError:
                    return False

        eventually(served)


def test_a_host_that_others_can_reach_needs_a_secret(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(
        json.dumps({"format": 1, "model_dir": str(tmp_path), "address": ["127.0.0.1", 0]})
    )
    command = [sys.executable, "-c", HOST, "host", str(tmp_path / "spec.json")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S)
    assert done.returncode == 1
    assert "must have a secret" in json.loads(done.stdout)["message"]
