"""The hosts of one version: as many as it shall have, the dead ones replaced, all of them gone while it sleeps."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trainshed.control.deployments.provisioner import HostResources
from trainshed.domain.models import hosting as rules
from trainshed.domain.models.hosting import CrashHistory, ServingState
from trainshed.domain.models.version import Version
from trainshed.domain.times import now_us
from trainshed.engines.hosts.base import HostEngine
from trainshed.engines.hosts.spec import HostSpec
from trainshed.engines.hosts.watcher import HostPhase, HostStatus
from trainshed.errors import EngineUnavailableError
from trainshed.gateway.routes import HostAddress

LOG = logging.getLogger("trainshed.control.deployments.fleet")


@dataclass(slots=True)
class Fleet:
    """Used by one thread at a time. `spec` is that of the first host; None until it is known."""

    hosts: HostEngine
    room: HostResources
    sleep_after_s: float
    awake: bool
    spec: HostSpec | None = None
    keys: dict[int, str] = field(default_factory=dict)  #: by number
    reason: str = ""  #: why the last host ended
    roused: bool = False  #: a request asked for it, and it has not been ready since
    clock: Callable[[], float] = time.monotonic
    _shares: dict[str, int] = field(default_factory=dict)  #: by key: as one of how many a host was started
    _successor: tuple[int, str] | None = None  #: number and key of a host that will take another one's place
    _deaths: CrashHistory = field(default_factory=CrashHistory)
    _awake_since_us: int = field(default_factory=now_us)
    _told: object = None

    def adopt(self, spec: HostSpec, key: str, *, hosts: int) -> None:
        """The first host, which was started as one of so many while the version was created."""
        self.spec, self.keys, self._shares = spec, {0: key}, {key: hosts}

    def activate(self) -> None:
        """A request waits for it."""
        if not self.awake:
            self.awake, self.roused, self._awake_since_us = True, True, now_us()

    def failed(self, reason: str) -> None:
        """What a host needs can't be had. Counts as if one had died."""
        self.reason = reason
        self._deaths = self._deaths.after(now_s=self.clock(), lived_s=0.0)

    def may_start(self) -> bool:
        return self.clock() >= self._deaths.next_s

    def reconcile(self, version: Version, *, last_used_us: int) -> list[str]:
        """One look: bury the dead, start what is missing. Returns the hosts there are too many, which are let go of."""
        self._bury()
        if self._ready():
            if (left := self._deaths.after_ready(now_s=self.clock())) != self._deaths:
                self._deaths, self.reason = left, ""
            if self.roused:
                self.roused, self._awake_since_us = False, now_us()
        if not self.roused and rules.should_sleep(
            version.nodes,
            last_used_us=last_used_us,
            awake_since_us=self._awake_since_us,
            now_us=now_us(),
            sleep_after_s=self.sleep_after_s,
        ):
            self.awake = False
        wanted = self._wanted(version)
        surplus = [self.keys.pop(number) for number in sorted(self.keys) if number >= wanted]
        surplus += self._renewed(wanted)
        if self.spec is not None and self.may_start():
            for number in range(wanted):
                if number not in self.keys and (key := self._start(self.spec, number, wanted)):
                    self.keys[number] = key
        return surplus

    def all_keys(self) -> list[str]:
        """Of all hosts there are, also of those that requests do not go to yet."""
        return [*self.keys.values(), *(() if self._successor is None else (self._successor[1],))]

    def _renewed(self, wanted: int) -> list[str]:
        """Replace hosts that were started as one of more, or fewer, and so have another share of the machine: one at a
        time, each when the new one is ready. Returns those to let go of.
        """
        if self._successor is not None:
            return self._succeeded(*self._successor, wanted)
        stale = [number for number, key in sorted(self.keys.items()) if self._shares.get(key, wanted) != wanted]
        if self.spec is None or self.spec.alone:
            return []
        if stale and self.may_start() and len(self._ready()) == wanted:
            key = self._start(self.spec, stale[0], wanted)
            self._successor = (stale[0], key) if key else None
        return []

    def _succeeded(self, number: int, key: str, wanted: int) -> list[str]:
        """As `_renewed`, with a new host on its way."""
        seen = self.hosts.status(key)
        if number >= wanted or self._shares.get(key) != wanted:
            self._successor = None
            return [key]
        if seen is None or seen.phase is HostPhase.ENDED:
            self._successor = None
            self.failed(seen.message if seen is not None else "The host is gone.")
            self.hosts.forget(key)
        elif seen.phase is HostPhase.READY:
            self._successor = None
            old, self.keys[number] = self.keys.get(number), key
            return [old] if old is not None else []
        return []

    def serving_state(self, version: Version) -> ServingState:
        return rules.serving_state(
            ready=len(self._ready()),
            wanted=self._wanted(version),
            roused=self.roused,
            unhealthy=self._deaths.unhealthy,
        )

    def converged(self, version: Version) -> bool:
        """Whether there are as many hosts as there shall be, or trying on will not help soon."""
        return len(self._ready()) >= self._wanted(version) or self._deaths.unhealthy

    def addresses(self) -> tuple[HostAddress, ...]:
        return tuple(HostAddress(socket=seen.socket, key=key, endpoint=seen.endpoint) for key, seen in self._ready())

    def take_change(self, version: Version) -> bool:
        """Whether requests meet something else than at the last call."""
        news = (self.serving_state(version), self.addresses(), self.reason, version.generation)
        changed, self._told = news != self._told, news
        return changed

    def next_reconcile_s(self, version: Version) -> float:
        """Seconds until something may have to be done though nothing happens."""
        starting = any(seen.phase is HostPhase.STARTING for _, seen in self._seen())
        pause_s = 1.0 if starting else self.sleep_after_s / 4 if version.nodes == 0 and self.awake else 60.0
        if len(self.keys) < self._wanted(version):
            pause_s = min(pause_s, self._deaths.next_s - self.clock())
        return max(pause_s, 0.01)

    def _wanted(self, version: Version) -> int:
        return rules.desired_hosts(version.nodes, awake=self.awake)

    def _seen(self) -> list[tuple[str, HostStatus]]:
        seen = [(key, self.hosts.status(key)) for _, key in sorted(self.keys.items())]
        return [(key, sighting) for key, sighting in seen if sighting is not None]

    def _ready(self) -> list[tuple[str, HostStatus]]:
        return [(key, seen) for key, seen in self._seen() if seen.phase is HostPhase.READY]

    def _start(self, spec: HostSpec, number: int, wanted: int) -> str:
        """A host, as one of so many; its key, empty if it can't be started."""
        try:
            key = self.hosts.start(self.room.shared(replace(spec, instance=number), wanted))
        except EngineUnavailableError as exc:
            self.failed(str(exc))
            return ""
        living = self.all_keys()
        self._shares = {each: share for each, share in self._shares.items() if each in living} | {key: wanted}
        return key

    def _bury(self) -> None:
        for number, key in tuple(self.keys.items()):
            seen = self.hosts.status(key)
            if seen is None or seen.phase is HostPhase.ENDED:
                self.reason = seen.message if seen is not None else "The host is gone."
                lived_s = self.clock() - seen.started_s if seen is not None else 0.0
                self._deaths = self._deaths.after(now_s=self.clock(), lived_s=lived_s)
                LOG.warning("host.died key=%s lived_s=%.1f reason=%r", key, lived_s, self.reason[:500])
                del self.keys[number]
                self.hosts.forget(key)
            elif why := seen.too_slow(self.room.load_timeout_s, self.clock()):
                self.hosts.kill(key, reason=why)
