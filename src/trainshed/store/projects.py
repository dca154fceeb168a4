"""Projects as rows. A project comes into being when it is first used."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from trainshed.errors import UnavailableError
from trainshed.store.database import Database, is_duplicate, load_queries

QUERY = load_queries("projects")
_TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project and the number that Google's clients know it by besides its id."""

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

    def used(self) -> list[str]:
        """The ids of all projects that have a bucket, a job or a model, in order."""
        with self._database.read() as tx:
            return [str(row["project"]) for row in tx.rows(QUERY["used_projects"], {})]

    def ensure(self, project_id: str, *, now_us: int) -> Project:
        """The project, made if there was none. Two callers at once get the same one."""
        for attempt in range(_TRIES):
            if (found := self.find(project_id)) is not None:
                return found
            project = Project(id=project_id, number=_number(project_id, attempt), created_us=now_us)
            values = {"id": project.id, "number": project.number, "created_us": project.created_us}
            try:
                with self._database.write() as tx:
                    tx.run(QUERY["insert_project"], values)
            except sa.exc.IntegrityError as exc:  # someone else made it, or its number is taken: look again
                if not is_duplicate(exc):
                    raise
            else:
                return project
        raise UnavailableError(f"No free number was found for project {project_id}. Try again.")


def _project(row: Mapping[str, Any]) -> Project:
    return Project(**row)


def _number(project_id: str, attempt: int) -> int:
    """Twelve digits, the same for the same id on every server as long as nothing collides."""
    digest = hashlib.sha256(f"{project_id}/{attempt}".encode()).digest()
    return 10**11 + int.from_bytes(digest[:8], "big") % (9 * 10**11)
