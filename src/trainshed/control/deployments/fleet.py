"""The fleet: all hosts of one version. Starts missing ones, replaces exited ones, scales, and has none while asleep."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trainshed.control.deployments.provisioner import HostResources
from trainshed.domain.models import autoscaling
from trainshed.domain.models import hosting as rules
from trainshed.domain.models.autoscaling import HostLoad, Scaling
from trainshed.domain.models.hosting import CrashHistory, ServingState
from trainshed.domain.models.version import Version
from trainshed.domain.models.version_request import MAX_NODES
from trainshed.domain.times import now_us
from trainshed.engines.hosts.base import HostEngine
from trainshed.engines.hosts.spec import HostSpec
from trainshed.engines.hosts.watcher import HostPhase, HostStatus
from trainshed.errors import EngineUnavailableError
from trainshed.gateway.routes import HostAddress

LOG = logging.getLogger("trainshed.control.deployments.fleet")


@dataclass(slots=True)
class Fleet:
    """Not thread-safe. `spec` is that of the first host; None until it is known."""

    hosts: HostEngine
    resources: HostResources
    sleep_after_s: float
    awake: bool
    spec: HostSpec | None = None
    keys: dict[int, str] = field(default_factory=dict)  #: host keys by instance number
    reason: str = ""  #: why the last host exited
    activated: bool = False  #: a request activated it, and it has not been ready since
    clock: Callable[[], float] = time.monotonic
    scaling: Scaling = field(default_factory=Scaling)
    _shares: dict[str, int] = field(default_factory=dict)  #: number of hosts that each was sized for, by key
    _replacement: tuple[int, str] | None = None  #: instance number and key of a starting replacement
    _crashes: CrashHistory = field(default_factory=CrashHistory)
    _awake_since_us: int = field(default_factory=now_us)
    _last_state: object = None

    def adopt(self, spec: HostSpec, key: str, *, hosts: int) -> None:
        """Take over the first host, which provisioning started as one of `hosts`."""
        self.spec, self.keys, self._shares = spec, {0: key}, {key: hosts}

    def activate(self) -> None:
        """Scale from zero, because a request waits. Idempotent."""
        if not self.awake:
            self.awake, self.activated, self._awake_since_us = True, True, now_us()

    def failed(self, reason: str) -> None:
        """Record that a host cannot start. Counts as a crash."""
        self.reason = reason
        self._crashes = self._crashes.after(now_s=self.clock(), lived_s=0.0)

    def may_start(self) -> bool:
        return self.clock() >= self._crashes.next_s

    def reconcile(self, version: Version, *, last_used_us: int, in_flight: int = 0) -> list[str]:
        """One reconcile pass: remove exited hosts, start missing ones. `in_flight` is the load of all its hosts.

        Returns the keys of surplus hosts for the caller to drain.
        """
        self._remove_exited()
        if self._ready():
            if (history := self._crashes.after_ready(now_s=self.clock())) != self._crashes:
                self._crashes, self.reason = history, ""
            if self.activated:
                self.activated, self._awake_since_us = False, now_us()
        if not self.activated and rules.should_sleep(
            version.nodes,
            last_used_us=last_used_us,
            awake_since_us=self._awake_since_us,
            now_us=now_us(),
            sleep_after_s=self.sleep_after_s,
        ):
            self.awake = False
        self._scale(version, in_flight)
        desired, share = self._desired(version), version.host_range.maximum
        surplus = [self.keys.pop(number) for number in sorted(self.keys) if number >= desired]
        surplus += self._replace_stale(desired, share)
        if self.spec is not None and self.may_start():
            for number in range(desired):
                if number not in self.keys and (key := self._start(self.spec, number, share)):
                    self.keys[number] = key
        return surplus

    def all_keys(self) -> list[str]:
        """Return the keys of all hosts, including those that are not routed yet."""
        return [*self.keys.values(), *(() if self._replacement is None else (self._replacement[1],))]

    def _scale(self, version: Version, in_flight: int) -> None:
        """Decide on the number of hosts, if it may change."""
        limits = version.host_range
        if not self.awake or not limits.scales:
            self.scaling = Scaling()
            return
        is_loaded = in_flight > autoscaling.TARGET_IN_FLIGHT * self._desired(version)
        load = HostLoad(in_flight=in_flight, ready=len(self._ready()), room=self._room() if is_loaded else 0)
        scaling = autoscaling.rescaled(self.scaling, limits, load, now_s=self.clock())
        if scaling.hosts != limits.clamp(self.scaling.hosts):
            LOG.info("version.scaled version=%s hosts=%d in_flight=%d", version.name, scaling.hosts, in_flight)
        self.scaling = scaling

    def _room(self) -> int:
        """How many further hosts fit. An engine that gives each its own resources places them itself."""
        if self.spec is not None and self.spec.alone:
            return MAX_NODES
        return autoscaling.hosts_that_fit(
            available_bytes=self.resources.available_bytes(),
            total_bytes=self.resources.memory_bytes,
            host_bytes=max((self.hosts.memory_use(key)[1] for key, _ in self._ready()), default=0),
        )

    def _replace_stale(self, desired: int, share: int) -> list[str]:
        """Replace hosts that were started with resources for another number of hosts than `share`.

        Replaces one at a time, each when its replacement is ready. Returns the keys of replaced hosts.
        """
        if self._replacement is not None:
            return self._finish_replacement(*self._replacement, desired, share)
        stale = [number for number, key in sorted(self.keys.items()) if self._shares.get(key, share) != share]
        if self.spec is None or self.spec.alone:
            return []
        if stale and self.may_start() and len(self._ready()) == desired:
            key = self._start(self.spec, stale[0], share)
            self._replacement = (stale[0], key) if key else None
        return []

    def _finish_replacement(self, number: int, key: str, desired: int, share: int) -> list[str]:
        """Continue a replacement in progress. Returns the keys of replaced hosts."""
        status = self.hosts.status(key)
        if number >= desired or self._shares.get(key) != share:
            self._replacement = None
            return [key]
        if status is None or status.phase is HostPhase.ENDED:
            self._replacement = None
            self.failed(status.message if status is not None else "The host is gone.")
            self.hosts.forget(key)
        elif status.phase is HostPhase.READY:
            self._replacement = None
            old, self.keys[number] = self.keys.get(number), key
            return [old] if old is not None else []
        return []

    def serving_state(self, version: Version) -> ServingState:
        return rules.serving_state(
            ready=len(self._ready()),
            desired=self._desired(version),
            activated=self.activated,
            unhealthy=self._crashes.unhealthy,
        )

    def converged(self, version: Version) -> bool:
        """Return whether all desired hosts are ready, or further starts will not help soon."""
        return len(self._ready()) >= self._desired(version) or self._crashes.unhealthy

    def addresses(self) -> tuple[HostAddress, ...]:
        return tuple(
            HostAddress(socket=status.socket, key=key, endpoint=status.endpoint) for key, status in self._ready()
        )

    def take_change(self, version: Version) -> bool:
        """Return whether the route of the version has changed since the last call."""
        state = (self.serving_state(version), self.addresses(), self.reason, version.generation)
        changed, self._last_state = state != self._last_state, state
        return changed

    def next_reconcile_s(self, version: Version) -> float:
        """Return the seconds until the next pass is due without a wakeup."""
        starting = any(status.phase is HostPhase.STARTING for _, status in self._statuses())
        pause_s = 1.0 if starting else self.sleep_after_s / 4 if version.nodes == 0 and self.awake else 60.0
        if self.awake and version.host_range.scales:
            pause_s = min(pause_s, autoscaling.SAMPLE_INTERVAL_S)
        if len(self.keys) < self._desired(version):
            pause_s = min(pause_s, self._crashes.next_s - self.clock())
        return max(pause_s, 0.01)

    def _desired(self, version: Version) -> int:
        least = rules.desired_hosts(version.nodes, awake=self.awake)
        return version.host_range.clamp(self.scaling.hosts) if least else 0

    def _statuses(self) -> list[tuple[str, HostStatus]]:
        statuses = [(key, self.hosts.status(key)) for _, key in sorted(self.keys.items())]
        return [(key, status) for key, status in statuses if status is not None]

    def _ready(self) -> list[tuple[str, HostStatus]]:
        return [(key, status) for key, status in self._statuses() if status.phase is HostPhase.READY]

    def _start(self, spec: HostSpec, number: int, share: int) -> str:
        """Start a host as one of `share`. Returns its key. Returns "" if it cannot be started."""
        try:
            key = self.hosts.start(self.resources.shared(replace(spec, instance=number), share))
        except EngineUnavailableError as exc:
            self.failed(str(exc))
            return ""
        current = self.all_keys()
        self._shares = {other: share for other, share in self._shares.items() if other in current} | {key: share}
        return key

    def _remove_exited(self) -> None:
        for number, key in tuple(self.keys.items()):
            status = self.hosts.status(key)
            if status is None or status.phase is HostPhase.ENDED:
                self.reason = status.message if status is not None else "The host is gone."
                lived_s = self.clock() - status.started_s if status is not None else 0.0
                self._crashes = self._crashes.after(now_s=self.clock(), lived_s=lived_s)
                LOG.warning("host.died key=%s lived_s=%.1f reason=%r", key, lived_s, self.reason[:500])
                del self.keys[number]
                self.hosts.forget(key)
            elif reason := status.too_slow(self.resources.load_timeout_s, self.clock()):
                self.hosts.kill(key, reason=reason)
