"""Sessions of browsers. One is a token that was got for the user's own and that a cookie holds: it ends with that."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from trainshed.domain.times import now_us
from trainshed.errors import ResourceExhaustedError, UnauthenticatedError
from trainshed.services.access.tokens import Tokens, digest

SESSION_S = 14 * 86_400
CODE_S = 60
_CODES = 100  #: links that wait to be opened; the oldest gives way
_TRIES = 20  #: wrong ones within a minute, from one address
_MINUTE_US = 60_000_000
_ADDRESSES = 10_000
_LABEL = "console"
_SESSIONS = 200  #: of one token; the oldest ends


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """What a link leads to: a new session, and the project that it was asked for."""

    session: str
    project: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Code:
    token_id: str
    project: str
    expires_us: int
    local: bool


class BrowserSessions:
    """Threads may share it. Sessions are rows and outlive the server; links are in memory and don't."""

    def __init__(self, tokens: Tokens, *, clock: Callable[[], int] = now_us) -> None:
        self._tokens = tokens
        self._clock = clock
        self._lock = threading.Lock()
        self._codes: OrderedDict[str, _Code] = OrderedDict()  #: by the hash of the code
        self._failures: OrderedDict[str, deque[int]] = OrderedDict()  #: times, by address

    def begin(self, token: str, *, address: str) -> str:
        """A session for a token. `UnauthenticatedError` if that is not good; `ResourceExhaustedError` after too many
        such from an address.

        A good one always opens: behind a proxy all have one address, and nobody may keep the others out.
        """
        session = self._tokens.exchange(token, ttl_s=SESSION_S, label=_LABEL, most=_SESSIONS)
        if session is None:
            self._count_failure(address)
            raise UnauthenticatedError(
                "This token opens no session: it is unknown, expired, revoked, or was itself got for another token. "
                "`trainshed auth print-access-token` prints a good one."
            )
        return session

    def end(self, session: str) -> None:
        """It opens nothing any more."""
        self._tokens.revoke_exchanged(session)

    def link(self, token: str, project: str, *, local: bool = False) -> str:
        """A code that begins a session, once, within CODE_S. `UnauthenticatedError` if there can't be one for this
        token.

        `local` says that this machine asks: a page of its own, in a file, may lead to the link.
        """
        token_id = self._tokens.exchangeable(token)
        if token_id is None:
            raise UnauthenticatedError("A link to the console is made for a user's own token, not for one got for it.")
        code = secrets.token_urlsafe(32)
        until = self._clock() + CODE_S * 1_000_000
        made = _Code(token_id=token_id, project=project, expires_us=until, local=local)
        with self._lock:
            self._codes[digest(code)] = made
            while len(self._codes) > _CODES:
                self._codes.popitem(last=False)
        return code

    def enter(self, code: str, *, address: str, from_elsewhere: bool = False) -> SignIn | None:
        """What the code leads to; None if it was used, is too old, or never was one. `ResourceExhaustedError` as with
        `begin`.

        Another's page (`from_elsewhere`) may not sign somebody in, who would then work as someone else.
        """
        with self._lock:
            found = self._codes.pop(digest(code), None)
        session = None
        if found is not None and self._clock() < found.expires_us and (found.local or not from_elsewhere):
            session = self._tokens.got_for(found.token_id, ttl_s=SESSION_S, label=_LABEL, most=_SESSIONS)
        if found is None or session is None:
            self._count_failure(address)
            return None
        return SignIn(session=session, project=found.project)

    def _count_failure(self, address: str) -> None:
        """`ResourceExhaustedError` if there were too many before."""
        now = self._clock()
        with self._lock:
            failures = self._failures.setdefault(address, deque(maxlen=_TRIES))
            if len(failures) == _TRIES and failures[0] > now - _MINUTE_US:
                raise ResourceExhaustedError(
                    "Too many wrong tries to sign in came from this address. Wait a minute.", retry_after_s=60
                )
            failures.append(now)
            self._failures.move_to_end(address)
            while len(self._failures) > _ADDRESSES:
                self._failures.popitem(last=False)
