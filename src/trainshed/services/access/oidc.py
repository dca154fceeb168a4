"""Sign-in by OpenID Connect. A session lasts as long as the provider confirms the person and the groups."""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainshed.background import BackgroundLoop
from trainshed.domain import names
from trainshed.domain.access.oidc import OidcSettings
from trainshed.domain.iam import Principal
from trainshed.domain.times import now_us
from trainshed.errors import InvalidArgumentError, PermissionDeniedError, UnauthenticatedError, UnavailableError
from trainshed.services.access.oidc_provider import DeviceCode, OidcProvider, ProviderTokens, RefusedError
from trainshed.services.access.tokens import Tokens

LOG = logging.getLogger("trainshed.oidc")

CHECK_INTERVAL_S = 120.0  #: after that time a change of groups applies
SESSION_GRACE_S = 600.0  #: a session ends if the provider has not confirmed it for so long
SIGN_IN_TTL_S = 600
_BROWSER_LABEL = "console, by OpenID Connect"
_DEVICE_LABEL = "command line, by OpenID Connect"
_MAX_PENDING = 1000  #: sign-ins that have begun; the oldest is dropped
_OTHER_IDENTITY = "The ID token of the OpenID provider is not for this sign-in."
_SLOW_DOWN_S = 5.0  #: what RFC 8628 has a client add to its interval when the provider asks for it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    nonce: str
    verifier: str
    redirect_uri: str
    project: str
    expires_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSignIn:
    """A sign-in that a person ends at a page of the provider."""

    handle: str  #: for the command line to ask with; a secret
    code: DeviceCode


@dataclass(slots=True, kw_only=True)
class _PendingDevice:
    secret: str
    project: str
    interval_s: float
    due_us: int  #: when the provider may be asked again
    expires_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    token_id: str
    principal: Principal
    subject: str
    project: str  #: that was asked for
    tokens: ProviderTokens


