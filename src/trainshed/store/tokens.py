"""Rows of tokens. Only a hash of the secret is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainshed.domain.iam import Principal, Role
from trainshed.node.crashpoints import crashpoint
from trainshed.store.database import Database, load_queries

QUERY = load_queries("tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token without its secret."""

    id: str
    principal: Principal
    label: str
    created_us: int
    expires_us: int | None = None
    revoked_us: int | None = None
    parent: str = ""  #: id of the token that was exchanged for it; empty if none was

    def good_at(self, now_us: int) -> bool:
        return self.revoked_us is None and (self.expires_us is None or now_us < self.expires_us)


class TokenStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, token: Token, *, digest: str) -> None:
        """Store a new token, and delete tokens that expired at least a day ago."""
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
        }
        with self._database.write() as tx:
            tx.run(QUERY["forget_expired"], {"before_us": token.created_us - 86_400_000_000})
            tx.run(QUERY["insert_token"], values)
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

    def of_project(self, project: str) -> Sequence[Token]:
        """The tokens of one project, or of all with ALL_PROJECTS."""
        with self._database.read() as tx:
            return [_token(row) for row in tx.rows(QUERY["list_tokens"], {"project": project})]

    def keep_newest(self, parent: str, *, label: str, most: int) -> bool:
        """Delete all but the newest `most` tokens with this label and parent. Returns whether any were deleted."""
        values = {"parent": parent, "label": label, "most": most}
        with self._database.write() as tx:
            return tx.run(QUERY["forget_older"], values) > 0

    def revoke(self, token_id: str, *, now_us: int) -> None:
        """Revoke a token and its children. Idempotent: the first revocation time stays."""
        with self._database.write() as tx:
            tx.run(QUERY["revoke_token"], {"id": token_id, "now_us": now_us})
            crashpoint("token.revoke.before_commit")
        crashpoint("token.revoke.after_commit")


def _token(row: Mapping[str, Any]) -> Token:
    principal = Principal(user=row["user_name"], project=row["project"], role=Role(row["role"]))
    return Token(
        id=row["id"],
        principal=principal,
        label=row["label"],
        created_us=row["created_us"],
        expires_us=row["expires_us"],
        revoked_us=row["revoked_us"],
        parent=row["parent"],
    )
