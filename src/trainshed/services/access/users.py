"""Users and service accounts. Disabling one ends its tokens and sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainshed.domain import names
from trainshed.domain.iam import UserKind
from trainshed.domain.times import now_us, rfc3339
from trainshed.errors import AlreadyExistsError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from trainshed.services.access.tokens import Tokens
from trainshed.store.tokens import User, UserStore


class Users:
    """The users of the server. Thread-safe."""

    def __init__(
        self,
        store: UserStore,
        tokens: Tokens,
        *,
        cancel_jobs: Callable[[str, str], object] = lambda user, by: None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """`cancel_jobs` is called with the name of a user who was disabled, and of the one who did it."""
        self._store = store
        self._tokens = tokens
        self._cancel_jobs = cancel_jobs
        self._clock = clock

    def visible(self) -> list[dict[str, Any]]:
        return [user_body(user) for user in self._store.all()]

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Add a user or a service account. It can do nothing until a token names it."""
        kind = body.get("kind", UserKind.USER)
        if kind not in list(UserKind):
            raise InvalidArgumentError(
                f"A kind is one of {', '.join(UserKind)}; {str(kind)[:40]!r} is not.", field="kind"
            )
        user = User(name=names.user_name(str(body.get("name", ""))), kind=UserKind(kind), created_us=self._clock())
        if not self._store.ensure(user):
            raise AlreadyExistsError(f"There is a user {user.name} already.")
        return user_body(user)

    def disable(self, name: str, *, by: str) -> dict[str, Any]:
        """End the tokens and sessions of a user, refuse new ones, and cancel the user's jobs. Idempotent.

        Raises `FailedPreconditionError` if no owner of all projects would be left.
        """
        self._get(name)
        with self._tokens.revoking():
            is_disabled = self._store.disable(name, now_us=self._clock())
        if not is_disabled:
            raise FailedPreconditionError(
                f"{name} is the last owner of all projects: nobody could administer this server. Make another one with "
                f"`trainshed auth tokens create --user NAME --project '*' --role owner`."
            )
        self._cancel_jobs(name, by)
        return user_body(self._get(name))

    def enable(self, name: str) -> dict[str, Any]:
        """Enable a user: tokens that are neither expired nor revoked are valid again. Idempotent."""
        self._get(name)
        self._store.enable(name)
        self._tokens.forget_cached()
        return user_body(self._get(name))

    def _get(self, name: str) -> User:
        user = self._store.get(name)
        if user is None:
            raise NotFoundError(f"There is no user {name}.")
        return user


def user_body(user: User) -> dict[str, Any]:
    """Return a user as a resource of the API."""
    return {
        "name": user.name,
        "kind": user.kind.value,
        "createTime": rfc3339(user.created_us),
        "disableTime": rfc3339(user.disabled_us) if user.disabled_us else None,
    }
