"""Rows of tokens, and of the users and service accounts that they name. Only a hash of a secret is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainshed.domain.iam import Principal, Role, UserKind
from trainshed.node.crashpoints import crashpoint
from trainshed.store.database import Database, Transaction, load_queries

QUERY = load_queries("tokens")
USER_QUERY = load_queries("users")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token without its secret."""

    id: str
    principal: Principal
    label: str
    created_us: int
    expires_us: int | None = None
    revoked_us: int | None = None
    disabled: bool = False  #: whether its user is
    parent: str = ""  #: id of the token that was exchanged for it; empty if none was
    public_key: str = ""  #: of the key of a service account, which has no secret here

    def good_at(self, now_us: int) -> bool:
        return not self.disabled and self.revoked_us is None and (self.expires_us is None or now_us < self.expires_us)


class TokenStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, token: Token, *, digest: str) -> None:
        """Store a new token, with its user if that is new, and delete tokens that expired at least a day ago."""
        values = {
            "id": token.id,
            "hash": digest,
            "parent": token.parent,
            "user_name": token.principal.user,
            "project": token.principal.project,
            "role": token.principal.role.value,
            "label": token.label,
            "created_us": token.created_us,
            "expires_us": token.expires_us,
            "public_key": token.public_key,
        }
        with self._database.write() as tx:
            tx.run(QUERY["forget_expired"], {"before_us": token.created_us - 86_400_000_000})
            tx.run(QUERY["insert_token"], values)
            if not token.principal.job and token.principal.version is None:
                insert_user(tx, User(name=token.principal.user, kind=UserKind.USER, created_us=token.created_us))
            crashpoint("token.create.before_commit")
        crashpoint("token.create.after_commit")

    def find(self, digest: str) -> Token | None:
        with self._database.read() as tx:
            rows = tx.rows(QUERY["token_of_hash"], {"hash": digest})
        return _token(rows[0]) if rows else None

    def get(self, token_id: str) -> Token | None:
        with self._database.read() as tx:
            rows = tx.rows(QUERY["get_token"], {"id": token_id})
        return _token(rows[0]) if rows else None

    def keys_of(self, user: str, project: str) -> Sequence[Token]:
        """The keys of a service account in a project that are not revoked, the newest first."""
        with self._database.read() as tx:
            return [_token(row) for row in tx.rows(QUERY["keys_of"], {"user_name": user, "project": project})]

    def of_project(self, project: str) -> Sequence[Token]:
        """The tokens of one project, or of all with ALL_PROJECTS."""
        with self._database.read() as tx:
            return [_token(row) for row in tx.rows(QUERY["list_tokens"], {"project": project})]

    def keep_newest(self, parent: str, *, label: str, most: int) -> bool:
        """Delete all but the newest `most` tokens with this label and parent. Returns whether any were deleted."""
        values = {"parent": parent, "label": label, "most": most}
        with self._database.write() as tx:
            return tx.run(QUERY["forget_older"], values) > 0

    def prolong(self, token_id: str, *, expires_us: int, now_us: int) -> bool:
        """Set when a token expires. Returns False, and changes nothing, if it is not valid."""
        values = {"id": token_id, "expires_us": expires_us, "now_us": now_us}
        with self._database.write(riders=()) as tx:
            return tx.run(QUERY["prolong_token"], values) > 0

    def revoke_unless_last(self, token_id: str, *, now_us: int) -> bool:
        """Like `revoke`, unless no token of an owner of all projects would be left. Returns whether one is left."""
        with self._database.write() as tx:
            if locks_out(tx, now_us=now_us, token=token_id):
                return False
            tx.run(QUERY["revoke_token"], {"id": token_id, "now_us": now_us})
            crashpoint("token.revoke.before_commit")
        crashpoint("token.revoke.after_commit")
        return True

    def revoke(self, token_id: str, *, now_us: int) -> None:
        """Revoke a token and its children. Idempotent: the first revocation time stays."""
        with self._database.write() as tx:
            tx.run(QUERY["revoke_token"], {"id": token_id, "now_us": now_us})


def _token(row: Mapping[str, Any]) -> Token:
    principal = Principal(user=row["user_name"], project=row["project"], role=Role(row["role"]))
    return Token(
        id=row["id"],
        principal=principal,
        label=row["label"],
        created_us=row["created_us"],
        expires_us=row["expires_us"],
        revoked_us=row["revoked_us"],
        disabled=row["disabled_us"] is not None,
        parent=row["parent"],
        public_key=row["public_key"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user or a service account."""

    name: str
    kind: UserKind
    created_us: int
    disabled_us: int | None = None


class UserStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def ensure(self, user: User) -> bool:
        """Add a user. Returns False, and changes nothing, if the name is taken."""
        with self._database.write() as tx:
            return insert_user(tx, user)

    def get(self, name: str) -> User | None:
        with self._database.read() as tx:
            rows = tx.rows(USER_QUERY["get_user"], {"name": name})
        return _user(rows[0]) if rows else None

    def is_disabled(self, name: str) -> bool:
        user = self.get(name)
        return user is not None and user.disabled_us is not None

    def all(self) -> list[User]:
        with self._database.read() as tx:
            return [_user(row) for row in tx.rows(USER_QUERY["list_users"])]

    def disable(self, name: str, *, now_us: int) -> bool:
        """Disable a user, unless no owner of all projects would be left. Returns whether one is left.

        Idempotent: the first time stays.
        """
        with self._database.write() as tx:
            if locks_out(tx, now_us=now_us, user=name):
                return False
            tx.run(USER_QUERY["disable_user"], {"name": name, "now_us": now_us})
        return True

    def enable(self, name: str) -> None:
        with self._database.write() as tx:
            tx.run(USER_QUERY["enable_user"], {"name": name})


def insert_user(tx: Transaction, user: User) -> bool:
    """Add a user in a transaction. Returns False if the name is taken."""
    values = {"name": user.name, "kind": user.kind.value, "created_us": user.created_us}
    return tx.run(USER_QUERY["ensure_user"], values) > 0


def locks_out(tx: Transaction, *, now_us: int, user: str = "", token: str = "") -> bool:
    """Return whether there are valid tokens of owners of all projects, but none without this user or token."""
    return _owners(tx, now_us, user, token) == 0 and _owners(tx, now_us, "", "") > 0


def _owners(tx: Transaction, now_us: int, except_user: str, except_token: str) -> int:
    values = {"now_us": now_us, "except_user": except_user, "except_token": except_token}
    [row] = tx.rows(USER_QUERY["other_owners"], values)
    return int(row["owners"])


def _user(row: Mapping[str, Any]) -> User:
    return User(
        name=row["name"], kind=UserKind(row["kind"]), created_us=row["created_us"], disabled_us=row["disabled_us"]
    )
