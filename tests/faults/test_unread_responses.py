"""Clients that ask for much and read nothing: the server's memory stays bounded, and others get what they ask for."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import select
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from trainshed.testing.processes.servers import RunningServer

PROJECT = BUCKET = "unread"
LIMIT_MB = 16
SLACK_MB = 70  #: what else the server takes for so many connections; without a limit it grew by 126 and 198 MB
CLIENTS = 60
LARGE = os.urandom(1 << 20) * 8
OBJECT = f"/storage/v1/b/{BUCKET}/o/large?alt=media"  #: is read and sent in pieces
LIST = f"/storage/v1/b/{BUCKET}/o?prefix=many/"  #: is in memory as a whole, about 1 MB


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with little memory for unread responses."""
    home = tmp_path_factory.mktemp("unread") / "home"
    server = RunningServer(home, {"unread_limit_mb": LIMIT_MB}).start()
    server.call("POST", f"/storage/v1/b?project={PROJECT}", {"name": BUCKET})
    (home / "buckets" / BUCKET / "large").write_bytes(LARGE)
    many = home / "buckets" / BUCKET / "many"
    many.mkdir()
    for number in range(1000):
        (many / f"{number}-{'x' * 150}").touch()
    yield server
    assert server.close() == 0


@contextlib.contextmanager
def asking(server: RunningServer, path: str, *, secure: bool, times: int = 1) -> Iterator[socket.socket]:
    """A connection that asks for something and reads nothing."""
    address = urlsplit(server.info["tls_url"] if secure else server.url)
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.settimeout(110)
        plain.connect((address.hostname, address.port))
        client = plain
        if secure:
            context = ssl.create_default_context(cafile=str(server.authority))
            client = context.wrap_socket(plain, server_hostname=address.hostname)
        with client:
            request = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {server.token}\r\n\r\n"
            client.sendall(request.encode() * times)
            yield client


def get(server: RunningServer, path: str, *, secure: bool) -> tuple[int, bytes]:
    url = urlsplit(server.info["tls_url"] if secure else server.url)
    if secure:
        context = ssl.create_default_context(cafile=str(server.authority))
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(url.netloc, timeout=110, context=context)
    else:
        connection = http.client.HTTPConnection(url.netloc, timeout=110)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"authorization": f"Bearer {server.token}"})
        response = connection.getresponse()
        return response.status, response.read()


@pytest.mark.fault("F57")
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(("path", "times"), [(OBJECT, 1), (LIST, 8)], ids=["in pieces", "whole and pipelined"])
def test_unread_responses_need_bounded_memory(small: RunningServer, path: str, times: int, secure: bool) -> None:
    process = psutil.Process(small.pid)
    get(small, path, secure=secure)
    before, logged = process.memory_info().rss, len(small.log.read_text())
    most = before
    with contextlib.ExitStack() as stack:
        for _ in range(CLIENTS):
            client = stack.enter_context(asking(small, path, secure=secure, times=times))
            select.select([client], [], [], 110)  # its response has begun
            most = max(most, process.memory_info().rss)
        for _ in range(2):
            status, body = get(small, OBJECT, secure=secure)
            assert (status, hashlib.sha256(body).digest()) == (200, hashlib.sha256(LARGE).digest())
            assert get(small, LIST, secure=secure)[0] == 200
            most = max(most, process.memory_info().rss)
    assert most - before < (LIMIT_MB + SLACK_MB) << 20
    if path == LIST:  # what is read in pieces takes less memory first
        assert "did not read" in small.log.read_text()[logged:]


def test_a_client_that_reads_late_gets_all_of_its_pipelined_responses(server: RunningServer) -> None:
    """The next request begins when the responses before it are nearly read."""
    server.call("POST", f"/storage/v1/b?project={PROJECT}", {"name": f"{BUCKET}-late"})
    folder = Path(server.info["home"]) / "buckets" / f"{BUCKET}-late"
    (folder / "large").write_bytes(LARGE)
    for secure in (False, True):
        with asking(server, f"/storage/v1/b/{BUCKET}-late/o/large?alt=media", secure=secure, times=3) as client:
            select.select([client], [], [], 110)
            with client.makefile("rb") as file:
                for _ in range(3):
                    headers = b"".join(iter(file.readline, b"\r\n"))
                    assert headers.startswith(b"HTTP/1.1 200 ")
                    assert file.read(len(LARGE)) == LARGE
