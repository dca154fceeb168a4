"""Connections that are held without a token lock nobody out, and a refused client gets to read the response."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import os
import selectors
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import psutil
import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.attackers import Attack, Attackers
from trainshed.testing.processes.servers import RunningServer

LARGE_BYTES = 8 << 20
_TOKEN_REQUEST = b"POST /token HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n"
_UPLOAD = b"POST /upload/storage/v1/b/b/o HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n"


@dataclass(frozen=True)
class Kind:
    """What each socket sends at first, and then byte by byte. `%d` is a port that accepts and is silent."""

    name: str
    target: str = "http"
    first: bytes = b""
    then: bytes = b""


KINDS = (
    Kind("silent sockets"),
    Kind("bytes of a token request", first=_TOKEN_REQUEST, then=b"x"),
    Kind("half headers", first=b"GET /healthz HTTP/1.1\r\nhost: loc", then=b"a"),
    Kind("stalled bodies", first=_UPLOAD + b"x" * 100),
    Kind("stalled handshakes", target="tls", first=b"\x16\x03\x01\x02\x00\x01"),
    Kind("held tunnels", target="proxy", first=b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n"),
)
by_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


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

    with ThreadPoolExecutor(len(callers)) as pool:
        for running in [pool.submit(run, call) for call in callers]:
            running.result()
    return durations, statuses


class SilentUpstream:
    """Accepts connections, sends nothing, and closes those that their clients have closed."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> SilentUpstream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for key in tuple(self._selector.get_map().values()):
            cast(socket.socket, key.fileobj).close()
        self._selector.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            for key, _ in self._selector.select(0.1):
                ready = cast(socket.socket, key.fileobj)
                with contextlib.suppress(OSError):
                    if ready is self._listener:
                        self._selector.register(ready.accept()[0], selectors.EVENT_READ)
                        continue
                    if ready.recv(65_536):
                        continue
                if ready is not self._listener:
                    self._selector.unregister(ready)
                    ready.close()


@contextlib.contextmanager
def endpoints_of(server: RunningServer) -> Iterator[Endpoints]:
    with SilentUpstream() as upstream:
        yield Endpoints(server, upstream.port)


def attackers(endpoints: Endpoints, kind: Kind, number: int) -> Attackers:
    first = kind.first % endpoints.upstream if kind.target == "proxy" else kind.first
    host, port = endpoints.address(kind.target)
    return Attackers(Attack(host, port, number, first.decode("latin-1"), kind.then.decode()))


def callers(endpoints: Endpoints, kind: Kind) -> Callers:
    if kind.target == "proxy":
        return [ProxyCaller(endpoints), ApiCaller(endpoints, "http")]
    return [ApiCaller(endpoints, kind.target) for _ in range(2)]


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with room for few connections."""
    server = RunningServer(tmp_path_factory.mktemp("small") / "home", {"max_connections": 40}).start()
    yield server
    assert server.close() == 0


@pytest.mark.fault("F60")
@by_kind
def test_callers_get_in_past_more_sockets_than_there_is_room_for(small_server: RunningServer, kind: Kind) -> None:
    with endpoints_of(small_server) as endpoints:
        with attackers(endpoints, kind, 60) as held:
            eventually(lambda: held.opened, lambda opened: opened >= 60)
            _, statuses = measure(callers(endpoints, kind), calls=20)
        assert set(statuses) == {200}


@pytest.mark.fault("F60")
@pytest.mark.soak
@by_kind
def test_two_thousand_sockets_slow_nobody_down(tmp_path: Path, kind: Kind) -> None:
    server = RunningServer(tmp_path / "home").start()
    try:
        with endpoints_of(server) as endpoints:
            quiet = measure(callers(endpoints, kind), calls=500, at_least_s=15)
            with attackers(endpoints, kind, 2000) as held:
                eventually(lambda: held.opened, lambda opened: opened >= 2000)
                attacked = measure(callers(endpoints, kind), calls=500, at_least_s=40)
                opened, open_at_end = held.opened, held.held
            quiet_again = measure(callers(endpoints, kind), calls=500, at_least_s=15)
    finally:
        server.close()
    durations, statuses = attacked
    (p50, p99), (quiet_p50, quiet_p99) = (
        (statistics.median(each), statistics.quantiles(each, n=100)[98])
        for each in (durations, quiet[0] + quiet_again[0])
    )
    others = [status for status in statuses if status != 200]
    print(
        f"{kind.name}: p50 {quiet_p50 * 1e3:.1f} ms, p99 {quiet_p99 * 1e3:.1f} ms; attacked p50 {p50 * 1e3:.1f} ms, "
        f"p99 {p99 * 1e3:.1f} ms, ratio {p99 / quiet_p99:.2f}; {len(statuses)} calls, {len(others)} not 200; "
        f"{opened} sockets opened, {open_at_end} open at the end"
    )
    assert others == []
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


def own_address() -> str:
    """An address of this machine that is not of loopback."""
    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            if each.family == socket.AF_INET and not ipaddress.ip_address(each.address).is_loopback:
                return each.address
    pytest.skip("this machine has no address but loopback")


def is_open(client: socket.socket) -> bool:
    """Whether the server responds on a connection. It is closed otherwise."""
    try:
        client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        response = http.client.HTTPResponse(client)
        response.begin()
        response.read()
    except (ConnectionError, http.client.BadStatusLine):
        return False
    return response.status == 200


@pytest.mark.parametrize("is_proxy", [False, True], ids=["a client", "a reverse proxy"])
def test_an_address_makes_room_for_itself_alone(tmp_path: Path, is_proxy: bool) -> None:
    address, most = own_address(), 10
    settings = {"host": "0.0.0.0", "max_connections_per_address": most, "reverse_proxies": address if is_proxy else ""}
    server = RunningServer(tmp_path / "home", settings).start()
    port = urlsplit(server.url).port
    try:
        with contextlib.ExitStack() as stack:
            local, own = (
                [stack.enter_context(socket.create_connection((host, port), timeout=60)) for _ in range(most + 5)]
                for host in ("127.0.0.1", address)
            )
            assert {client.getsockname()[0] for client in own} == {address}
            closed = 0 if is_proxy else 5
            assert is_open(own[-1])  # so all of them are accepted
            assert [is_open(client) for client in own] == [False] * closed + [True] * (most + 5 - closed)
            assert all(map(is_open, local))
    finally:
        assert server.close() == 0
