"""Rows of projects. A project is created at its first use."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from trainshed.errors import UnavailableError
from trainshed.store.database import Database, is_duplicate, load_queries

QUERY = load_queries("projects")
_MAX_ATTEMPTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project and its number, which Google's clients use besides its id."""

    id: str
    number: int
    created_us: int


class ProjectStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, project_id: str) -> Project | None:
        with self._database.read() as tx:
            rows = tx.rows(QUERY["get_project"], {"id": project_id})
        return _project(rows[0]) if rows else None

    def find_number(self, number: int) -> Project | None:
        with self._database.read() as tx:
            rows = tx.rows(QUERY["get_project_of_number"], {"number": number})
        return _project(rows[0]) if rows else None

    def used(self) -> list[str]:
        """The ids of all projects that have a bucket, a job or a model, sorted."""
        with self._database.read() as tx:
            return [str(row["project"]) for row in tx.rows(QUERY["used_projects"], {})]

    def ensure(self, project_id: str, *, now_us: int) -> Project:
        """Return the project, or create it. Concurrent callers get the same project."""
        for attempt in range(_MAX_ATTEMPTS):
            if (existing := self.find(project_id)) is not None:
                return existing
            project = Project(id=project_id, number=_number(project_id, attempt), created_us=now_us)
            values = {"id": project.id, "number": project.number, "created_us": project.created_us}
            try:
                with self._database.write(riders=()) as tx:  # a side effect, and not what is asked for
                    tx.run(QUERY["insert_project"], values)
            except sa.exc.IntegrityError as exc:  # another caller created it, or its number is taken: read again
                if not is_duplicate(exc):
                    raise
            else:
                return project
        raise UnavailableError(f"No free number was found for project {project_id}. Try again.")


def _project(row: Mapping[str, Any]) -> Project:
    return Project(**row)


def _number(project_id: str, attempt: int) -> int:
    """A number of twelve digits. It depends only on the id, unless numbers collide."""
    digest = hashlib.sha256(f"{project_id}/{attempt}".encode()).digest()
    return 10**11 + int.from_bytes(digest[:8], "big") % (9 * 10**11)
