"""The relay on a machine of a cluster: Google's names to the server, others as they are, and to nobody but loopback."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from trainshed.node.process.tree import stat_fields
from trainshed.node.remote.sidecar_proxy import SidecarProxy
from trainshed.node.remote.tunnels import EgressRoutes
from trainshed.proxy.google_hosts import PATTERN, served_name
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.resources import held_port

WAIT_S = 90


@contextmanager
def saying(word: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that says a word and then everything that it hears; what it heard is kept."""
    heard: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.sendall(word)
            while data := connection.recv(65_536):
                heard.append(data)
                connection.sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1], heard
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(WAIT_S)


@contextmanager
def relaying(port: int) -> Iterator[tuple[SidecarProxy, list[int]]]:
    """A relay that leads to a server on that port, and the pids of its processes, which are ended."""
    relay = SidecarProxy({"host": "127.0.0.1", "port": port, "names": PATTERN})
    pids = [relay.start()]
    try:
        yield relay, pids
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        relay.close()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a proxy of its own."""
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def connected(relay: SidecarProxy) -> socket.socket:
    host, _, port = relay.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def everything(connection: socket.socket) -> bytes:
    parts = []
    while data := connection.recv(65_536):
        parts.append(data)
    return b"".join(parts)


def through(relay: SidecarProxy, place: str, text: bytes = b"hello") -> bytes:
    """What comes back through the relay when a place is asked for, after the text was said."""
    with connected(relay) as connection:
        connection.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
        first = connection.recv(1000)
        if not first.startswith(b"HTTP/1.1 200 "):
            return first + everything(connection)
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)
        return first.partition(b"\r\n\r\n")[2] + everything(connection)


@pytest.mark.parametrize(
    "name",
    [
        *("storage.googleapis.com", "STORAGE.googleapis.com", "www.googleapis.com", "oauth2.googleapis.com"),
        *("ml.googleapis.com", "us-central1-ml.googleapis.com", "logging.googleapis.com", "googleapis.com"),
        *("storage.googleapis.com.evil.example", "xstorage.googleapis.com", "us-central1-ml-googleapis.com", ""),
    ],
)
def test_the_relay_leads_the_names_that_the_server_answers_for(name: str) -> None:
    routes = EgressRoutes({"host": "server", "port": 8471, "names": PATTERN}, {})
    assert routes.is_intercepted(name, 443) == (served_name(name) is not None)
    assert not routes.is_intercepted(name, 444)


@pytest.mark.usefixtures("alone")
def test_googles_names_lead_to_the_server_and_others_where_they_are() -> None:
    with saying(b"server: ") as (ours, _), saying(b"other: ") as (theirs, _), relaying(ours) as (relay, _):
        assert through(relay, "storage.googleapis.com:443") == b"server: hello"
        assert through(relay, f"localhost:{theirs}") == b"other: hello"
        large = os.urandom(3 << 20)
        assert through(relay, "www.googleapis.com:443", large[: 1 << 18]) == b"server: " + large[: 1 << 18]


@pytest.mark.usefixtures("alone")
def test_garbage_and_absent_hosts_are_told_of() -> None:
    with saying(b"") as (ours, _), relaying(ours) as (relay, _):
        for text, wanted in (
            (b"GET http://example.com/ HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
            (b"CONNECT example.com:0 HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
            (b"CONNECT me@example.com:443 HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
            (b"CONNECT a:1 HTTP/1.1\r\nX: " + b"x" * 70_000, b"HTTP/1.1 431 "),
        ):
            with connected(relay) as connection:
                connection.sendall(text)
                with suppress(ConnectionResetError):  # it does not read to the end what is too long
                    assert connection.recv(1000).startswith(wanted)
        with held_port() as port:
            assert through(relay, f"127.0.0.1:{port}").startswith(b"HTTP/1.1 502 ")


@pytest.mark.usefixtures("alone")
def test_a_server_that_is_started_again_is_waited_for() -> None:
    answers: list[bytes] = []
    with held_port() as port, relaying(port) as (relay, _):
        asking = threading.Thread(target=lambda: answers.append(through(relay, "ml.googleapis.com:443")))
        asking.start()
        time.sleep(0.2)
        with socket.create_server(("127.0.0.1", port)) as listener:
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(100) == b"hello"
                connection.sendall(b"back")
        asking.join(WAIT_S)
    assert answers == [b"back"]


def test_the_machines_own_proxy_is_used_for_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with saying(b"HTTP/1.1 200 OK\r\n\r\n") as (gate, heard), saying(b"direct: ") as (ours, _):
        monkeypatch.setenv("https_proxy", f"http://me:secret@127.0.0.1:{gate}")
        monkeypatch.setenv("no_proxy", "localhost, .inside.example")
        with relaying(ours) as (relay, _):
            assert through(relay, "example.com:443").endswith(b"hello")
            assert through(relay, "storage.googleapis.com:443") == b"direct: hello"
            assert through(relay, f"localhost:{ours}") == b"direct: hello"
    pair = base64.b64encode(b"me:secret").decode()
    assert heard[0].startswith(b"CONNECT example.com:443 HTTP/1.1\r\n")
    assert f"Proxy-Authorization: Basic {pair}\r\n".encode() in heard[0]
    assert b"".join(heard).count(b"CONNECT") == 1


@pytest.mark.usefixtures("alone")
def test_one_that_was_killed_goes_on_at_the_same_address() -> None:
    with saying(b"server: ") as (ours, _), relaying(ours) as (relay, pids):
        before = relay.address
        assert through(relay, "storage.googleapis.com:443") == b"server: hello"
        os.kill(pids[0], signal.SIGKILL)
        os.waitpid(pids[0], 0)
        pids[:] = [relay.start()]
        assert relay.address == before
        assert through(relay, "storage.googleapis.com:443") == b"server: hello"


ORPHAN = """
import sys
from trainshed.node.process.tree import stat_fields
from trainshed.node.remote.sidecar_proxy import SidecarProxy
relay = SidecarProxy({"host": "127.0.0.1", "port": 1, "names": "x"})
print(relay.address, relay.start(), flush=True)
sys.stdin.read()
"""


def test_it_listens_on_loopback_alone_and_ends_with_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    address, pid = parent.stdout.readline().split()
    assert address.startswith("127.0.0.1:")
    parent.kill()
    parent.communicate(timeout=WAIT_S)
    eventually(lambda: stat_fields(int(pid))[:1], lambda state: state in ([], [b"Z"]))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=WAIT_S)
