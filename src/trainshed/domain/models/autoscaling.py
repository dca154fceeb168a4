"""How many hosts a version has under load, between its limits, without I/O.

Load is the number of requests in flight: those that hosts work on and those that wait in their queues. More hosts are
wanted as soon as the load was high for a while, fewer only when it was low for much longer, so the number does not
flap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TARGET_IN_FLIGHT = 8  #: requests in flight for each host
SCALE_UP_AFTER_S = 10.0  #: for which the load must want more hosts at every moment
SCALE_DOWN_AFTER_S = 300.0  #: for which the load must want fewer hosts at every moment
SAMPLE_INTERVAL_S = 2.0  #: between two looks at the load
_RESERVE_DIVISOR = 8  #: the part of the machine's memory that no further host may use
_UNKNOWN_HOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRange:
    """The fewest and the most hosts of a version that is awake."""

    minimum: int
    maximum: int

    @property
    def scales(self) -> bool:
        return self.maximum > self.minimum

    def clamp(self, hosts: int) -> int:
        return min(max(hosts, self.minimum), self.maximum)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """What is observed of a version's hosts."""

    in_flight: int
    ready: int  #: hosts that can answer
    room: int  #: further hosts that fit into memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The decision for a version, and what it is made from. Immutable."""

    hosts: int = 0  #: how many are to run; the limits apply
    in_flight: int = 0
    waits_for_memory: bool = False  #: more hosts are wanted than fit
    wanted: tuple[tuple[float, int], ...] = ()  #: since when the load wanted so many, oldest first


def rescaled(scaling: Scaling, limits: HostRange, load: HostLoad, *, now_s: float) -> Scaling:
    """The decision after another look at the load.

    Grows to at most twice the number, only while all present hosts are ready, and by no more than fit into memory.
    """
    hosts = limits.clamp(scaling.hosts)
    wanted = _recent(scaling.wanted, now_s)
    now_wanted = limits.clamp(-(-load.in_flight // TARGET_IN_FLIGHT))
    if not wanted or wanted[-1][1] != now_wanted:
        wanted = (*wanted, (now_s, now_wanted))
    more = min(_during(wanted, now_s - SCALE_UP_AFTER_S), default=hosts)
    fewer = max(_during(wanted, now_s - SCALE_DOWN_AFTER_S), default=hosts)
    waits = False
    if more > hosts and load.ready >= hosts:
        target = min(more, 2 * hosts)
        waits = load.room < target - hosts
        hosts += min(target - hosts, load.room)
    elif fewer < hosts:
        hosts = limits.clamp(fewer)
    return Scaling(hosts=hosts, in_flight=load.in_flight, waits_for_memory=waits, wanted=wanted)


def hosts_that_fit(*, available_bytes: int, total_bytes: int, host_bytes: int) -> int:
    """How many further hosts fit into memory. `host_bytes` is what the largest present one uses; 0 if unknown."""
    free_bytes = available_bytes - total_bytes // _RESERVE_DIVISOR
    return max(0, free_bytes // (host_bytes or _UNKNOWN_HOST_BYTES))


def _recent(wanted: tuple[tuple[float, int], ...], now_s: float) -> tuple[tuple[float, int], ...]:
    """What still matters: the value at the beginning of the longest window, and the changes since."""
    older = sum(since_s <= now_s - SCALE_DOWN_AFTER_S for since_s, _ in wanted)
    return wanted[max(0, older - 1) :]


def _during(wanted: Sequence[tuple[float, int]], start_s: float) -> list[int]:
    """All numbers that the load wanted from `start_s` on. Empty if that is not known for so long."""
    if wanted[0][0] > start_s:
        return []
    before = [hosts for since_s, hosts in wanted if since_s <= start_s]
    return [before[-1], *(hosts for since_s, hosts in wanted if since_s > start_s)]
