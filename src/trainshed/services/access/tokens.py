"""Who holds which token. The secret is shown once, when it is made, and kept nowhere."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainshed.domain import names
from trainshed.domain.iam import ALL_PROJECTS, USER_ROLES, Access, Principal, Role
from trainshed.domain.times import now_us, rfc3339
from trainshed.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from trainshed.store.tokens import Token, TokenStore

OWNER = Principal(user="owner", project=ALL_PROJECTS, role=Role.OWNER)
_REMEMBERED = 10_000  #: tokens
_FIELDS = {"user", "project", "role", "label", "ttl_s"}


def digest(secret: str) -> str:
    """Tokens are 256 random bits, so one plain hash is enough and each request can afford it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Tokens:
    """Look-ups are kept in memory; this service is the only writer, so a revoked token is refused at once."""

    def __init__(
        self,
        store: TokenStore,
        *,
        clock: Callable[[], int] = now_us,
        job_active: Callable[[str, str], bool] = lambda project, job: False,
        version_there: Callable[[str, str, str], bool] = lambda project, model, version: False,
    ) -> None:
        self._store = store
        self._version_there = version_there
        self._clock = clock
        self._job_active = job_active
        self._lock = threading.Lock()
        self._revocations = 0
        self._known: dict[str, Token] = {}

    def known(self, secret: str) -> Principal | None:
        """As `find`, from memory alone: None also means that nobody has asked before. Never waits."""
        token = self._known.get(digest(secret))
        if token is None or not token.good_at(self._clock()) or _is_bound(token.principal):
            return None
        return token.principal

    def find(self, secret: str) -> Principal | None:
        """Whoever holds this token, or None if it is unknown, expired or revoked."""
        token = self._find(secret)
        return token.principal if token else None

    def _find(self, secret: str) -> Token | None:
        key = digest(secret)
        revocations = self._revocations
        token = self._store.find(key)
        if token is None or not self._is_good(token):
            return None
        with self._lock:
            if self._revocations == revocations:  # else it may have been revoked since it was read
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[key] = token
        return token

    def _is_good(self, token: Token) -> bool:
        return token.good_at(self._clock()) and self._goes_on(token.principal)

    def ensure_owner(self, path: Path) -> None:
        """See to it that `path` holds a good token of the owner, readable by this user alone."""
        try:
            if self.find(path.read_text().strip()) is not None:
                return
        except FileNotFoundError:
            pass
        secret, _ = self._issue(OWNER, label="made on first start", ttl_s=None)
        fresh = path.with_name(f"{path.name}.new")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secret + "\n")
        fresh.rename(path)

    def create(self, caller: Principal, body: Mapping[str, Any]) -> dict[str, Any]:
        """A new token. Its project must be one where the caller is an owner; it can't do more than its maker."""
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
        secret, token = self._issue(principal, label=str(body.get("label", "")), ttl_s=_ttl(body.get("ttl_s")))
        return {"token": secret} | token_body(token)

    def exchange(
        self, secret: str, *, ttl_s: float, label: str = "by refresh token", most: int | None = None
    ) -> str | None:
        """A token of limited life with the rights of the one given, or None if that one is not good.

        It ends no later than that one and is revoked with it, and nothing can be got for it in turn.
        """
        token_id = self.exchangeable(secret)
        return None if token_id is None else self.got_for(token_id, ttl_s=ttl_s, label=label, most=most)

    def exchangeable(self, secret: str) -> str | None:
        """The id of a token for which another one can be got; None if it is not good, was itself got for one, or is
        a courier's.
        """
        token = self._find(secret)
        if token is None or token.parent or token.principal.role is Role.COURIER:
            return None
        return token.id

    def got_for(self, token_id: str, *, ttl_s: float, label: str, most: int | None = None) -> str | None:
        """As `exchange`, for one that was `exchangeable`. None if that is good no more.

        With `most`, the oldest with that label end, so that there are no more than that.
        """
        token = self._store.get(token_id)
        if token is None or not self._is_good(token):
            return None
        if token.expires_us is not None:
            ttl_s = min(ttl_s, (token.expires_us - self._clock()) / 1_000_000)
        secret, got = self._issue(token.principal, label=label, ttl_s=ttl_s, parent=token.id)
        if (now := self._store.get(token_id)) is None or now.revoked_us is not None:  # revoked before it was written
            self._store.revoke(got.id, now_us=self._clock())
            return None
        if most is not None and self._store.keep_newest(token_id, label=label, most=most):
            self._forget()
        return secret

    def revoke_exchanged(self, secret: str) -> None:
        """End a token that was got for another one. Any other is left as it is."""
        token = self._find(secret)
        if token is not None and token.parent:
            self._store.revoke(token.id, now_us=self._clock())
            self._forget()

    def issue_for_job(self, project: str, job: str, *, ttl_s: float) -> str:
        """A token for the code of one job: an editor of its project.

        It, and whatever is got for it by `exchange`, opens nothing from the moment when the job has ended: the job's
        row decides, so nobody has to remember to revoke it.
        """
        principal = Principal.of_job(project, job, Role.EDITOR)
        return self._issue(principal, label=f"job {job}", ttl_s=ttl_s)[0]

    def issue_job_fetch_token(self, project: str, job: str, *, ttl_s: float) -> str:
        """A token that fetches the packages of one job, and can do nothing else. It ends as the job's own does."""
        principal = Principal.of_job(project, job, Role.COURIER)
        return self._issue(principal, label=f"packages of job {job}", ttl_s=ttl_s)[0]

    def issue_version_fetch_token(self, project: str, model: str, version: str, *, ttl_s: float) -> str:
        """A token that fetches the files of one version, and can do nothing else. It ends with the version."""
        principal = Principal.of_version(project, model, version)
        return self._issue(principal, label=f"files of version {version} of model {model}", ttl_s=ttl_s)[0]

    def _goes_on(self, principal: Principal) -> bool:
        """False for the principal of a job that has ended, or of a version that is gone."""
        if principal.version is not None:
            return self._version_there(principal.project, *principal.version)
        return not principal.job or self._job_active(principal.project, principal.job)

    def visible(self, caller: Principal) -> list[dict[str, Any]]:
        """All but those of jobs that have ended, and of versions that are gone."""
        _check_owner(caller, caller.project)
        found = self._store.of_project(caller.project)
        return [token_body(token) for token in found if self._goes_on(token.principal)]

    def revoke(self, caller: Principal, token_id: str) -> dict[str, Any]:
        token = self._store.get(token_id)
        if token is None or not caller.sees(token.principal.project):
            raise NotFoundError(f"There is no token {token_id}.")
        _check_owner(caller, token.principal.project)
        self._store.revoke(token_id, now_us=self._clock())
        self._forget()
        revoked = self._store.get(token_id)
        return token_body(revoked or token)

    def _forget(self) -> None:
        """A row was revoked: what is in memory may be older than that."""
        with self._lock:
            self._revocations += 1
            self._known.clear()

    def _issue(self, principal: Principal, *, label: str, ttl_s: float | None, parent: str = "") -> tuple[str, Token]:
        secret = f"ts_{secrets.token_urlsafe(32)}"
        made = self._clock()
        expires = None if ttl_s is None else made + int(ttl_s * 1_000_000)
        token = Token(
            id=secrets.token_hex(6),
            principal=principal,
            label=label[:200],
            created_us=made,
            expires_us=expires,
            parent=parent,
        )
        self._store.add(token, digest=digest(secret))
        return secret, token


def _is_bound(principal: Principal) -> bool:
    """Whether its token ends with something else, which has to be looked up."""
    return bool(principal.job) or principal.version is not None


def _check_owner(caller: Principal, project: str) -> None:
    if not caller.may(Access.ADMIN, project):
        raise PermissionDeniedError("Only an owner may manage tokens, and only those of the own project.")


def _ttl(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 10 * 365 * 86_400:
        raise InvalidArgumentError(
            "ttl_s must be a number of seconds, more than 0 and at most ten years.", field="ttl_s"
        )
    return float(value)


def token_body(token: Token) -> dict[str, Any]:
    """What may be shown of a token."""
    return {
        "id": token.id,
        "user": token.principal.user,
        "project": token.principal.project,
        "role": token.principal.role.value,
        "label": token.label,
        "created": rfc3339(token.created_us),
        "expires": rfc3339(token.expires_us) if token.expires_us else None,
        "revoked": rfc3339(token.revoked_us) if token.revoked_us else None,
    }
