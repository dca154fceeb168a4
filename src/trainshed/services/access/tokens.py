"""Tokens and their principals. A secret is shown once, at creation, and stored only as a digest."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainshed.domain import names
from trainshed.domain.iam import ALL_PROJECTS, USER_ROLES, Access, Principal, Role, token_digest
from trainshed.domain.times import now_us, rfc3339
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, PermissionDeniedError
from trainshed.node.files import write_file
from trainshed.store.tokens import Token, TokenStore

OWNER = Principal(user="owner", project=ALL_PROJECTS, role=Role.OWNER)
_MAX_CACHED = 10_000  #: cached tokens
_OUTCOME_TIMEOUT_S = 60.0  #: after this, a write whose outcome is unknown has happened or never will
_REFRESHED_ROLES = (*USER_ROLES, Role.JOB)  #: roles of tokens that OAuth clients exchange
_BY_PROVIDER = "oidc"  #: the parent of sessions that no token of ours was exchanged for
_FIELDS = {"user", "project", "role", "label", "ttlSeconds"}


class Tokens:
    """All tokens, with a cache of lookups. This service is the only writer, so revocation takes effect immediately."""

    def __init__(
        self,
        store: TokenStore,
        *,
        clock: Callable[[], int] = now_us,
        job_active: Callable[[str, str], bool] = lambda project, job: False,
        version_there: Callable[[str, str, str], bool] = lambda project, model, version: False,
        user_disabled: Callable[[str], bool] = lambda user: False,
    ) -> None:
        self._user_disabled = user_disabled
        self._store = store
        self._version_there = version_there
        self._clock = clock
        self._job_active = job_active
        self._lock = threading.Lock()
        self._revocations = 0
        self._cached_from_s = 0.0  #: nothing is cached before; in monotonic time
        self._cache: dict[str, Token] = {}
        self._listeners: list[Callable[[], None]] = []

    def known(self, secret: str) -> Principal | None:
        """Like `find`, from the cache only. Returns None also if the token is not cached. Never blocks."""
        token = self.cached(token_digest(secret))
        return token.principal if token else None

    def cached(self, digest: str) -> Token | None:
        """Return the valid token with this digest, if `known` would accept it. Never blocks."""
        token = self._cache.get(digest)
        if token is None or not token.good_at(self._clock()) or _is_bound(token.principal):
            return None
        return token

    def listen(self, listener: Callable[[], None]) -> None:
        """Register a callback that runs after the cache was cleared, on the thread that did so.

        A revocation is acknowledged when all callbacks have returned.
        """
        self._listeners.append(listener)

    def find(self, secret: str) -> Principal | None:
        """Return the principal of a token. Returns None if it is unknown, expired or revoked."""
        token = self._find(secret)
        return token.principal if token else None

    def _find(self, secret: str) -> Token | None:
        key = token_digest(secret)
        revocations = self._revocations
        token = self._store.find(key)
        if token is None or not self._is_good(token):
            return None
        with self._lock:
            # otherwise it may have been revoked since it was read, or be about to be
            if self._revocations == revocations and time.monotonic() >= self._cached_from_s:
                if len(self._cache) >= _MAX_CACHED:
                    self._cache.clear()
                self._cache[key] = token
        return token

    def _is_good(self, token: Token) -> bool:
        return token.good_at(self._clock()) and self._is_active(token.principal)

    def ensure_owner(self, path: Path) -> None:
        """Ensure that `path` holds a valid owner token, durably, readable by this user only."""
        try:
            if self.find(path.read_text().strip()) is not None:
                return
        except FileNotFoundError:
            pass
        secret, _ = self._issue(OWNER, label="made on first start", ttl_s=None)
        write_file(path, f"{secret}\n".encode(), durable=True)

    def create(self, caller: Principal, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a token. The caller must be an owner of its project, so a token never exceeds its creator's rights."""
        if unknown := set(body) - _FIELDS:
            raise InvalidArgumentError(f"Unknown field {min(unknown)!r}. A token has: {', '.join(sorted(_FIELDS))}.")
        project = str(body.get("project") or ALL_PROJECTS)
        if project != ALL_PROJECTS:
            names.project_id(project)
        _check_owner(caller, project)
        role = body.get("role", Role.EDITOR)
        if role not in USER_ROLES:
            raise InvalidArgumentError(f"A role is one of {', '.join(USER_ROLES)}; {role!r} is not.", field="role")
        principal = Principal(user=names.user_name(str(body.get("user", ""))), project=project, role=Role(role))
        if self._user_disabled(principal.user):
            raise FailedPreconditionError(
                f"{principal.user} is disabled. `trainshed auth users enable {principal.user}` ends that."
            )
        secret, token = self._issue(principal, label=str(body.get("label", "")), ttl_s=_ttl(body.get("ttlSeconds")))
        return {"token": secret} | token_body(token)

    def exchange(
        self,
        secret: str,
        *,
        ttl_s: float,
        label: str = "by refresh token",
        most: int | None = None,
        roles: Collection[Role] = _REFRESHED_ROLES,
    ) -> str | None:
        """Exchange a token for one of limited lifetime with the same rights. Returns None if it is invalid.

        The new token expires no later than the given one and is revoked with it. It cannot be exchanged again.
        """
        token_id = self.exchangeable(secret, roles=roles)
        return None if token_id is None else self.exchange_by_id(token_id, ttl_s=ttl_s, label=label, most=most)

    def exchangeable(self, secret: str, *, roles: Collection[Role]) -> str | None:
        """Return the id of a token that can be exchanged.

        Returns None if it is invalid, was itself exchanged, or has none of the roles.
        """
        token = self._find(secret)
        if token is None or token.parent or token.principal.role not in roles:
            return None
        return token.id

    def exchange_by_id(self, token_id: str, *, ttl_s: float, label: str, most: int | None = None) -> str | None:
        """Like `exchange`, for the id of an `exchangeable` token. Returns None if that is no longer valid.

        With `most`, only that many exchanged tokens with the label stay valid; the oldest are revoked.
        """
        token = self._store.get(token_id)
        if token is None or not self._is_good(token):
            return None
        if token.expires_us is not None:
            ttl_s = min(ttl_s, (token.expires_us - self._clock()) / 1_000_000)
        secret, issued = self._issue(token.principal, label=label, ttl_s=ttl_s, parent=token.id)
        if (
            current := self._store.get(token_id)
        ) is None or current.revoked_us is not None:  # revoked before the new one was written
            self._store.revoke(issued.id, now_us=self._clock())
            return None
        if most is not None:
            with self.revoking():
                self._store.keep_newest(token_id, label=label, most=most)
        return secret

    def revoke_exchanged(self, secret: str) -> bool:
        """Revoke an exchanged token, or one of a sign-in. Returns False, and does nothing, for other tokens."""
        token = self._find(secret)
        if token is None or not token.parent:
            return False
        with self.revoking():
            self._store.revoke(token.id, now_us=self._clock())
        return True

    def issue_for_job(self, project: str, job: str, *, ttl_s: float) -> str:
        """Issue a token for the code of one job, with the access that `GRANTS` has for jobs.

        The token and all exchanged for it are invalid once the job has ended. The job's row decides, so no explicit
        revocation is needed.
        """
        principal = Principal.of_job(project, job, Role.JOB)
        return self._issue(principal, label=f"job {job}", ttl_s=ttl_s)[0]

    def issue_for_person(self, principal: Principal, *, label: str, ttl_s: float) -> tuple[str, str]:
        """Issue a session for a person whom a provider has identified. Returns the secret and the id.

        It can't be exchanged. Raises `PermissionDeniedError` if the user is disabled.
        """
        if self._user_disabled(principal.user):
            raise PermissionDeniedError(f"{principal.user} is disabled on this server.")
        secret, token = self._issue(principal, label=label, ttl_s=ttl_s, parent=_BY_PROVIDER)
        return secret, token.id

    def prolong(self, token_id: str, *, ttl_s: float) -> bool:
        """Let a token expire later. Returns False if it is not valid, or its user is disabled."""
        token = self._store.get(token_id)
        now = self._clock()
        if token is None or not token.good_at(now):
            return False
        return self._store.prolong(token_id, expires_us=now + int(ttl_s * 1_000_000), now_us=now)

    def end(self, token_id: str) -> None:
        """Revoke a session. Idempotent."""
        with self.revoking():
            self._store.revoke(token_id, now_us=self._clock())

    def issue_job_fetch_token(self, project: str, job: str, *, ttl_s: float) -> str:
        """Issue a token that only downloads the packages of one job. It is invalid once the job has ended."""
        principal = Principal.of_job(project, job, Role.ARTIFACT_READER)
        return self._issue(principal, label=f"packages of job {job}", ttl_s=ttl_s)[0]

    def issue_version_fetch_token(self, project: str, model: str, version: str, *, ttl_s: float) -> str:
        """Issue a token that only downloads the files of one version. It is invalid once the version is deleted."""
        principal = Principal.of_version(project, model, version)
        return self._issue(principal, label=f"files of version {version} of model {model}", ttl_s=ttl_s)[0]

    def _is_active(self, principal: Principal) -> bool:
        """Return False for the principal of an ended job or a deleted version."""
        if principal.version is not None:
            return self._version_there(principal.project, *principal.version)
        return not principal.job or self._job_active(principal.project, principal.job)

    def visible(self, caller: Principal) -> list[dict[str, Any]]:
        """Return all tokens except those of ended jobs and deleted versions."""
        _check_owner(caller, caller.project)
        tokens = self._store.of_project(caller.project)
        return [token_body(token) for token in tokens if self._is_active(token.principal)]

    def revoke(self, caller: Principal, token_id: str) -> dict[str, Any]:
        token = self._store.get(token_id)
        if token is None or not caller.sees(token.principal.project):
            raise NotFoundError(f"There is no token {token_id}.")
        _check_owner(caller, token.principal.project)
        with self.revoking():
            is_revoked = self._store.revoke_unless_last(token_id, now_us=self._clock())
        if not is_revoked:
            raise FailedPreconditionError(
                "This is the last token of an owner of all projects: nobody could administer this server. Make another "
                "one first."
            )
        revoked = self._store.get(token_id)
        return token_body(revoked or token)

    def uploader(self, user: str, project: str) -> Principal | None:
        """Return the principal who continues an upload of a user. Returns None if the user is disabled."""
        if not user or self._user_disabled(user):
            return None
        return Principal(user=user, project=project, role=Role.EDITOR)

    @contextmanager
    def revoking(self) -> Iterator[None]:
        """Surround a write that ends tokens. Afterwards none that it ended is valid by the cache.

        A write that fails may have happened, or may still happen, if the connection to the database was lost. So what
        is read for a while after it is not cached.
        """
        try:
            yield
        except BaseException:
            self._cached_from_s = time.monotonic() + _OUTCOME_TIMEOUT_S
            raise
        finally:
            self.forget_cached()

    def forget_cached(self) -> None:
        """Clear the cache: entries may be older than a change of their tokens or users."""
        with self._lock:
            self._revocations += 1
            self._cache.clear()
        for listener in self._listeners:
            listener()

    def _issue(self, principal: Principal, *, label: str, ttl_s: float | None, parent: str = "") -> tuple[str, Token]:
        secret = f"ts_{secrets.token_urlsafe(32)}"
        created_us = self._clock()
        expires_us = None if ttl_s is None else created_us + int(ttl_s * 1_000_000)
        token = Token(
            id=secrets.token_hex(6),
            principal=principal,
            label=label[:200],
            created_us=created_us,
            expires_us=expires_us,
            parent=parent,
        )
        self._store.add(token, digest=token_digest(secret))
        return secret, token


def _is_bound(principal: Principal) -> bool:
    """Return whether the token ends with a job or version, which must be looked up."""
    return bool(principal.job) or principal.version is not None


def _check_owner(caller: Principal, project: str) -> None:
    if not caller.may(Access.ADMIN, project):
        raise PermissionDeniedError("Only an owner may manage tokens, and only those of the own project.")


def _ttl(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 10 * 365 * 86_400:
        raise InvalidArgumentError(
            "ttlSeconds must be a number of seconds, more than 0 and at most ten years.", field="ttlSeconds"
        )
    return float(value)


def token_body(token: Token) -> dict[str, Any]:
    """Return the public fields of a token."""
    return {
        "id": token.id,
        "user": token.principal.user,
        "project": token.principal.project,
        "role": token.principal.role.value,
        "label": token.label,
        "createTime": rfc3339(token.created_us),
        "expireTime": rfc3339(token.expires_us) if token.expires_us else None,
        "revokeTime": rfc3339(token.revoked_us) if token.revoked_us else None,
    }
