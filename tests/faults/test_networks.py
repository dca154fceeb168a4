"""The network of a sandbox: what user code reaches, and that a gang still reaches itself. Real processes."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from trainshed.engines.base import Replica
from trainshed.testing.clusters.machines import Network, can_make_namespaces
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.cells import SYSTEM_PYTHON, USER, Cellblock, cellblock

IS_ROOT = os.geteuid() == 0
IDENTITIES = [
    pytest.param(0, id="root", marks=pytest.mark.skipif(not IS_ROOT, reason="needs root")),
    pytest.param(USER if IS_ROOT else os.geteuid(), id="user"),
]


@pytest.fixture(params=IDENTITIES)
def block(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cellblock]:
    """A state folder of root, and one of an ordinary user."""
    if request.param and IS_ROOT and not SYSTEM_PYTHON.exists():
        pytest.skip("an ordinary user has no Python here")
    with cellblock(tmp_path / "block", user=request.param if IS_ROOT else 0) as made:
        yield made


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "6")
        self.end_headers()
        self.wfile.write(b"secret")

    def log_message(self, *args: object) -> None:
        """Nothing."""


@contextmanager
def services() -> Iterator[tuple[int, int]]:
    """Two services of this machine, on all of its addresses: one that jobs may reach, and one that they may not."""
    servers = [ThreadingHTTPServer(("0.0.0.0", 0), _Answer) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield servers[0].server_port, servers[1].server_port
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def own_address() -> str:
    """An address of this machine that is not loopback, or loopback's if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


LOOK = """
import json, os, socket, sys, urllib.error, urllib.request

open_port, closed_port, own = json.loads(sys.argv[1])

def tried(function, *arguments):
    try:
        return function(*arguments)
    except urllib.error.HTTPError as exc:
        return exc.code
    except OSError:
        return "refused"

def connected(address, port):
    with socket.create_connection((address, port), 10) as connection:
        connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        data = b""
        while chunk := connection.recv(100):
            data += chunk
        return "secret" if data.endswith(b"secret") else "refused"

def asked(address, port):
    proxy = urllib.request.ProxyHandler({"http": os.environ["http_proxy"]})
    with urllib.request.build_opener(proxy).open("http://%s:%d/" % (address, port), timeout=20) as response:
        return response.read().decode()

def tunnelled(address, port):
    host, _, number = os.environ.get("https_proxy", "//127.0.0.1:9").partition("//")[2].partition(":")
    with socket.create_connection((host, int(number)), 10) as connection:
        connection.sendall(b"CONNECT %s:%d HTTP/1.1\\r\\n\\r\\n" % (address.encode(), port))
        return connection.recv(12).decode()

print("SEEN " + json.dumps({
    "server": tried(connected, "127.0.0.1", open_port),
    "loopback": tried(connected, "127.0.0.1", closed_port),
    "second loopback": tried(connected, "127.0.0.2", closed_port),
    "own": tried(connected, own, closed_port),
    "asked own": tried(asked, own, closed_port) if "http_proxy" in os.environ else None,
    "tunnels": [tried(tunnelled, each, closed_port) for each in (
        "127.0.0.1", "localhost", own, "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "2130706433",
    )],
    "interfaces": [name for _, name in socket.if_nameindex()],
    "proxies": sorted({value for name, value in os.environ.items() if name.lower() in ("http_proxy", "https_proxy")}),
}))
"""


@pytest.mark.fault("F69")
@pytest.mark.parametrize("access", ["none", "google-storage", "all"])
def test_a_network_has_nothing_of_the_machine_but_the_server(block: Cellblock, access: str) -> None:
    with services() as (server, other):
        spec = block.spec("look", LOOK, json.dumps([server, other, own_address()]))
        sandbox = block.sandbox("full", access, (server,) if access != "none" else ())
        lines = block.run(spec, "full", sandbox=sandbox)
    [line] = [line for line in lines if line.startswith("SEEN ")] or [""]
    assert line, lines
    seen = json.loads(line.removeprefix("SEEN "))
    closed = access == "none"
    assert seen == {
        "server": "refused" if closed else "secret",
        "loopback": "refused",
        "second loopback": "refused",
        "own": "refused",
        "asked own": None if closed else 403,
        "tunnels": ["refused" if closed else "HTTP/1.1 403"] * 8,
        "interfaces": ["lo"],
        "proxies": [] if closed else ["http://127.0.0.1:3128"],
    }
    assert any(line.startswith(f"Its network is '{access}'") for line in lines)


