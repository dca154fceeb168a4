"""Rows of projects' networks."""

from __future__ import annotations

from trainshed.store.database import Database, load_queries

QUERY = load_queries("networks")


class NetworkStore:
    """The networks of projects that have one of their own. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, project: str) -> str | None:
        """The network of a project. Returns None if it has the server's."""
        with self._database.read() as tx:
            rows = tx.rows(QUERY["find_network"], {"project": project})
        return str(rows[0]["access"]) if rows else None

    def put(self, project: str, access: str) -> None:
        with self._database.write() as tx:
            tx.run(QUERY["put_network"], {"project": project, "access": access})

    def delete(self, project: str) -> None:
        """Let a project have the server's network. Idempotent."""
        with self._database.write() as tx:
            tx.run(QUERY["delete_network"], {"project": project})
