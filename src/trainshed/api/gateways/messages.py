"""What the server and its gateway processes tell each other: values that `channel` sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainshed.domain.iam import Principal
from trainshed.gateway.metrics import Totals, VersionName
from trainshed.gateway.request_log import LoggedExchange
from trainshed.gateway.routes import ModelRoute, PredictTarget, RequestLogTarget, VersionRoute

ModelName = tuple[str, str]  #: project and model


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """What a gateway process is started with. It inherits the descriptors."""

    listener_fd: int
    control_fd: int = -1
    connections_fd: int = -1
    number: int = 0
    gateways: int  #: how many there are
    authentication: bool
    body_limit: int
    timeout_s: float
    max_connections: int
    max_connections_per_address: int
    reverse_proxies: str
    max_unread_bytes: int  #: of all processes together


# From the server to a gateway.


@dataclass(frozen=True, slots=True)
class RoutesChanged:
    """The routes that are new or different, and the models that have none any more."""

    changed: Mapping[ModelName, ModelRoute]
    withdrawn: frozenset[ModelName]


@dataclass(frozen=True, slots=True)
class Forget:
    """Tokens and leases that were looked up before this epoch are no longer good."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CountInFlight:
    """Asks for the number of requests in flight to these hosts."""

    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """What the server has found out about a prediction request: the next one like it needs no look-up.

    Without authentication there is no token: `digest` is empty, and `expires_us` is None.
    """

    url: bytes
    host: bytes
    target: PredictTarget
    digest: str  #: of the token
    principal: Principal
    expires_us: int | None
    is_unlimited: bool  #: whether no limit of requests a second applies
    epoch: int  #: before the rest was looked up


@dataclass(frozen=True, slots=True)
class Lease:
    """So many requests are counted against the limits of a project and a user already."""

    project: str
    user: str
    number: int | None  #: None if there is no limit
    epoch: int


@dataclass(frozen=True, slots=True)
class CloseConnections:
    """Too many are open: the ones that are idle the longest are to be closed. The address is empty for all."""

    address: str
    number: int


@dataclass(frozen=True, slots=True)
class PassIdle:
    """Another gateway has fewer connections: so many idle ones are to be passed to the server, which passes them on."""

    number: int


@dataclass(frozen=True, slots=True)
class Accept:
    """All that was sent before has taken effect: accept connections."""


@dataclass(frozen=True, slots=True)
class StopGateway:
    """Accept nothing more, answer what is in progress, and end."""


# From a gateway to the server.


@dataclass(frozen=True, slots=True)
class Ready:
    """It handles messages."""


@dataclass(frozen=True, slots=True)
class Done:
    """A message with this number has taken effect."""

    number: int
    result: int = 0


@dataclass(frozen=True, slots=True)
class Counted:
    """Requests since the last message of this kind, with the time of the last one."""

    versions: Mapping[VersionName, tuple[Totals, float]]


@dataclass(frozen=True, slots=True)
class Logged:
    """A request for the request log. Sent before its response."""

    route: VersionRoute
    log: RequestLogTarget
    exchange: LoggedExchange


@dataclass(frozen=True, slots=True)
class ServerLogLine:
    """A line for the server's log."""

    logger: str
    level: int
    message: str


@dataclass(frozen=True, slots=True)
class HostTrouble:
    """A host that does not respond, or, with a reason, that can't be connected to."""

    key: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LeaseWanted:
    """Asks for requests of a limit; `unused` ones are given back."""

    project: str
    holder: Principal
    unused: int = 0


@dataclass(frozen=True, slots=True)
class OpenConnections:
    """The number of open connections, and that of addresses whose number has changed."""

    total: int
    by_address: Mapping[str, int]
    closings: int = 0  #: messages `CloseConnections` that have taken effect


ToGateway = (
    RoutesChanged
    | Forget
    | CountInFlight
    | AcceptedRequest
    | Lease
    | CloseConnections
    | PassIdle
    | Accept
    | StopGateway
)
ToServer = Ready | Done | Counted | Logged | ServerLogLine | HostTrouble | LeaseWanted | OpenConnections
