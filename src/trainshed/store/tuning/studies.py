"""Rows of studies, their trials and measurements, and the operations of suggestions and stopping checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
import sqlalchemy as sa

from trainshed.domain.tuning.study import Measurement, Study, StudyKey, StudyState, StudyTrial, TrialState
from trainshed.domain.tuning.study_request import read_config
from trainshed.errors import AlreadyExistsError, NotFoundError, WriteConflictError
from trainshed.node.crashpoints import crashpoint
from trainshed.store.database import Database, Transaction, is_duplicate, load_queries, storable
from trainshed.store.rows import Row, parse_row, read_rows

QUERY = load_queries("studies")
OPERATION_RETENTION_US = 3600 * 1_000_000  #: clients ask for an operation within seconds


class StudyStore:
    """Rows of studies. Each write is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, study: Study) -> Study:
        """Store a new study. Raises `AlreadyExistsError` if there is one with its id."""
        values = {
            **_key(study.key),
            "config": storable(orjson.dumps(study.config.body).decode()),
            "state": study.state,
            "created_us": study.created_us,
        }
        try:
            with self._database.write() as tx:
                tx.run(QUERY["insert_study"], values)
        except sa.exc.IntegrityError as exc:
            if not is_duplicate(exc):
                raise
            raise AlreadyExistsError(f"There is a study {study.key.name} already.", field="study_id") from exc
        return study

    def get(self, key: StudyKey) -> Study:
        with self._database.read() as tx:
            return _get_study(tx, key)

    def all(self, project: str, location: str) -> Sequence[Study]:
        """All studies of a location, newest first."""
        with self._database.read() as tx:
            rows = tx.rows(QUERY["list_studies"], {"project": project, "location": location})
        return read_rows(rows, _study).values

    def page(self, project: str, *, before: tuple[int, str], limit: int) -> Sequence[Study]:
        """Studies of all locations, newest first, after the one with this creation time and LOCATION/ID."""
        values = {"project": project, "before_us": before[0], "before_id": before[1], "limit": limit}
        with self._database.read() as tx:
            return read_rows(tx.rows(QUERY["page_of_studies"], values), _study).values

    def delete(self, key: StudyKey) -> None:
        """Delete a study with all that belongs to it."""
        with self._database.write() as tx:
            if tx.run(QUERY["delete_study"], _key(key)) == 0:
                raise study_not_found(key)
            for name in ("delete_trials_of_study", "delete_measurements_of_study", "delete_operations_of_study"):
                tx.run(QUERY[name], _key(key))
            crashpoint("study.delete.before_commit")

    def with_trials(self, key: StudyKey, *, measurements: bool = False) -> tuple[Study, list[StudyTrial]]:
        """Return a study and its trials in order, as of one moment."""
        with self._database.read() as tx:
            study = _get_study(tx, key)
            trials = read_rows(tx.rows(QUERY["list_trials"], _of_study(key)), _trial_of(key)).values
            rows = tx.rows(QUERY["list_measurements"], _of_study(key)) if measurements else []
        by_trial: dict[int, list[Measurement]] = {}
        for row in rows:
            by_trial.setdefault(row["trial"], []).append(_measurement(row))
        return study, [replace(trial, measurements=tuple(by_trial.get(trial.number, ()))) for trial in trials]

    def trial(self, key: StudyKey, number: int) -> tuple[Study, StudyTrial]:
        """Return a study and one of its trials with its measurements."""
        with self._database.read() as tx:
            study = _get_study(tx, key)
            rows = tx.rows(QUERY["get_trial"], {**_of_study(key), "number": number})
            measured = tx.rows(QUERY["list_measurements_of_trial"], {**_of_study(key), "trial": number})
        if not rows:
            raise NotFoundError(f"There is no trial {number} in study {key.name}.")
        return study, replace(_trial_of(key)(rows[0]), measurements=tuple(map(_measurement, measured)))

    def change(
        self,
        study: Study,
        *,
        state: StudyState,
        new: Sequence[StudyTrial] = (),
        changed: Sequence[StudyTrial] = (),
        operations: Sequence[Mapping[str, Any]] = (),
        now_us: int = 0,
    ) -> None:
        """Write new and changed trials, the state of the study and operations. New trials follow its last one.

        Raises `WriteConflictError` if the study or a trial changed since it was read.
        """
        with self._database.write() as tx:
            values = {"state": state, "last_trial": study.last_trial + len(new), "old_last_trial": study.last_trial}
            if tx.run(QUERY["update_study"], {**_key(study.key), **values}) == 0:
                raise _conflict(study.key)
            tx.run_many(QUERY["insert_trial"], [_trial_values(study.key, trial) for trial in new])
            for trial in changed:
                _update_trial(tx, study.key, trial)
            for operation in operations:
                _insert_operation(tx, study.key, operation, now_us)
            crashpoint("study.change.before_commit")
        crashpoint("study.change.after_commit")

    def record(self, key: StudyKey, trial: StudyTrial) -> None:
        """Write a changed trial. Raises `WriteConflictError` if its row changed since it was read."""
        with self._database.write() as tx:
            _update_trial(tx, key, trial)

    def measure(self, key: StudyKey, trial: StudyTrial, measurement: Measurement) -> None:
        """Add a measurement to a trial. One at the same step and time is replaced. Raises as `record` does."""
        values = {
            **_of_study(key),
            "trial": trial.number,
            "step": measurement.step,
            "elapsed_us": measurement.elapsed_us,
            "metrics": storable(orjson.dumps(measurement.metrics).decode()),
        }
        with self._database.write() as tx:
            _update_trial(tx, key, trial)
            tx.run(QUERY["put_measurement"], values)

    def delete_trial(self, key: StudyKey, number: int) -> None:
        """Delete a trial. Its number is not given again."""
        with self._database.write() as tx:
            if tx.run(QUERY["delete_trial"], {**_of_study(key), "number": number}) == 0:
                raise NotFoundError(f"There is no trial {number} in study {key.name}.")
            tx.run(QUERY["delete_measurements_of_trial"], {**_of_study(key), "number": number})

    def add_operation(self, key: StudyKey, operation: Mapping[str, Any], *, now_us: int) -> None:
        """Store an operation that is done. Those of more than an hour ago are deleted."""
        with self._database.write() as tx:
            _insert_operation(tx, key, operation, now_us)

    def operation(self, project: str, location: str, operation_id: str) -> dict[str, Any]:
        values = {"project": project, "location": location, "id": operation_id}
        with self._database.read() as tx:
            rows = tx.rows(QUERY["get_operation"], values)
        if not rows:
            raise NotFoundError(
                f"There is no operation {operation_id} in project {project}, location {location}. Operations of "
                f"studies are kept for an hour."
            )
        body: dict[str, Any] = orjson.loads(rows[0]["body"])
        return body


