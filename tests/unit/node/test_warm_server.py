"""How long a warm process stays, by a clock that the test sets."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.node.process.tree import stat_fields
from trainshed.node.warm.process import WarmServer

IDLE_S = 1800.0


class Shed:
    """A warm process without modules, in this process, and its client."""

    def __init__(self, folder: Path, idle_s: float = IDLE_S) -> None:
        self.folder = folder
        self.now_s = 1000.0
        self.us = [os.getpid(), int(stat_fields(os.getpid())[19])]
        spec = {"server": self.us, "patience_s": 120.0, "idle_s": idle_s}
        self.server = WarmServer(str(folder), spec, start=lambda folder: 1, clock=lambda: self.now_s)

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(os.path.relpath(self.folder / "socket"))  # a socket's path is limited to 107 bytes
        return client

    def ask(self, do: str, **changes: Any) -> bool:
        """Send a request. Returns whether the process is to end."""
        request = {"do": do, "server": self.us, "idle_s": IDLE_S, **changes}
        with self.connect() as client:
            client.sendall(json.dumps(request).encode() + b"\n")
            return self.server.serve_one(1.0)


@pytest.fixture
def shed(tmp_path: Path) -> Iterator[Shed]:
    shed = Shed(tmp_path)
    yield shed
    shed.server.close()


def test_it_is_released_when_nothing_was_started_for_so_long(shed: Shed) -> None:
    shed.now_s += IDLE_S - 1
    assert shed.server.is_needed()
    shed.now_s += 1
    assert not shed.server.is_needed()


def test_only_use_puts_off_its_release(shed: Shed) -> None:
    shed.now_s += IDLE_S - 1
    shed.ask("keep")
    shed.now_s += IDLE_S - 1
    assert shed.server.is_needed()
    shed.ask("hello")
    shed.now_s += 1
    assert not shed.server.is_needed()


def test_the_time_is_that_of_its_present_server(shed: Shed) -> None:
    shed.ask("hello", idle_s=10.0)
    shed.now_s += 10
    assert not shed.server.is_needed()
    shed.ask("hello", idle_s=0.0)
    shed.now_s += 100 * IDLE_S
    assert shed.server.is_needed(), "0 keeps it"


def test_who_connected_before_it_closes_is_served(shed: Shed) -> None:
    request = {"do": "hello", "server": shed.us, "idle_s": IDLE_S}
    with shed.connect() as client:
        client.sendall(json.dumps(request).encode() + b"\n")
        shed.server.close()
        client.settimeout(5.0)
        assert client.recv(16) == b"\0000"
    assert not (shed.folder / "socket").exists()
    shed.server = Shed(shed.folder).server  # for the fixture to close
