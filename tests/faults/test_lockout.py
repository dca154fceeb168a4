"""Connections that are held without a token lock nobody out, and a refused client gets to read the response."""

from __future__ import annotations

import contextlib
import http.client
import os
import select
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer

TRICKLE_INTERVAL_S = 12.0
LARGE_BYTES = 8 << 20
_TOKEN_REQUEST = b"POST /token HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n"
_UPLOAD = b"POST /upload/storage/v1/b/b/o HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n"


@dataclass(frozen=True)
class Attack:
    """What each socket sends at first, and then byte by byte. `{upstream}` is a port that accepts and is silent."""

    name: str
    target: str = "http"
    first: bytes = b""
    then: bytes = b""


ATTACKS = (
    Attack("silent sockets"),
    Attack("bytes of a token request", first=_TOKEN_REQUEST, then=b"x"),
    Attack("half headers", first=b"GET /healthz HTTP/1.1\r\nhost: loc", then=b"a"),
    Attack("stalled bodies", first=_UPLOAD + b"x" * 100),
    Attack("stalled handshakes", target="tls", first=b"\x16\x03\x01\x02\x00\x01"),
    Attack("held tunnels", target="proxy", first=b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n"),
)


class Attackers:
    """Sockets that are opened again when they are closed, up to a fifth of them a second."""

    def __init__(self, address: tuple[str, int], attack: Attack, number: int) -> None:
        self._address, self._attack, self._number = address, attack, number
        self._sockets: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.opened = 0

    def __enter__(self) -> Attackers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for each in self._sockets.values():
            each.close()
        self._poll.close()

    def _open(self) -> None:
        client = socket.create_connection(self._address, timeout=60)
        client.setblocking(False)
        self._sockets[client.fileno()] = client
        self._poll.register(client, select.EPOLLIN | select.EPOLLRDHUP)
        with contextlib.suppress(OSError):
            client.send(self._attack.first)
        self.opened += 1

    def _run(self) -> None:
        last = time.monotonic()
        while not self._ended.is_set():
            for _ in range(min(self._number - len(self._sockets), max(1, self._number // 100))):
                self._open()
            for number, event in self._poll.poll(0.05 if self.opened >= self._number else 0):
                with contextlib.suppress(OSError):
                    if event & (select.EPOLLRDHUP | select.EPOLLHUP) or not self._sockets[number].recv(65_536):
                        self._drop(number)
            if self._attack.then and time.monotonic() > last + TRICKLE_INTERVAL_S:
                last = time.monotonic()
                for each in self._sockets.values():
                    with contextlib.suppress(OSError):
                        each.send(self._attack.then)

    def _drop(self, number: int) -> None:
        self._poll.unregister(number)
        self._sockets.pop(number).close()


@dataclass(frozen=True)
class Endpoints:
    """Where an attack, and the callers, go."""

    server: RunningServer
    upstream: int

    def address(self, target: str) -> tuple[str, int]:
        url = self.server.info["endpoints"]["proxy_url"] if target == "proxy" else self.server.info[_URLS[target]]
        parts = urlsplit(url)
        return str(parts.hostname), int(parts.port or 0)


_URLS = {"http": "url", "tls": "tls_url"}


class ApiCaller:
    """A caller with a token. Every other request is on the connection of the one before."""

    def __init__(self, endpoints: Endpoints, target: str) -> None:
        self._connection = connection_to(endpoints, target)
        self._headers = {"authorization": f"Bearer {endpoints.server.token}"}
        self._calls = 0

    def __call__(self) -> int:
        self._connection.request("GET", "/trainshed/v1/server", headers=self._headers)
        response = self._connection.getresponse()
        response.read()
        self._calls += 1
        if self._calls % 2 == 0:
            self._connection.close()
        return response.status

    def close(self) -> None:
        self._connection.close()


def connection_to(endpoints: Endpoints, target: str) -> http.client.HTTPConnection:
    host, port = endpoints.address(target)
    if target == "http":
        return http.client.HTTPConnection(host, port, timeout=60)
    context = ssl.create_default_context(cafile=str(endpoints.server.authority))
    return http.client.HTTPSConnection(host, port, timeout=60, context=context)


class ProxyCaller:
    """A caller that opens a tunnel through the proxy."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._proxy, self._upstream = endpoints.address("proxy"), endpoints.upstream

    def __call__(self) -> int:
        with socket.create_connection(self._proxy, timeout=60) as client:
            client.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % self._upstream)
            return int(client.recv(65_536).split(b" ")[1])

    def close(self) -> None:
        """It keeps nothing open."""


Callers = list[ApiCaller | ProxyCaller]


def measure(callers: Callers, *, calls: int, at_least_s: float = 0.0) -> tuple[list[float], list[int]]:
    """Let all call concurrently. Returns how long each call took, in seconds, and the statuses."""
    durations: list[float] = []
    statuses: list[int] = []

    def run(call: ApiCaller | ProxyCaller) -> None:
        end, done = time.monotonic() + at_least_s, 0
        while done < calls or time.monotonic() < end:
            started = time.perf_counter()
            statuses.append(call())
            durations.append(time.perf_counter() - started)
            done += 1
            time.sleep(0.005)
        call.close()

    threads = [threading.Thread(target=run, args=(call,)) for call in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return durations, statuses


@contextlib.contextmanager
def endpoints_of(server: RunningServer) -> Iterator[Endpoints]:
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as upstream:
        yield Endpoints(server, upstream.getsockname()[1])


def attackers(endpoints: Endpoints, attack: Attack, number: int) -> Attackers:
    first = attack.first % endpoints.upstream if attack.target == "proxy" else attack.first
    return Attackers(endpoints.address(attack.target), Attack(attack.name, attack.target, first, attack.then), number)


def callers(endpoints: Endpoints, attack: Attack) -> Callers:
    if attack.target == "proxy":
        return [ProxyCaller(endpoints), ApiCaller(endpoints, "http")]
    return [ApiCaller(endpoints, attack.target) for _ in range(2)]


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with room for few connections."""
    server = RunningServer(tmp_path_factory.mktemp("small") / "home", {"max_connections": 40}).start()
    yield server
    assert server.close() == 0


@pytest.mark.fault("F60")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_callers_get_in_past_more_sockets_than_there_is_room_for(small_server: RunningServer, attack: Attack) -> None:
    with endpoints_of(small_server) as endpoints:
        with attackers(endpoints, attack, 60) as held:
            eventually(lambda: held.opened, lambda opened: opened >= 60)
            _, statuses = measure(callers(endpoints, attack), calls=20)
        assert set(statuses) == {200}


@pytest.mark.fault("F60")
@pytest.mark.soak
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_two_thousand_sockets_slow_nobody_down(tmp_path: Path, attack: Attack) -> None:
    server = RunningServer(tmp_path / "home").start()
    try:
        with endpoints_of(server) as endpoints:
            quiet, _ = measure(callers(endpoints, attack), calls=500)
            with attackers(endpoints, attack, 2000) as held:
                eventually(lambda: held.opened, lambda opened: opened >= 2000, within_s=120)
                attacked, statuses = measure(callers(endpoints, attack), calls=500, at_least_s=40)
    finally:
        server.close()
    (p50, p99), (quiet_p50, quiet_p99) = (
        (statistics.median(each), statistics.quantiles(each, n=100)[98]) for each in (attacked, quiet)
    )
    errors = sum(status >= 500 for status in statuses)
    print(
        f"{attack.name}: p50 {quiet_p50 * 1e3:.1f} ms, p99 {quiet_p99 * 1e3:.1f} ms; attacked p50 {p50 * 1e3:.1f} ms, "
        f"p99 {p99 * 1e3:.1f} ms; {len(statuses)} calls, {errors} of them 5xx; {held.opened} sockets opened"
    )
    assert errors == 0
    assert p99 < 3 * quiet_p99


@pytest.mark.parametrize("target", ["http", "tls"])
@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/upload/storage/v1/b/b/o?uploadType=media&name=n", "wrong", 401),
        ("/trainshed/v1/nothing", "wrong", 401),
        ("/trainshed/v1/tokens", "", 413),
    ],
    ids=["an upload with a bad token", "a bad token", "too large"],
)
def test_a_client_that_still_sends_reads_why_it_is_refused(
    server: RunningServer, target: str, path: str, token: str, status: int
) -> None:
    size = LARGE_BYTES if status == 401 else 2 * LARGE_BYTES
    for _ in range(3):
        with (
            endpoints_of(server) as endpoints,
            contextlib.closing(connection_to(endpoints, target)) as connection,
        ):
            connection.request("POST", path, os.urandom(1) * size, {"authorization": f"Bearer {token or server.token}"})
            response = connection.getresponse()
            assert response.status == status
            assert b"error" in response.read()