class OidcSignIn:
    """Signs people in, and checks their groups while they are. Thread-safe.

    The provider's tokens are in memory alone. After a restart of the server people sign in again.
    """

    def __init__(
        self, settings: OidcSettings, provider: OidcProvider, tokens: Tokens, *, clock: Callable[[], int] = now_us
    ) -> None:
        self._settings = settings
        self._provider = provider
        self._tokens = tokens
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self._devices: OrderedDict[str, _PendingDevice] = OrderedDict()  #: by their handle
        self._sessions: dict[str, _Session] = {}  #: by the id of their token
        self._loop = BackgroundLoop("oidc", self._step)

    def begin(self) -> None:
        """Start to check sessions."""
        self._loop.start()

    def close(self) -> None:
        self._loop.stop()
        self._loop.join()

    def start(self, *, redirect_uri: str, project: str = "") -> tuple[str, str]:
        """Begin a sign-in. Returns the state, for the browser to keep, and the page of the provider."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        url = self._provider.authorization_url(redirect_uri=redirect_uri, state=state, nonce=nonce, verifier=verifier)
        pending = _Pending(
            nonce=nonce,
            verifier=verifier,
            redirect_uri=redirect_uri,
            project=project,
            expires_us=self._clock() + SIGN_IN_TTL_S * 1_000_000,
        )
        with self._lock:
            self._pending[state] = pending
            while len(self._pending) > _MAX_PENDING:
                self._pending.popitem(last=False)
        return state, url

    def finish(self, state: str, code: str) -> str:
        """Create a session for the code that a browser brings back.

        Raises `UnauthenticatedError` if the sign-in is unknown, expired or refused, and `PermissionDeniedError` if no
        group of the person has a role.
        """
        with self._lock:
            pending = self._pending.pop(state, None)
        if pending is None or self._clock() >= pending.expires_us:
            raise UnauthenticatedError("This sign-in was used before, or has expired. Sign in again.")
        given = self._provider.redeem(code, redirect_uri=pending.redirect_uri, verifier=pending.verifier)
        if not secrets.compare_digest(str(given.identity.get("nonce", "")).encode(), pending.nonce.encode()):
            raise UnauthenticatedError(_OTHER_IDENTITY)
        return self._open_session(given, pending.project, label=_BROWSER_LABEL)

    def start_device(self, *, project: str = "") -> DeviceSignIn:
        """Begin a sign-in that a person ends in any browser.

        Raises `FailedPreconditionError` if the provider has no such sign-in.
        """
        code = self._provider.begin_device()
        handle = secrets.token_urlsafe(32)
        now = self._clock()
        pending = _PendingDevice(
            secret=code.secret,
            project=project,
            interval_s=code.interval_s,
            due_us=now + int(code.interval_s * 1_000_000),
            expires_us=now + int(min(code.ttl_s, SIGN_IN_TTL_S) * 1_000_000),
        )
        with self._lock:
            self._devices[handle] = pending
            while len(self._devices) > _MAX_PENDING:
                self._devices.popitem(last=False)
        return DeviceSignIn(handle=handle, code=code)

    def finish_device(self, handle: str) -> str | float:
        """Create a session once the person has signed in. Until then, returns the seconds to wait before the next try.

        Raises as `finish` does.
        """
        now = self._clock()
        with self._lock:
            pending = self._devices.get(handle)
            if pending is None or now >= pending.expires_us:
                self._devices.pop(handle, None)
                raise UnauthenticatedError("This sign-in was used before, or has expired. Sign in again.")
            wait_us = pending.due_us - now
            if wait_us > 0:
                return wait_us / 1_000_000
            pending.due_us = now + int(pending.interval_s * 1_000_000)  # also for others that ask meanwhile
        try:
            given = self._provider.redeem_device(pending.secret)
        except RefusedError as exc:
            if exc.code not in ("authorization_pending", "slow_down"):
                self._forget_device(handle)
                raise
            if exc.code == "slow_down":
                pending.interval_s += _SLOW_DOWN_S
            return pending.interval_s
        self._forget_device(handle)
        return self._open_session(given, pending.project, label=_DEVICE_LABEL)

    def _forget_device(self, handle: str) -> None:
        with self._lock:
            self._devices.pop(handle, None)

    def _open_session(self, given: ProviderTokens, project: str, *, label: str) -> str:
        self._check_identity(given.identity)
        subject = str(given.identity["sub"])
        principal = self._principal(given, subject, project)
        secret, token_id = self._tokens.issue_for_person(principal, label=label, ttl_s=SESSION_GRACE_S)
        with self._lock:
            self._sessions[token_id] = _Session(
                token_id=token_id, principal=principal, subject=subject, project=project, tokens=given
            )
        return secret

    def _check_identity(self, identity: Mapping[str, Any]) -> None:
        audience = identity.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        expires = identity.get("exp")
        if (
            identity.get("iss") != self._settings.issuer
            or self._settings.client_id not in audiences
            or not isinstance(expires, int | float)
            or expires * 1_000_000 <= self._clock()
            or not identity.get("sub")
        ):
            raise UnauthenticatedError(_OTHER_IDENTITY)

    def _principal(self, given: ProviderTokens, subject: str, project: str) -> Principal:
        """Return who a person is now. Raises `PermissionDeniedError` if no group has a role."""
        claims = self._provider.claims(given.access)
        if claims.get("sub") != subject:
            raise UnauthenticatedError("The OpenID provider answered for another person.")
        name = claims.get(self._settings.user_claim)
        try:
            user = names.user_name(name if isinstance(name, str) else "")
        except InvalidArgumentError as exc:
            raise PermissionDeniedError(
                f"The claim {self._settings.user_claim} of the OpenID provider is no user name: {exc}"
            ) from exc
        groups = claims.get(self._settings.groups_claim)
        known = [group for group in groups if isinstance(group, str)] if isinstance(groups, list) else []
        principal = self._settings.principal(user, known, project=project)
        if principal is None:
            raise PermissionDeniedError(f"No group of {user} has a role on this server. Ask an owner for one.")
        return principal

    def check(self) -> None:
        """Ask the provider about every session, and end those whose person or groups have changed."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            try:
                confirmed = self._confirm(session)
            except UnavailableError as exc:
                LOG.warning("oidc.check_failed user=%s reason=%s", session.principal.user, exc)
                continue  # it ends after the grace, unless the provider is back before
            with self._lock:
                if confirmed is None:
                    self._sessions.pop(session.token_id, None)
                else:
                    self._sessions[session.token_id] = confirmed

    def _confirm(self, session: _Session) -> _Session | None:
        """Return the session with fresh tokens. Returns None, and ends it, if it is no longer as it was."""
        given = session.tokens
        try:
            if given.refresh:
                fresh = self._provider.refresh(given.refresh)
                given = replace(fresh, refresh=fresh.refresh or given.refresh)
            unchanged = self._principal(given, session.subject, session.project) == session.principal
        except (UnauthenticatedError, PermissionDeniedError):
            unchanged = False
        if unchanged and self._tokens.prolong(session.token_id, ttl_s=SESSION_GRACE_S):
            return replace(session, tokens=given)
        self._tokens.end(session.token_id)
        LOG.info("oidc.session_ended user=%s", session.principal.user)
        return None

    def _step(self) -> float:
        self.check()
        return CHECK_INTERVAL_S
