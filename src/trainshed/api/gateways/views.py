"""What a gateway process knows of the server: routes, tokens, and limits of requests a second.

It looks nothing up itself. What it does not know, the server decides: the request goes there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from trainshed.api.gateways.messages import AcceptedRequest, Forget, Lease, LeaseWanted, RoutesChanged
from trainshed.domain.iam import Principal, token_digest
from trainshed.domain.times import now_us
from trainshed.gateway.routes import Routes
from trainshed.services.access.request_rates import limited_user

LEASE_IDLE_TIMEOUT_S = 0.5  #: after which what is left of a lease goes back
MAX_REMEMBERED = 10_000  #: tokens, and leases


def apply_routes(routes: Routes, message: RoutesChanged) -> None:
    """Let every request from now on see these routes."""
    routes.publish(*message.changed.values())
    for project, model in message.withdrawn:
        routes.withdraw(project, model)


class TokenView:
    """The tokens that the server has accepted, until it revokes any. Event loop only."""

    def __init__(self, *, clock: Callable[[], int] = now_us) -> None:
        self._clock = clock
        self._epoch = 0
        self._tokens: dict[str, tuple[Principal, int | None]] = {}

    def known(self, secret: str) -> Principal | None:
        """Return who holds a token. Returns None if the server has to say that."""
        principal, expires_us = self._tokens.get(token_digest(secret), (None, None))
        return principal if expires_us is None or self._clock() < expires_us else None

    def learn(self, message: AcceptedRequest) -> None:
        if message.epoch < self._epoch or not message.digest:
            return  # it may have been revoked since
        if len(self._tokens) >= MAX_REMEMBERED:
            self._tokens.clear()
        self._tokens[message.digest] = message.principal, message.expires_us

    def forget(self, message: Forget) -> None:
        self._epoch = message.epoch
        self._tokens.clear()


@dataclass(slots=True)
class _Leased:
    holder: Principal
    left: int | None  #: None if no limit applies
    wanted: bool = False  #: whether more has been asked for
    used_s: float = 0.0


class RateLeases:
    """Requests that the server has counted against its limits already. Event loop only."""

    def __init__(self, ask: Callable[[LeaseWanted], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._epoch = 0
        self._leases: dict[tuple[str, str], _Leased] = {}

    def take(self, project: str, holder: Principal) -> bool:
        """Count a request. Returns False if the server has to do that."""
        key = project, limited_user(holder)
        lease = self._leases.get(key)
        if lease is None:
            if len(self._leases) >= MAX_REMEMBERED:
                self._leases.clear()
            lease = self._leases[key] = _Leased(holder, 0)
        elif lease.left is None:
            return True
        lease.used_s = self._clock()
        taken = bool(lease.left)
        if taken:
            lease.left -= 1  # type: ignore[operator]  # it is a number here
        if not lease.left and not lease.wanted:
            lease.wanted = True
            self._ask(LeaseWanted(project, holder))
        return taken

    def learn(self, message: AcceptedRequest) -> None:
        if message.is_unlimited and message.epoch >= self._epoch:
            key = message.target.project, limited_user(message.principal)
            self._leases[key] = _Leased(message.principal, None)

    def add(self, message: Lease) -> None:
        lease = self._leases.get((message.project, message.user))
        if lease is None or message.epoch < self._epoch:
            return
        lease.wanted = False
        lease.left = None if message.number is None else (lease.left or 0) + message.number

    def give_back(self) -> None:
        """Return what nobody has used for a while."""
        since_s = self._clock() - LEASE_IDLE_TIMEOUT_S
        idle = [(key, each) for key, each in self._leases.items() if each.left is not None and each.used_s < since_s]
        for key, lease in idle:
            del self._leases[key]
            if lease.left:
                self._ask(LeaseWanted(key[0], lease.holder, lease.left))

    def forget(self, message: Forget) -> None:
        """Drop all leases: the limits may have changed."""
        self._epoch = message.epoch
        self._leases.clear()
