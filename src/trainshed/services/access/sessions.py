"""Browser sessions. A session is a token exchanged for the user's own, held in a cookie; it ends with that token."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from trainshed.domain.iam import USER_ROLES, token_digest
from trainshed.domain.times import now_us
from trainshed.errors import ResourceExhaustedError, UnauthenticatedError
from trainshed.services.access.tokens import Tokens

SESSION_TTL_S = 14 * 86_400
CODE_TTL_S = 60
_MAX_CODES = 100  #: unused sign-in links; the oldest is dropped
_MAX_FAILURES = 20  #: failed sign-ins per minute and address
_MINUTE_US = 60_000_000
_MAX_ADDRESSES = 10_000
_LABEL = "console"
_MAX_SESSIONS = 200  #: sessions per token; the oldest is ended


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """The result of a sign-in link: a new session, and the project that the link was made for."""

    session: str
    project: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Code:
    token_id: str
    project: str
    expires_us: int
    local: bool


class BrowserSessions:
    """The sessions of all browsers. Thread-safe.

    Sessions are rows and survive a restart. Links are in memory and do not.
    """

    def __init__(self, tokens: Tokens, *, clock: Callable[[], int] = now_us) -> None:
        self._tokens = tokens
        self._clock = clock
        self._lock = threading.Lock()
        self._codes: OrderedDict[str, _Code] = OrderedDict()  #: by the digest of the code
        self._failures: OrderedDict[str, deque[int]] = OrderedDict()  #: times of failures, by address

    def begin(self, token: str, *, address: str) -> str:
        """Create a session for a token.

        Raises `UnauthenticatedError` if the token is invalid, and `ResourceExhaustedError` after too many failures from
        an address. A valid token always succeeds: behind a proxy all clients share one address, and no one may lock out
        the others.
        """
        session = self._tokens.exchange(token, ttl_s=SESSION_TTL_S, label=_LABEL, most=_MAX_SESSIONS, roles=USER_ROLES)
        if session is None:
            self._count_failure(address)
            raise UnauthenticatedError(
                "This token opens no session: it is unknown, expired, revoked, or was itself got for another token. "
                "`trainshed auth print-access-token` prints a good one."
            )
        return session

    def end(self, session: str) -> bool:
        """End a session. Returns False if it is none."""
        return self._tokens.revoke_exchanged(session)

    def link(self, token: str, project: str, *, local: bool = False) -> str:
        """Create a one-time code that creates a session within `CODE_TTL_S`.

        Raises `UnauthenticatedError` if the token cannot be exchanged. `local` means that this machine asks: a local
        HTML file may open the link.
        """
        token_id = self._tokens.exchangeable(token, roles=USER_ROLES)
        if token_id is None:
            raise UnauthenticatedError("A link to the console is made for a user's own token, not for one got for it.")
        code = secrets.token_urlsafe(32)
        expires_us = self._clock() + CODE_TTL_S * 1_000_000
        entry = _Code(token_id=token_id, project=project, expires_us=expires_us, local=local)
        with self._lock:
            self._codes[token_digest(code)] = entry
            while len(self._codes) > _MAX_CODES:
                self._codes.popitem(last=False)
        return code

    def enter(self, code: str, *, address: str, cross_site: bool = False) -> SignIn | None:
        """Redeem a code. Returns None if it is used, expired or unknown.

        Raises `ResourceExhaustedError` like `begin`. With `cross_site`, a page of another site opened the link: it
        must not sign users in as someone else.
        """
        with self._lock:
            entry = self._codes.pop(token_digest(code), None)
        session = None
        if entry is not None and self._clock() < entry.expires_us and (entry.local or not cross_site):
            session = self._tokens.exchange_by_id(entry.token_id, ttl_s=SESSION_TTL_S, label=_LABEL, most=_MAX_SESSIONS)
        if entry is None or session is None:
            self._count_failure(address)
            return None
        return SignIn(session=session, project=entry.project)

    def _count_failure(self, address: str) -> None:
        """Record a failure. Raises `ResourceExhaustedError` if there were too many before."""
        now = self._clock()
        with self._lock:
            failures = self._failures.setdefault(address, deque(maxlen=_MAX_FAILURES))
            if len(failures) == _MAX_FAILURES and failures[0] > now - _MINUTE_US:
                raise ResourceExhaustedError(
                    "Too many wrong tries to sign in came from this address. Wait a minute.", retry_after_s=60
                )
            failures.append(now)
            self._failures.move_to_end(address)
            while len(self._failures) > _MAX_ADDRESSES:
                self._failures.popitem(last=False)
