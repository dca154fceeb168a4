"""Clients that send too much of a head, or nothing, or take nothing, are let go."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from trainshed.api import uvicorn_adapter
from trainshed.testing.processes.servers import Caller, RunningServer


@contextlib.contextmanager
def connected(server: RunningServer) -> Iterator[socket.socket]:
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=150) as client:
        yield client


def answer(client: socket.socket) -> bytes:
    """Everything until the server closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(65_536):
            received += piece
    return received


def send_all(client: socket.socket, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.sendall(data)


@pytest.mark.fault("F61")
def test_a_head_without_end_is_cut_off(server: RunningServer) -> None:
    with connected(server) as client:
        send_all(
            client, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * (4 * uvicorn_adapter.MAX_HEADERS_BYTES)
        )
        said = answer(client)  # nothing, if the reset overtook it
        assert said == b"" or said.startswith(b"HTTP/1.1 431")
    assert Caller(server.url)("GET", "/healthz")[0] == 200


@pytest.mark.fault("F61")
def test_too_many_headers_are_refused(server: RunningServer) -> None:
    headers = b"".join(b"x%d: y\r\n" % number for number in range(uvicorn_adapter.MAX_HEADERS + 1))
    with connected(server) as client:
        send_all(client, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + headers + b"\r\n")
        assert answer(client).startswith(b"HTTP/1.1 400")


def test_a_body_larger_than_a_head_may_be_arrives_whole(server: RunningServer) -> None:
    body = b" " * (4 * uvicorn_adapter.MAX_HEADERS_BYTES)
    status, _ = Caller(server.url)("POST", "/trainshed/v1/tokens", token=server.token, body=body)
    assert status == 400  # blank: no user name, but read to its end


@pytest.mark.fault("F60")
@pytest.mark.soak  # tests/unit/api/test_uvicorn_adapter.py has the same with short timeouts
def test_clients_that_go_silent_are_let_go(server: RunningServer) -> None:
    head = f"POST /trainshed/v1/tokens HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {server.token}\r\n"
    stalled = f"{head}content-length: 100\r\n\r\n{{".encode()
    with connected(server) as mute, connected(server) as halfway, connected(server) as stopped:
        halfway.sendall(b"GET /healthz HTTP/1.1\r\nhost: loc")
        stopped.sendall(stalled)
        assert answer(mute) == b""
        assert answer(halfway) == b""
        assert b" 200 " not in answer(stopped)
