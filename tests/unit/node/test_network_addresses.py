"""Which addresses user code in a sandbox may reach."""

from __future__ import annotations

import asyncio
import socket

import pytest

from trainshed.node.connect import ConnectError
from trainshed.node.sandbox.network import outside
from trainshed.node.sandbox.network.outside import Outside, refusal


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1", "is this machine"),
        ("127.8.9.1", "is this machine"),
        ("0.0.0.0", "is this machine"),
        ("::1", "is this machine"),
        ("::", "is this machine"),
        ("::ffff:127.0.0.1", "is this machine"),
        ("2002:7f00:1::", "is this machine"),
        ("64:ff9b::7f00:1", "is this machine"),
        ("169.254.169.254", "is link-local"),
        ("::ffff:169.254.169.254", "is link-local"),
        ("64:ff9b::a9fe:a9fe", "is link-local"),
        ("fe80::1%lo", "is link-local"),
        ("fd00:ec2::254", "is a service of a cloud, which may have credentials of this machine"),
        ("fd00:0ec2:0:0::254", "is a service of a cloud, which may have credentials of this machine"),
        ("::ffff:168.63.129.16", "is a service of a cloud, which may have credentials of this machine"),
        ("224.0.0.1", "is no single machine"),
        ("ff02::1", "is no single machine"),
        ("255.255.255.255", "is no single machine"),
        ("192.0.2.9", "is a machine of the cluster"),
        ("::ffff:192.0.2.9", "is a machine of the cluster"),
        ("192.0.2.10", ""),
        ("2001:db8::1", ""),
    ],
)
def test_an_address_is_refused_for_a_reason(address: str, reason: str) -> None:
    assert refusal(address, frozenset({"192.0.2.9"})) == reason


def test_own_addresses_are_this_machine() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no other address than loopback")
        own = probe.getsockname()[0]
    assert refusal(own) == "is this machine"


def _outside(access: str) -> Outside:
    spec = {"access": access, "remedy": "Ask an owner.", "refused": [], "names": "storage[.]example", "proxy": 0}
    return Outside(spec)


def test_a_name_that_means_this_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConnectError, match="localhost can't be reached from a sandbox: it is this machine"):
        asyncio.run(_outside(outside.ALL).connect("localhost", 443))


def test_a_machine_s_proxy_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(ConnectError) as caught:
        asyncio.run(_outside(outside.ALL).connect("localhost", 443))
    assert caught.value.status == "403 Forbidden"


def test_only_the_names_of_storage_are_reached_by_google_storage() -> None:
    with pytest.raises(ConnectError, match=r"outside of this project's network\. Ask an owner"):
        asyncio.run(_outside(outside.GOOGLE_STORAGE).connect("example.com", 443))
