"""Rows of secrets. The database has no value in clear."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainshed.store.database import Database, load_queries

QUERY = load_queries("secrets")


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSecret:
    """A secret as it is stored."""

    project: str
    name: str
    key_id: str
    sealed: str
    user: str  #: who set it
    updated_us: int


class SecretStore:
    """Rows of secrets. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, secret: SealedSecret) -> None:
        """Store a secret, in place of one of the same name."""
        with self._database.write() as tx:
            tx.run(QUERY["put_secret"], _values(secret))

    def of(self, project: str) -> Sequence[SealedSecret]:
        with self._database.read() as tx:
            return [_secret(row) for row in tx.rows(QUERY["secrets_of"], {"project": project})]

    def all(self) -> Sequence[SealedSecret]:
        with self._database.read() as tx:
            return [_secret(row) for row in tx.rows(QUERY["all_secrets"])]

    def delete(self, project: str, name: str) -> bool:
        """Delete a secret. Returns whether it was there."""
        with self._database.write() as tx:
            return tx.run(QUERY["delete_secret"], {"project": project, "name": name}) > 0

    def reseal(self, reseal: Callable[[SealedSecret], SealedSecret | None]) -> int:
        """Write what `reseal` returns for each secret, in one transaction. Returns how many were written."""
        with self._database.write() as tx:
            before = [_secret(row) for row in tx.rows(QUERY["all_secrets"])]
            changed = [(old, new) for old in before if (new := reseal(old)) is not None]
            return sum(
                tx.run(QUERY["reseal_secret"], _key_values(new) | {"old_key_id": old.key_id, "old_sealed": old.sealed})
                for old, new in changed
            )


def _key_values(secret: SealedSecret) -> dict[str, Any]:
    return {"project": secret.project, "name": secret.name, "key_id": secret.key_id, "sealed": secret.sealed}


def _values(secret: SealedSecret) -> dict[str, Any]:
    return _key_values(secret) | {"user_name": secret.user, "updated_us": secret.updated_us}


def _secret(row: Mapping[str, Any]) -> SealedSecret:
    return SealedSecret(
        project=row["project"],
        name=row["name"],
        key_id=row["key_id"],
        sealed=row["sealed"],
        user=row["user_name"],
        updated_us=row["updated_us"],
    )
