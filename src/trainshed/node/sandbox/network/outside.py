"""Which addresses user code may reach: those outside of this machine, checked after a name was looked up.

The forwarder connects to the very address that was checked, so a name that changes its meaning leads nowhere else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket

from ...connect import CONNECT_TIMEOUT_S, HTTPS_PORT, ConnectError, Egress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

    from ...connect import Streams

    Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]

NONE, GOOGLE_STORAGE, ALL = "none", "google-storage", "all"
_ANY_PORT = 9  #: nothing is sent to it
#: where clouds give out credentials of machines, besides link-local addresses: EC2 by IPv6, Azure, Alibaba
_OF_CLOUDS = frozenset(("fd00:ec2::254", "168.63.129.16", "100.100.100.200"))


def refusal(address: str, refused: frozenset[str] = frozenset()) -> str:
    """Why an address of the network can't be reached by user code. Empty if it can."""
    known: Address = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(known, ipaddress.IPv6Address):
        inner = known.ipv4_mapped or known.sixtofour or _translated(known)
        known = inner or known
    if known.is_loopback or known.is_unspecified:
        return "is this machine"
    if known.is_link_local:
        return "is link-local"
    if str(known) in _OF_CLOUDS:
        return "is a service of a cloud, which may have credentials of this machine"
    if known.is_multicast or known == ipaddress.ip_address("255.255.255.255"):
        return "is no single machine"
    if str(known) in refused:
        return "is a machine of the cluster"
    return "is this machine" if _is_own(known) else ""


def _translated(address: ipaddress.IPv6Address) -> Union[ipaddress.IPv4Address, None]:
    """The address that a gateway between both kinds of networks would connect to."""
    prefix = ipaddress.IPv6Network("64:ff9b::/96")
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in prefix else None


def _is_own(address: Address) -> bool:
    """Whether it is an address of this machine: the kernel would reach it from itself. Sends nothing."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), _ANY_PORT))
        except OSError:
            return False  # it can't be reached at all
        return bool(ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]) == address)


class Outside:
    """Connections out of a sandbox, as far as the network of its project goes."""

    def __init__(self, spec: dict[str, Any]) -> None:
        """From the part of a spec file about the network."""
        self._access = spec["access"]
        self._remedy = spec["remedy"]
        self._refused = frozenset(spec["refused"])
        self._names = re.compile(spec["names"])
        self._hosts = {(host, port) for host, port in spec.get("hosts", ())}
        self._interception = Egress("http://127.0.0.1:%d" % spec["proxy"]) if spec["proxy"] else None
        self._proxies = {
            443: _egress(os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY") or ""),
            80: _egress(os.environ.get("http_proxy") or ""),
        }

    async def connect(self, host: str, port: int) -> Streams:
        """Connect to a host by its name or address. Raises `ConnectError`, with the reason, if that is not allowed."""
        if (host.lower(), port) in self._hosts:  # named by who runs the server, so any address is right
            return await self._egress(port).connect(host, port)
        if port == HTTPS_PORT and self._names.fullmatch(host.lower()):
            if self._interception is not None:
                return await self._interception.connect(host, port)
            return await self._connect_directly(host, port)
        if self._access != ALL:
            raise ConnectError(
                "403 Forbidden", "%s:%d is outside of this project's network. %s" % (host, port, self._remedy)
            )
        return await self._connect_directly(host, port)

    async def connect_to_address(self, address: str, port: int) -> Streams:
        """Connect to an address that a program chose itself."""
        return await self._connect_directly(address, port)

    async def _connect_directly(self, host: str, port: int) -> Streams:
        egress = self._egress(port)
        if egress.proxy_for(host) is not None:
            await self._checked(host, port, must_exist=False)
            return await egress.connect(host, port)
        return await egress.connect(await self._checked(host, port), port)

    def _egress(self, port: int) -> Egress:
        return self._proxies[80 if port == 80 else 443]

    async def _checked(self, host: str, port: int, must_exist: bool = True) -> str:
        """The first address of a host that is allowed."""
        loop = asyncio.get_event_loop()
        looking = loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        try:
            found = await asyncio.wait_for(looking, CONNECT_TIMEOUT_S)
        except (OSError, UnicodeError, asyncio.TimeoutError) as exc:
            if not must_exist:
                return host  # the machine's proxy knows names that the machine does not
            raise ConnectError("502 Bad Gateway", "%s is not known: %s." % (host, exc)) from exc
        reason = ""
        for address in [str(each[4][0]) for each in found]:
            refused = refusal(address, self._refused)
            if not refused:
                return address
            reason = reason or refused
        raise ConnectError("403 Forbidden", "%s can't be reached from a sandbox: it %s." % (host, reason))


def _egress(proxy: str) -> Egress:
    bypass = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    try:
        return Egress(proxy, bypass)
    except ValueError:  # a proxy of another kind is no use to a tunnel
        return Egress()
