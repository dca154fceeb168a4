"""Search of jobs by part of the name, label and state, with counts per state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.store.database import Database, load_queries
from trainshed.store.jobs import job_from_row
from trainshed.store.rows import read_page

QUERY = load_queries("job_search")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSearchQuery:
    """Which jobs of a project to search. Empty: all of them."""

    text: str = ""  #: part of the id, or of a label as key=value; case-insensitive
    labels: tuple[tuple[str, str | None], ...] = ()  #: all must match; None: any value
    key: str = ""  #: key of the body, such as trainingInput

    @property
    def is_all(self) -> bool:
        return not (self.text or self.labels or self.key)


class JobSearchStore:
    """Read-only queries over jobs. Thread-safe. Lists leave unreadable jobs out; counts have them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(
        self,
        project: str,
        search: JobSearchQuery,
        *,
        states: Sequence[JobState],
        before: tuple[int, str],
        limit: int,
    ) -> Sequence[Job]:
        """Up to `limit` jobs in these states, older than `before` (its order_us and id), newest first."""
        values = {
            "states": [state.value for state in states],
            "before_us": before[0],
            "before_id": before[1],
        }
        query = _with_label_conditions("page", search).bindparams(sa.bindparam("states", expanding=True))
        with self._database.read() as tx:
            return read_page(tx, query, _values(project, search) | values, job_from_row, limit=limit).values

    def counts(self, project: str, search: JobSearchQuery) -> Mapping[JobState, int]:
        """The number of jobs per state. States without jobs are left out, and what is no state."""
        with self._database.read() as tx:
            if search.is_all:
                rows = tx.rows(QUERY["counts_of_all"], {"project": project})
            else:
                rows = tx.rows(_with_label_conditions("counts", search), _values(project, search))
        return _by_state(rows)

    def counts_of_all_projects(self) -> Mapping[JobState, int]:
        """The number of jobs per state, like `counts`."""
        with self._database.read() as tx:
            return _by_state(tx.rows(QUERY["counts_of_all_projects"], {}))

    def failed_since(self, project: str, since_us: int, *, limit: int) -> Sequence[Job]:
        """Jobs that FAILED since that time, latest first."""
        values = {"project": project, "since_us": since_us}
        with self._database.read() as tx:
            return read_page(tx, QUERY["failed_since"], values, job_from_row, limit=limit).values

    def ended_since(self, project: str, since_us: int) -> Mapping[JobState, int]:
        """The number of jobs that SUCCEEDED and FAILED since that time."""
        with self._database.read() as tx:
            rows = tx.rows(QUERY["counts_ended"], {"project": project, "since_us": since_us})
        return {JobState(row["state"]): int(row["found"]) for row in rows}


def _by_state(rows: Iterable[Mapping[str, Any]]) -> dict[JobState, int]:
    return {JobState(row["state"]): int(row["found"]) for row in rows if row["state"] in JobState.__members__}


def _with_label_conditions(name: str, search: JobSearchQuery) -> sa.TextClause:
    """The query with one condition per label."""
    conditions = [f"and labels like :label_{number} escape '!'" for number in range(len(search.labels))]
    return sa.text(QUERY[name].text.replace("{and_labels}", " ".join(conditions)))


def _values(project: str, search: JobSearchQuery) -> dict[str, str]:
    values = {
        "project": project,
        "pattern": f"%{_escape_like(search.text.lower())}%" if search.text else "%",
        "body": f'{{"{_escape_like(search.key)}"%' if search.key else "%",
    }
    for number, (key, value) in enumerate(search.labels):
        value_pattern = "" if value is None else f'"{_escape_like(value)}"'
        values[f"label_{number}"] = f'%"{_escape_like(key)}":{value_pattern}%'
    return values


def _escape_like(text: str) -> str:
    """Escape the special characters of `like`."""
    for character in "!%_":
        text = text.replace(character, f"!{character}")
    return text