GANG = """
import os, socket, sys
port = int(sys.argv[1])
if os.environ["TRAINSHED_REPLICA"].startswith("master"):
    with socket.create_server(("127.0.0.1", port)) as listener:
        connection, _ = listener.accept()
        print("HEARD", connection.recv(100).decode(), flush=True)
        if sys.argv[2:]:
            connection.recv(1)
else:
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            pass
    connection.sendall(b"worker")
    print("SENT", flush=True)
    connection.recv(1)
"""


def test_a_gang_reaches_itself_and_no_other_gang(block: Cellblock) -> None:
    port = "21321"
    replicas = tuple(
        Replica(name=f"{kind}-replica-0", type=kind, index=0, primary=kind == "master") for kind in ("master", "worker")
    )
    first = replace(block.spec("first", GANG, port, "wait"), replicas=replicas)
    second = replace(block.spec("second", GANG, port), replicas=replicas)
    block.start(first, "full")
    eventually(lambda: block.lines(first), lambda lines: "SENT" in lines)
    assert "HEARD worker" in block.run(second, "full"), "the same port is free in another gang's network"
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", int(port))):
        pass


REACHES = """
import json, os, socket, sys, urllib.error, urllib.request
address, port = sys.argv[1], int(sys.argv[2])

def tried(function):
    try:
        return function()
    except OSError as exc:
        return "refused"

def connected():
    with socket.create_connection((address, port), 20) as connection:
        connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        return connection.makefile("rb").read()[-6:].decode()

def fetched():
    return urllib.request.urlopen("http://%s:%d/" % (address, port), timeout=20).status

print("SEEN", tried(connected), tried(fetched))
"""
SERVES = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"secret")

server = ThreadingHTTPServer(("0.0.0.0", 8080), Answer)
print("READY", flush=True)
server.serve_forever()
"""


@pytest.mark.skipif(not can_make_namespaces(), reason="needs root, for another machine")
def test_other_machines_are_reached_if_the_project_s_network_goes_so_far(block: Cellblock, tmp_path: Path) -> None:
    network = Network(tmp_path / "machines")
    try:
        machine = network.machine("far")
        machine.start([sys.executable, "-c", SERVES], tmp_path / "far.log")
        eventually(lambda: (tmp_path / "far.log").read_text(), lambda text: "READY" in text)
        seen = {}
        for access in ("none", "google-storage", "all"):
            spec = block.spec(f"reaches_{access.replace('-', '_')}", REACHES, machine.host, "8080")
            lines = block.run(spec, "full", sandbox=block.sandbox("full", access))
            seen[access] = next((line for line in lines if line.startswith("SEEN")), str(lines))
    finally:
        network.close()
    assert seen == {
        "none": "SEEN refused refused",
        "google-storage": "SEEN refused refused",
        "all": "SEEN secret 200",
    }


DIES_ONCE = """
import os, pathlib, signal, socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
    print("ANSWER", connection.recv(12).decode(), flush=True)
here = pathlib.Path("died")
if not here.exists():
    here.touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_replica_that_restarts_reaches_the_server_again(block: Cellblock) -> None:
    with services() as (server, _):
        spec = replace(block.spec("dies", DIES_ONCE, str(server)), backoff_factor=0.01)
        lines = block.run(spec, "full", sandbox=block.sandbox("full", "all", (server,)))
    assert lines.count("ANSWER HTTP/1.0 200") == 2, lines


def test_the_forwarder_ends_with_the_job(block: Cellblock) -> None:
    with services() as (server, _):
        spec = block.spec("ends", DIES_ONCE.replace("os.kill(", "print("), str(server))
        block.run(spec, "full", sandbox=block.sandbox("full", "all", (server,)))
        reaper = next(event["reaper"] for event in block.events(spec) if event["event"] == "supervisor_started")
        eventually(lambda: _processes_below(reaper), lambda pids: not pids)


def _processes_below(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid or folder.name == str(pid):
            found.append(int(folder.name))
    return found
