"""Free ports, and ports that are held for a replica."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from trainshed.node.process.ports import free_ports, reserve_known_port, reserve_port


def test_ports_differ() -> None:
    assert len(set(free_ports(30))) == 30


def test_ports_are_not_those_that_the_kernel_gives_to_others() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 < port < first for port in free_ports(30))


def test_a_port_is_held_until_it_is_let_go() -> None:
    with reserve_port("127.0.0.1") as held:
        port = held.getsockname()[1]
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
    reserve_known_port("127.0.0.1", port).close()


def test_a_host_that_is_not_this_machine_is_refused_with_its_own_reason() -> None:
    with pytest.raises(OSError, match="assign requested address"):
        reserve_port("192.0.2.1")
