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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import psutil
import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.attackers import OPENED_PER_S, Attack, Attackers
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.figures import record

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
    opened_per_s: float = OPENED_PER_S
    held_s: float = 0.0


KINDS = (
    Kind("silent sockets"),
    Kind("bytes of a token request", first=_TOKEN_REQUEST, then=b"x"),
    Kind("half headers", first=b"GET /healthz HTTP/1.1\r\nhost: loc", then=b"a"),
    Kind("stalled bodies", first=_UPLOAD + b"x" * 100),
    Kind("stalled handshakes", target="tls", first=b"\x16\x03\x01\x02\x00\x01"),
    Kind("held tunnels", target="proxy", first=b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n"),
)


def _hello() -> bytes:
    """What a client of TLS sends at first, for which the server has to sign."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


#: More new connections than the event loop can accept beside everything else.
FLOODS = (
    Kind("a flood of connections", opened_per_s=3000, held_s=0.5),
    Kind("a flood of handshakes", target="tls", first=_hello(), opened_per_s=300, held_s=0.5),
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
    """A caller with a token. Every other request is on the connection of the one before, or all are."""

    def __init__(self, endpoints: Endpoints, target: str, *, keep_alive: bool = False) -> None:
        self._connection = connection_to(endpoints, target)
        self._keep_alive = keep_alive
        self._headers = {"authorization": f"Bearer {endpoints.server.token}"}
        self._calls = 0

    def __call__(self) -> int:
        self._connection.request("GET", "/trainshed/v1/server", headers=self._headers)
        response = self._connection.getresponse()
        response.read()
        self._calls += 1
        if self._calls % 2 == 0 and not self._keep_alive:
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
        """Return the status of the proxy."""
        with socket.create_connection(self._proxy, timeout=60) as client:
            client.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % self._upstream)
            return int(client.recv(65_536).split(b" ")[1])

    def close(self) -> None:
        """It keeps nothing open."""


Callers = list[ApiCaller | ProxyCaller]


def statuses_of(callers: Callers, *, calls: int) -> list[int]:
    """Let all call concurrently, and return the statuses."""

    def run(call: ApiCaller | ProxyCaller) -> list[int]:
        statuses = [call() for _ in range(calls)]
        call.close()
        return statuses

    with ThreadPoolExecutor(len(callers)) as pool:
        return [status for statuses in pool.map(run, callers) for status in statuses]


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
    sent = first.decode("latin-1"), kind.then.decode()
    return Attackers(Attack(host, port, number, *sent, opened_per_s=kind.opened_per_s, held_s=kind.held_s))


def callers(endpoints: Endpoints, kind: Kind) -> Callers:
    if kind.target == "proxy":
        return [ProxyCaller(endpoints), ApiCaller(endpoints, "http")]
    return [ApiCaller(endpoints, kind.target, keep_alive=kind.held_s > 0) for _ in range(2)]


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
            statuses = statuses_of(callers(endpoints, kind), calls=20)
        assert set(statuses) == {200}


@dataclass(frozen=True)
class Calls:
    """Calls to a server, while and while not it is attacked."""

    durations: list[float]
    statuses: list[int]

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.durations, n=100)[98]

    def __str__(self) -> str:
        others = sum(status != 200 for status in self.statuses)
        p50 = statistics.median(self.durations)
        return f"{len(self.statuses)} calls, {others} not 200, p50 {p50 * 1e3:.1f} ms, p99 {self.p99 * 1e3:.1f} ms"


def measure_beside(
    servers: tuple[Endpoints, Endpoints], kind: Kind, *, seconds: float, enough: Callable[[], bool] = lambda: True
) -> tuple[Calls, Calls]:
    """Call two servers in turn, so that both are measured in the same moments of a machine that others use too."""
    results = tuple(Calls([], []) for _ in servers)
    end = time.monotonic() + seconds

    def run(pair: tuple[ApiCaller | ProxyCaller, ...]) -> None:
        while time.monotonic() < end or not enough():
            for call, result in zip(pair, results, strict=True):
                started = time.perf_counter()
                result.statuses.append(call())
                result.durations.append(time.perf_counter() - started)
            time.sleep(0.002)
        for call in pair:
            call.close()

    pairs = list(zip(*(callers(server, kind) for server in servers), strict=True))
    with ThreadPoolExecutor(len(pairs)) as pool:
        for running in [pool.submit(run, pair) for pair in pairs]:
            running.result()
    return results[0], results[1]


@pytest.mark.fault("F60")
@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS + FLOODS, ids=lambda kind: kind.name)
def test_two_thousand_sockets_slow_nobody_down(tmp_path: Path, kind: Kind) -> None:
    """Callers wait at most three times as long as before and after the attack. Another server, which nobody attacks, is
    called in the same moments: it shows what the machine alone does to the figure.

    During a flood, callers that have a connection are measured.
    """
    began = time.monotonic()
    attacked_server, other_server = (RunningServer(tmp_path / name).start() for name in ("attacked", "other"))
    try:
        with endpoints_of(attacked_server) as attacked, endpoints_of(other_server) as other:
            servers = attacked, other
            quiet, _ = measure_beside(servers, kind, seconds=15)
            cpu_s = -cpu_time(attacked_server)
            with attackers(attacked, kind, 2000) as held:
                ramp = measure_beside(servers, kind, seconds=2, enough=lambda: held.opened >= 2000)
                during = measure_beside(servers, kind, seconds=40)
                opened, open_at_end = held.opened, held.held
            cpu_s += cpu_time(attacked_server)
            quiet_again, _ = measure_beside(servers, kind, seconds=15)
    finally:
        attacked_server.close()
        other_server.close()
    quiet = Calls(quiet.durations + quiet_again.durations, quiet.statuses + quiet_again.statuses)
    print(f"{kind.name}: {opened} sockets opened, {open_at_end} open at the end, {cpu_s:.1f} s of CPU time")
    print(f"  quiet: {quiet}")
    for name, (calls, beside) in (("ramp", ramp), ("attack", during)):
        ratios = f"{calls.p99 / quiet.p99:.2f} of quiet, {calls.p99 / beside.p99:.2f} of the other server"
        print(f"  {name}: {calls}; {ratios}")
    faults = sum(status >= 500 for status in (*ramp[0].statuses, *during[0].statuses))
    record("F60", case=kind.name, runs=1, counts={"5xx": faults}, hours=(time.monotonic() - began) / 3600)
    assert {*ramp[0].statuses, *during[0].statuses} == {200}
    for calls, _ in (ramp, during):
        assert calls.p99 < 3 * quiet.p99


def cpu_time(server: RunningServer) -> float:
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)


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
            local, own = list[socket.socket](), list[socket.socket]()
            for host, clients in (("127.0.0.1", local), (address, own)):
                for _ in range(most + 5):
                    client = stack.enter_context(socket.create_connection((host, port), timeout=60))
                    assert is_open(client)  # it is accepted and used before the next one
                    clients.append(client)
            assert {client.getsockname()[0] for client in own} == {address}
            closed = 0 if is_proxy else 5
            assert [is_open(client) for client in own] == [False] * closed + [True] * (most + 5 - closed)
            assert all(map(is_open, local))
    finally:
        assert server.close() == 0
