"""Rows of what people changed about a search while it runs."""

from __future__ import annotations

import orjson

from trainshed.domain.tuning.steering import OwnPoint, Steering, SteeringChange
from trainshed.store.database import Database, Transaction, load_queries, storable

QUERY = load_queries("steering")


class SteeringStore:
    """Rows of steering, by project and job. `TrialStore.steer` writes them. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, project: str, job_id: str) -> Steering:
        """Return what was changed about a search. Empty if nothing was."""
        with self._database.read() as tx:
            return read_steering(tx, project, job_id)


def read_steering(tx: Transaction, project: str, job_id: str) -> Steering:
    key = {"project": project, "job": job_id}
    rows, points = tx.rows(QUERY["steering_of"], key), tx.rows(QUERY["points_of"], key)
    own = tuple(OwnPoint(each["number"], orjson.loads(each["point"])) for each in points)
    for row in rows:
        bounds = {"max_trials": row["max_trials"], "max_parallel": row["max_parallel"]}
        return Steering(**bounds, finish=row["finish"], points=own)
    return Steering(points=own)


def hold_search(tx: Transaction, project: str, job_id: str) -> None:
    """Keep all others from steering a search until the end of the transaction. A pass of the controller that read the
    job before does not end it."""
    tx.run(QUERY["touch_job"], {"project": project, "job": job_id})


def write_change(tx: Transaction, project: str, job_id: str, change: SteeringChange) -> None:
    """Write a change to a search that is held."""
    key = {"project": project, "job": job_id}
    if change.max_trials is not None or change.max_parallel is not None or change.finish:
        bounds = {"max_trials": change.max_trials, "max_parallel": change.max_parallel}
        tx.run(QUERY["set_steering"], key | bounds | {"finish": storable(change.finish)})
    if change.point is not None:
        [row] = tx.rows(QUERY["next_number"], key)
        point = orjson.dumps(dict(change.point)).decode()
        tx.run(QUERY["insert_point"], key | {"number": row["number"], "point": point})


def delete_point(tx: Transaction, project: str, job_id: str, number: int) -> None:
    """Delete a point that becomes a trial, in the transaction that stores the trial."""
    tx.run(QUERY["delete_point"], {"project": project, "job": job_id, "number": number})
