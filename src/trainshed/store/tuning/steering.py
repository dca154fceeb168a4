"""Rows of what people changed about a search while it runs."""

from __future__ import annotations

import orjson

from trainshed.domain.tuning.space import Point
from trainshed.domain.tuning.steering import OwnPoint, Steering
from trainshed.store.database import Database, Transaction, load_queries, storable

QUERY = load_queries("steering")


class SteeringStore:
    """Rows of steering, by project and job. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, project: str, job_id: str) -> Steering:
        """Return what was changed about a search. Empty if nothing was."""
        key = {"project": project, "job": job_id}
        with self._database.read() as tx:
            rows, points = tx.rows(QUERY["steering_of"], key), tx.rows(QUERY["points_of"], key)
        own = tuple(OwnPoint(each["number"], orjson.loads(each["point"])) for each in points)
        for row in rows:
            bounds = {"max_trials": row["max_trials"], "max_parallel": row["max_parallel"]}
            return Steering(**bounds, finish=row["finish"], points=own)
        return Steering(points=own)

    def change(
        self,
        project: str,
        job_id: str,
        *,
        max_trials: int | None = None,
        max_parallel: int | None = None,
        finish: str = "",
    ) -> None:
        """Write what is given and keep the rest. The first reason to finish counts. Idempotent."""
        values = {
            "project": project,
            "job": job_id,
            "max_trials": max_trials,
            "max_parallel": max_parallel,
            "finish": storable(finish),
        }
        with self._database.write() as tx:
            tx.run(QUERY["set_steering"], values)

    def add_point(self, project: str, job_id: str, point: Point) -> None:
        """Store a point behind those that wait."""
        key = {"project": project, "job": job_id}
        with self._database.write() as tx:
            tx.lock(QUERY["lock_job"], key)
            [row] = tx.rows(QUERY["next_number"], key)
            values = {"number": row["number"], "point": orjson.dumps(dict(point)).decode()}
            tx.run(QUERY["insert_point"], key | values)


def delete_point(tx: Transaction, project: str, job_id: str, number: int) -> None:
    """Delete a point that becomes a trial, in the transaction that stores the trial."""
    tx.run(QUERY["delete_point"], {"project": project, "job": job_id, "number": number})
