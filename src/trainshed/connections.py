"""Bounds on open connections, kept by closing the one that is idle the longest.

A connection costs a file descriptor and little else, so a new client is let in and an idle one makes room for it.
Unauthenticated ones make room before others do.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Protocol

from trainshed.errors import CannotProceedError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

DEFAULT_MAX = 4000


class Connection(Protocol):
    """An open connection, from its acceptance on."""

    @property
    def is_idle(self) -> bool:
        """Whether it can be closed without a loss for a client that behaves."""

    def evict(self) -> None:
        """Close it at once."""


class ExemptAddresses:
    """Loopback and named reverse proxies: many clients share such an address."""

    def __init__(self, names: str = "") -> None:
        """From addresses and networks, separated by commas. Raises `ValueError` for anything else."""
        self._networks = tuple(ipaddress.ip_network(name.strip()) for name in names.split(",") if name.strip())

    def __contains__(self, address: object) -> bool:
        try:
            parsed = ipaddress.ip_address(str(address))
        except ValueError:  # a Unix socket has none
            return True
        if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        return parsed.is_loopback or any(parsed in network for network in self._networks)


class _LeastRecentlyUsed:
    """Connections in the order of their last use, unauthenticated ones apart."""

    def __init__(self) -> None:
        self._unauthenticated: dict[Connection, None] = {}
        self._authenticated: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._unauthenticated) + len(self._authenticated)

    def add(self, connection: Connection) -> None:
        self._unauthenticated[connection] = None

    def remove(self, connection: Connection) -> None:
        self._unauthenticated.pop(connection, None)
        self._authenticated.pop(connection, None)

    def use(self, connection: Connection) -> None:
        for group in (self._unauthenticated, self._authenticated):
            if connection in group:
                group[connection] = group.pop(connection)

    def set_authenticated(self, connection: Connection) -> None:
        if connection in self._unauthenticated:
            self._authenticated[connection] = self._unauthenticated.pop(connection)

    def newest(self) -> Connection | None:
        return next(reversed(self._unauthenticated or self._authenticated), None)

    def longest_idle(self) -> Connection | None:
        for group in (self._unauthenticated, self._authenticated):
            for connection in group:
                if connection.is_idle:
                    return connection
        return None


def check_exempt_addresses(names: str) -> None:
    """Raises `CannotProceedError` if these are not addresses and networks, separated by commas."""
    try:
        ExemptAddresses(names)
    except ValueError as exc:
        raise CannotProceedError(
            f"The setting reverse_proxies is {names!r}: {exc}. It must be addresses or networks, separated by commas, "
            f"such as 10.0.0.7, 10.1.0.0/16."
        ) from exc


class Connections:
    """The open connections of some listeners."""

    def __init__(
        self, *, maximum: int = DEFAULT_MAX, per_address: int = DEFAULT_MAX, exempt: ExemptAddresses | None = None
    ) -> None:
        self._maximum = maximum
        self._per_address = per_address
        self._exempt = exempt or ExemptAddresses()
        self._all = _LeastRecentlyUsed()
        self._addresses: dict[str, _LeastRecentlyUsed] = {}
        self._address_of: dict[Connection, str] = {}  #: of those that are not exempt
        self._elsewhere: Callable[[str], int] = lambda address: 0

    def also_count(self, elsewhere: Callable[[str], int]) -> None:
        """Let `excess` count other processes too: `elsewhere` returns their connections of an address, all without."""
        self._elsewhere = elsewhere

    def count(self, address: str = "") -> int:
        """Return the number of connections of an address that is not exempt; of all without an address."""
        return len(self._addresses.get(address, ())) if address else len(self._all)

    def excess(self, address: str = "") -> int:
        """Return how many connections there are beyond the limit, with those of other processes."""
        limit = self._per_address if address else self._maximum
        return self.count(address) + self._elsewhere(address) - limit

    def close(self, address: str, number: int) -> None:
        """Close those that are idle the longest, and the newest ones if none is idle; of all without an address."""
        for _ in range(number):
            group = self._addresses.get(address) if address else self._all
            connection = None if group is None else group.longest_idle() or group.newest()
            if connection is None:
                return
            self.remove(connection)
            connection.evict()

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection, address: str) -> bool:
        """Add a new connection, not authenticated yet. Returns False if it is full and no connection is idle."""
        if not self._make_room(self._all, self._maximum):
            return False
        if address not in self._exempt:
            of_address = self._addresses.setdefault(address, _LeastRecentlyUsed())
            if not self._make_room(of_address, self._per_address):
                return False
            self._addresses.setdefault(address, of_address).add(connection)
            self._address_of[connection] = address
        self._all.add(connection)
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed, or that another one represents from now on. Idempotent."""
        self._all.remove(connection)
        address = self._address_of.pop(connection, None)
        if address is not None:
            of_address = self._addresses[address]
            of_address.remove(connection)
            if not of_address:
                del self._addresses[address]

    def use(self, connection: Connection) -> None:
        """Note that a connection does something now."""
        for group in self._groups(connection):
            group.use(connection)

    def set_authenticated(self, connection: Connection) -> None:
        """Note that the client has shown a token."""
        for group in self._groups(connection):
            group.set_authenticated(connection)

    def _groups(self, connection: Connection) -> tuple[_LeastRecentlyUsed, ...]:
        address = self._address_of.get(connection)
        return (self._all,) if address is None else (self._all, self._addresses[address])

    def _make_room(self, group: _LeastRecentlyUsed, maximum: int) -> bool:
        while len(group) >= maximum:
            oldest = group.longest_idle()
            if oldest is None:
                return False
            self.remove(oldest)
            oldest.evict()
        return True


def address_of(transport: asyncio.BaseTransport) -> str:
    """Return the address of the client. Returns "" for a Unix socket."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""
