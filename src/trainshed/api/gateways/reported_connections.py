"""The open connections of a gateway process, reported to the server: limits of an address are of all processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trainshed.api.gateways.messages import OpenConnections
from trainshed.connections import Connection, Connections, ExemptAddresses


class ReportedConnections(Connections):
    """Reports its numbers once in each iteration of the event loop that changes them."""

    def __init__(
        self,
        *,
        maximum: int,
        per_address: int,
        exempt: ExemptAddresses,
        report: Callable[[OpenConnections], None],
    ) -> None:
        super().__init__(maximum=maximum, per_address=per_address, exempt=exempt)
        self._report = report
        self._changed: set[str] = set()
        self._reported: dict[str, int] = {}
        self._last = 0, 0  #: connections and closings, as reported
        self._closings = 0
        self._is_due = False

    def add(self, connection: Connection, address: str) -> bool:
        added = super().add(connection, address)
        self._note(address)
        return added

    def remove(self, connection: Connection) -> None:
        address = self._address_of.get(connection, "")
        super().remove(connection)
        self._note(address)

    def close(self, address: str, number: int) -> None:
        super().close(address, number)
        self._closings += 1  # which is reported even if there was nothing to close
        self._note(address)

    def _note(self, address: str) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)
        self._changed.add(address)

    def _send(self) -> None:
        changed, self._changed, self._is_due = self._changed, set(), False
        numbers = {address: self.count(address) for address in changed if address}
        different = {each: number for each, number in numbers.items() if number != self._reported.get(each, 0)}
        if not different and (len(self), self._closings) == self._last:
            return
        self._last = len(self), self._closings
        self._reported = {each: number for each, number in (self._reported | different).items() if number}
        self._report(OpenConnections(len(self), different, self._closings))
