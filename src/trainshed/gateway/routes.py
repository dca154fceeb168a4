"""Routes of predictions: immutable values, replaced as a whole. Any thread publishes; the event loop reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trainshed.domain.models.hosting import HostEndpoint, ServingState


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAddress:
    """The address of one running host. `key` is unique per process start, so a new host never passes for an old one."""

    socket: Path  #: for a host on this machine
    key: str
    endpoint: HostEndpoint | None = None  #: for a remote host


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLogTarget:
    """Where a sample of a version's requests is logged."""

    bucket: str
    folder: str  #: the prefix of object names, without a slash at the end; "" is the bucket itself
    share: float  #: 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """Another version of the model, which gets a share of a version's requests too. Its answers are thrown away."""

    version: str
    share: float  #: 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRoute:
    """The route of one version."""

    project: str
    model: str
    version: str
    state: ServingState
    reason: str = ""  #: why it is not READY, for clients
    hosts: tuple[HostAddress, ...] = ()
    access_log: bool = False  #: one line per request in the server's log (onlinePredictionLogging)
    log: RequestLogTarget | None = None
    shadow: Shadow | None = None  #: for requests that name no version

    @property
    def retries_elsewhere(self) -> bool:
        """Whether a request that loses its host is resent to another one.

        A remote host is most likely lost with its node. On this machine, the request itself may have killed the host.
        """
        return len(self.hosts) > 1 and self.hosts[0].endpoint is not None

    @property
    def name(self) -> str:
        return f"projects/{self.project}/models/{self.model}/versions/{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRoute:
    """The route of one model with all versions in any state, except those being deleted."""

    project: str
    model: str
    default: str = ""  #: the version for requests that name none; "" if there is none
    split: tuple[tuple[str, int], ...] = ()  #: versions and their weights; if empty, the default gets all requests
    versions: Mapping[str, VersionRoute] = field(default_factory=dict)

    def pick(self, draw: float) -> VersionRoute | None:
        """Return the version for a request that names none. `draw` is a random number in [0, 1).

        Versions of the split that have no route get no requests. Returns None if no version is left.
        """
        if not self.split:
            return self.versions.get(self.default)
        candidates = [(self.versions[name], weight) for name, weight in self.split if name in self.versions]
        remainder = draw * sum(weight for _, weight in candidates)
        for route, weight in candidates:
            remainder -= weight
            if remainder < 0:
                return route
        return self.versions.get(self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictTarget:
    """The target of a request: a version, or the model itself if `version` is empty."""

    project: str
    model: str
    version: str = ""
    kind: int  #: a `frames.FrameKind`


class Routes:
    """The current routes. Every request that is routed after `publish` returns sees the published routes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.models: Mapping[tuple[str, str], ModelRoute] = {}  #: immutable, replaced as a whole

    def publish(self, *models: ModelRoute) -> None:
        """Replace the routes of these models atomically. Thread-safe."""
        with self._lock:
            self.models = {**self.models, **{(route.project, route.model): route for route in models}}
        self._notify()

    def withdraw(self, project: str, model: str) -> None:
        """Remove the route of a model. Idempotent. Thread-safe."""
        with self._lock:
            self.models = {key: route for key, route in self.models.items() if key != (project, model)}
        self._notify()

    def listen(self, listener: Callable[[], None]) -> None:
        """Register a callback for every change. It runs on the thread that made the change."""
        with self._lock:
            self._listeners.append(listener)

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()


class ControlPlane(Protocol):
    """The control plane, as the gateway calls it. All methods return immediately: the event loop calls them."""

    def activate(self, project: str, model: str, version: str) -> None:
        """Activate a version that is asleep, because a request waits for it. Called once per waiting request."""

    def host_unresponsive(self, key: str) -> None:
        """Report a host that let a request time out and sent nothing else meanwhile."""

    def host_unreachable(self, key: str, reason: str) -> None:
        """Report a host that could not be connected to for a while. Called again while that lasts."""


class Traffic(Protocol):
    """In-flight requests, as the control plane sees them. Thread-safe, but not for the event loop: `drained` blocks."""

    def drained(self, keys: Collection[str], *, timeout_s: float) -> bool:
        """Blocks until these hosts have no in-flight requests. Returns False on timeout.

        Callers withdraw the hosts from the routes first. Requests routed before that count; none come after.
        """

    def load(self, keys: Collection[str]) -> int:
        """Return the number of in-flight requests of these hosts: those that they work on and those queued."""

    def last_used_us(self, project: str, model: str, version: str) -> int:
        """Return the time of the version's last request. Returns 0 if there was none since this server started."""
