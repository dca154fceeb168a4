"""Where predictions go: immutable values, swapped whole, written from any thread and read by the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trainshed.domain.models.hosting import HostEndpoint, ServingState


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAddress:
    """One running host. `key` is different for every start of a process, so a new one is never taken for the old."""

    socket: Path  #: if it runs on this machine
    key: str
    endpoint: HostEndpoint | None = None  #: if it runs on another one


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLogTarget:
    """Where a share of the requests of a version is written down."""

    bucket: str
    folder: str  #: the beginning of the objects' names, without a slash at the end; "" is the bucket itself
    share: float  #: 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRoute:
    """One version, as requests to it see it."""

    project: str
    model: str
    version: str
    state: ServingState
    reason: str = ""  #: why it is not READY, for whoever asks it
    hosts: tuple[HostAddress, ...] = ()
    access_log: bool = False  #: a line in the server's log for each request (onlinePredictionLogging)
    log: RequestLogTarget | None = None

    @property
    def retries_elsewhere(self) -> bool:
        """Whether a request whose host is lost is sent to another one: it is most likely lost with its machine. On this
        machine, the request itself is what may have ended it."""
        return len(self.hosts) > 1 and self.hosts[0].endpoint is not None

    @property
    def name(self) -> str:
        return f"projects/{self.project}/models/{self.model}/versions/{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRoute:
    """One model with all its versions, whatever their state, but those that are being deleted."""

    project: str
    model: str
    default: str = ""  #: the version that requests to the model itself get; "" if there is none
    split: tuple[tuple[str, int], ...] = ()  #: versions and their weights; empty: the default gets everything
    versions: Mapping[str, VersionRoute] = field(default_factory=dict)

    def pick(self, draw: float) -> VersionRoute | None:
        """The version for a request that names none. `draw` is a random number from 0 to below 1.

        Versions of the split that are not there get nothing; None if nobody could answer.
        """
        if not self.split:
            return self.versions.get(self.default)
        present = [(self.versions[name], weight) for name, weight in self.split if name in self.versions]
        left = draw * sum(weight for _, weight in present)
        for route, weight in present:
            left -= weight
            if left < 0:
                return route
        return self.versions.get(self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictTarget:
    """What a request asks: a version, or the model itself where `version` is empty."""

    project: str
    model: str
    version: str = ""
    kind: int  #: a `frames.Kind`


class Routes:
    """The routes in force. What was published is true for every request that is routed afterwards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.models: Mapping[tuple[str, str], ModelRoute] = {}  #: never changed, but replaced as a whole

    def publish(self, *models: ModelRoute) -> None:
        """Put these models in the place of what was known of them, in one step. From any thread."""
        with self._lock:
            self.models = {**self.models, **{(route.project, route.model): route for route in models}}
        self._tell()

    def withdraw(self, project: str, model: str) -> None:
        """Forget a model; it may be absent. From any thread."""
        with self._lock:
            self.models = {key: route for key, route in self.models.items() if key != (project, model)}
        self._tell()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this after every change, in the thread that made it."""
        with self._lock:
            self._listeners.append(listener)

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()


class ControlPlane(Protocol):
    """Whoever keeps hosts running, as the gateway calls it. All return at once: the event loop waits for them."""

    def activate(self, project: str, model: str, version: str) -> None:
        """A request waits for a version that sleeps. Called again for every further one."""

    def host_unresponsive(self, key: str) -> None:
        """This host let a request run into its deadline and answered nothing else in all that time."""

    def host_unreachable(self, key: str, reason: str) -> None:
        """Nobody could connect to this host for a while. Called again for as long as that lasts."""


class Traffic(Protocol):
    """What is on its way, as whoever keeps hosts running asks it. From any thread but the event loop's."""

    def drained(self, keys: Collection[str], *, timeout_s: float) -> bool:
        """Wait until none of these hosts has a request that waits for an answer; False if some still do at the end.

        Take them out of the routes first: what is routed before that counts, and nothing comes after.
        """

    def last_used_us(self, project: str, model: str, version: str) -> int:
        """When the version was last asked for something; 0 if never since this server started."""
