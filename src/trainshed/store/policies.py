"""Rows of IAM policies."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import sqlalchemy as sa

from trainshed.domain.policies import Binding, Policy
from trainshed.errors import WriteConflictError
from trainshed.store.database import Database, is_duplicate, load_queries

QUERY = load_queries("policies")


class PolicyStore:
    """Rows of policies, by the full name of the resource.

    A resource without a row has the empty policy, generation 0.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, resource: str) -> Policy:
        with self._database.read() as tx:
            rows = tx.rows(QUERY["get_policy"], {"resource": resource})
        if not rows:
            return Policy()
        bindings = tuple(
            Binding(role=role, members=tuple(members)) for role, members in orjson.loads(rows[0]["bindings"])
        )
        return Policy(bindings=bindings, generation=rows[0]["generation"])

    def replace(self, resource: str, bindings: Sequence[Binding], *, generation: int) -> Policy:
        """Replace the policy of that generation. Raises `WriteConflictError` if it changed since it was read."""
        text = orjson.dumps([[binding.role, binding.members] for binding in bindings]).decode()
        values = {"resource": resource, "bindings": text, "generation": generation}
        try:
            with self._database.write() as tx:
                changed_rows = tx.run(QUERY["update_policy" if generation else "insert_policy"], values)
        except sa.exc.IntegrityError as exc:
            if not is_duplicate(exc):
                raise
            changed_rows = 0
        if changed_rows == 0:
            raise WriteConflictError(
                "The policy was changed by someone else since it was read. Read it again, then write."
            )
        return Policy(bindings=tuple(bindings), generation=generation + 1)