def study_not_found(key: StudyKey) -> NotFoundError:
    return NotFoundError(f"There is no study {key.name}.")


def _conflict(key: StudyKey) -> WriteConflictError:
    return WriteConflictError(f"Study {key.name} was changed by someone else; read it again.")


def _get_study(tx: Transaction, key: StudyKey) -> Study:
    rows = tx.rows(QUERY["get_study"], _key(key))
    if not rows:
        raise study_not_found(key)
    return _study(rows[0])


def _update_trial(tx: Transaction, key: StudyKey, trial: StudyTrial) -> None:
    if tx.run(QUERY["update_trial"], _trial_values(key, trial)) == 0:
        raise _conflict(key)


def _insert_operation(tx: Transaction, key: StudyKey, operation: Mapping[str, Any], now_us: int) -> None:
    values = {
        "project": key.project,
        "location": key.location,
        "id": str(operation["name"]).rpartition("/")[2],
        "study": key.id,
        "body": storable(orjson.dumps(operation).decode()),
        "created_us": now_us,
    }
    tx.run(QUERY["delete_old_operations"], {"before_us": now_us - OPERATION_RETENTION_US})
    tx.run(QUERY["insert_operation"], values)


def _key(key: StudyKey) -> dict[str, Any]:
    return {"project": key.project, "location": key.location, "id": key.id}


def _of_study(key: StudyKey) -> dict[str, Any]:
    return {"project": key.project, "location": key.location, "study": key.id}


def _study(row: Mapping[str, Any]) -> Study:
    key = StudyKey(project=row["project"], location=row["location"], id=row["id"])

    def parse(row: Mapping[str, Any]) -> Study:
        return Study(
            key=key,
            config=read_config(orjson.loads(row["config"])),
            state=StudyState(row["state"]),
            created_us=row["created_us"],
            last_trial=row["last_trial"],
        )

    return parse_row(row, parse, name=f"study {key.name}")


def _trial_of(key: StudyKey) -> Callable[[Row], StudyTrial]:
    """A parser of rows of trials of one study."""
    return lambda row: parse_row(row, _parse_trial, name=f"trial {key.trial_prefix}{row['number']}")


def _parse_trial(row: Mapping[str, Any]) -> StudyTrial:
    final = orjson.loads(row["final"]) if row["final"] else None
    return StudyTrial(
        number=row["number"],
        point=orjson.loads(row["point"]),
        state=TrialState(row["state"]),
        client=row["client"],
        final=None if final is None else Measurement(**final),
        infeasible=bool(row["infeasible"]),
        infeasible_reason=row["infeasible_reason"],
        started_us=row["started_us"],
        ended_us=row["ended_us"],
        generation=row["generation"],
    )


def _measurement(row: Mapping[str, Any]) -> Measurement:
    return Measurement(step=row["step"], elapsed_us=row["elapsed_us"], metrics=orjson.loads(row["metrics"]))


def _trial_values(key: StudyKey, trial: StudyTrial) -> dict[str, Any]:
    final = trial.final
    document = None
    if final is not None:
        document = {"step": final.step, "elapsed_us": final.elapsed_us, "metrics": final.metrics}
    return {
        **_of_study(key),
        "number": trial.number,
        "state": trial.state,
        "client": storable(trial.client),
        "point": storable(orjson.dumps(trial.point).decode()),
        "final": None if document is None else storable(orjson.dumps(document).decode()),
        "infeasible": int(trial.infeasible),
        "infeasible_reason": storable(trial.infeasible_reason),
        "started_us": trial.started_us,
        "ended_us": trial.ended_us,
        "generation": trial.generation,
    }
