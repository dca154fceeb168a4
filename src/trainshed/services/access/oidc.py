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
from trainshed.services.access.oidc_provider import OidcProvider, ProviderTokens
from trainshed.services.access.tokens import Tokens

LOG = logging.getLogger("trainshed.oidc")

CHECK_INTERVAL_S = 120.0  #: after that time a change of groups applies
SESSION_GRACE_S = 600.0  #: a session ends if the provider has not confirmed it for so long
SIGN_IN_TTL_S = 600
_LABEL = "console, by OpenID Connect"
_MAX_PENDING = 1000  #: sign-ins that have begun; the oldest is dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    nonce: str
    verifier: str
    redirect_uri: str
    project: str
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
        self._check_identity(given.identity, pending.nonce)
        subject = str(given.identity["sub"])
        principal = self._principal(given, subject, pending.project)
        secret, token_id = self._tokens.issue_for_person(principal, label=_LABEL, ttl_s=SESSION_GRACE_S)
        with self._lock:
            self._sessions[token_id] = _Session(
                token_id=token_id, principal=principal, subject=subject, project=pending.project, tokens=given
            )
        return secret

    def _check_identity(self, identity: Mapping[str, Any], nonce: str) -> None:
        audience = identity.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        expires = identity.get("exp")
        if (
            identity.get("iss") != self._settings.issuer
            or self._settings.client_id not in audiences
            or not secrets.compare_digest(str(identity.get("nonce", "")).encode(), nonce.encode())
            or not isinstance(expires, int | float)
            or expires * 1_000_000 <= self._clock()
            or not identity.get("sub")
        ):
            raise UnauthenticatedError("The ID token of the OpenID provider is not for this sign-in.")

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
