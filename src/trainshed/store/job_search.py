"""Jobs looked through by people: by a part of the name, by label, by state; and how many there are of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from trainshed.domain.jobs.job import Job, JobState
from trainshed.store.database import Database, load_queries
from trainshed.store.jobs import job_from_row

QUERY = load_queries("job_search")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSearchQuery:
    """Which jobs of a project are sought. Nothing given: all of them."""

    text: str = ""  #: a part of the id, or of a label as key=value, in either case
    labels: tuple[tuple[str, str | None], ...] = ()  #: all of these; None: any value
    key: str = ""  #: of the body, such as trainingInput

    @property
    def is_all(self) -> bool:
        return not (self.text or self.labels or self.key)


class JobSearchStore:
    """Reads only. Threads may share it."""

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
        """Up to `limit` jobs in these states, older than `before` (its created_us and id), newest first."""
        values = {
            "states": [state.value for state in states],
            "before_us": before[0],
            "before_id": before[1],
            "limit": limit,
        }
        query = _labelled("page", search).bindparams(sa.bindparam("states", expanding=True))
        with self._database.read() as tx:
            rows = tx.rows(query, _values(project, search) | values)
        return [job_from_row(row) for row in rows]

    def counts(self, project: str, search: JobSearchQuery) -> Mapping[JobState, int]:
        """How many there are in each state, of the states that have any."""
        with self._database.read() as tx:
            if search.is_all:
                rows = tx.rows(QUERY["counts_of_all"], {"project": project})
            else:
                rows = tx.rows(_labelled("counts", search), _values(project, search))
        return {JobState(row["state"]): int(row["found"]) for row in rows}

    def failed_since(self, project: str, since_us: int, *, limit: int) -> Sequence[Job]:
        """Those that FAILED since then, the last one first."""
        values = {"project": project, "since_us": since_us, "limit": limit}
        with self._database.read() as tx:
            return [job_from_row(row) for row in tx.rows(QUERY["failed_since"], values)]

    def queue(self, project: str, *, limit: int) -> Sequence[Job]:
        """Those that wait, in the order in which they leave the queue."""
        with self._database.read() as tx:
            return [job_from_row(row) for row in tx.rows(QUERY["queue"], {"project": project, "limit": limit})]

    def ended_since(self, project: str, since_us: int) -> Mapping[JobState, int]:
        """How many have SUCCEEDED and FAILED since then."""
        with self._database.read() as tx:
            rows = tx.rows(QUERY["counts_ended"], {"project": project, "since_us": since_us})
        return {JobState(row["state"]): int(row["found"]) for row in rows}


def _labelled(name: str, search: JobSearchQuery) -> sa.TextClause:
    """The query, with a condition for each label."""
    conditions = [f"and labels like :label_{number} escape '!'" for number in range(len(search.labels))]
    return sa.text(QUERY[name].text.replace("{and_labels}", " ".join(conditions)))


def _values(project: str, search: JobSearchQuery) -> dict[str, str]:
    values = {
        "project": project,
        "pattern": f"%{_plain(search.text.lower())}%" if search.text else "%",
        "body": f'{{"{_plain(search.key)}"%' if search.key else "%",
    }
    for number, (key, value) in enumerate(search.labels):
        ending = "" if value is None else f'"{_plain(value)}"'
        values[f"label_{number}"] = f'%"{_plain(key)}":{ending}%'
    return values


def _plain(text: str) -> str:
    """The text, with no sign in it that means something to `like`."""
    for sign in "!%_":
        text = text.replace(sign, f"!{sign}")
    return text
