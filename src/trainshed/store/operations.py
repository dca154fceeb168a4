"""Rows of long-running operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
import sqlalchemy as sa

from trainshed.domain.operations import Operation
from trainshed.errors import AlreadyExistsError, NotFoundError, WriteConflictError
from trainshed.store.database import Database, Transaction, is_duplicate, load_queries

QUERY = load_queries("operations")


class OperationStore:
    """Rows of operations. Each write is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, operation: Operation) -> Operation:
        """Store a new operation. Raises `AlreadyExistsError` if its project ever had an operation with this id."""
        try:
            with self._database.write() as tx:
                tx.run(QUERY["insert_operation"], _values(operation))
        except sa.exc.IntegrityError as exc:
            if not is_duplicate(exc):
                raise
            raise AlreadyExistsError(f"There is an operation {operation.id} already.") from exc
        return operation

    def get(self, project: str, operation_id: str) -> Operation:
        with self._database.read() as tx:
            rows = tx.rows(QUERY["get_operation"], {"project": project, "id": operation_id})
        if not rows:
            raise NotFoundError(f"There is no operation {operation_id} in project {project}.")
        return _operation(rows[0])

    def record(self, operation: Operation) -> Operation:
        """Write a changed operation. Raises `WriteConflictError` if the row changed since it was read."""
        with self._database.write() as tx:
            return update_operation(tx, operation)

    def page(self, project: str, *, before: tuple[int, str], limit: int) -> Sequence[Operation]:
        """Up to `limit` operations older than `before` (its order_us and id), newest first."""
        values = {"project": project, "before_us": before[0], "before_id": before[1], "limit": limit}
        with self._database.read() as tx:
            return [_operation(row) for row in tx.rows(QUERY["list_operations"], values)]


def insert_operation(tx: Transaction, operation: Operation) -> Operation:
    """Store a new operation in the transaction of its resource.

    If its id exists, the number at its end is incremented.
    """
    stem, _, number = operation.id.rpartition("-")
    while tx.run(QUERY["insert_if_free"], _values(operation)) == 0:
        number = str(int(number) + 1)
        operation = replace(operation, id=f"{stem}-{number}")
    return operation


def update_operation(tx: Transaction, operation: Operation) -> Operation:
    """Like `OperationStore.record`, in the transaction of its resource."""
    if tx.run(QUERY["update_operation"], _values(operation)) == 0:
        raise WriteConflictError(f"Operation {operation.id} was changed by someone else; read it again.")
    return replace(operation, generation=operation.generation + 1)


def _operation(row: Mapping[str, Any]) -> Operation:
    parsed = {name: orjson.loads(row[name]) if row[name] else None for name in ("metadata", "error", "response")}
    return Operation(**{**row, **parsed, "done": bool(row["done"])})


def _values(operation: Operation) -> dict[str, Any]:
    def text(value: Mapping[str, Any] | None) -> str | None:
        return None if value is None else orjson.dumps(value).decode()

    return {
        "project": operation.project,
        "id": operation.id,
        "metadata": text(operation.metadata),
        "done": int(operation.done),
        "error": text(operation.error),
        "response": text(operation.response),
        "created_us": operation.created_us,
        "generation": operation.generation,
    }
