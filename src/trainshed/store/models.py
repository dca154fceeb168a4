"""Rows of models and versions. Every change to a model or a version locks the model's row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson
import sqlalchemy as sa

from trainshed.domain.models.model import Model, model_not_found, version_not_found
from trainshed.domain.models.rollout import parse_rollout
from trainshed.domain.models.version import Version, VersionState
from trainshed.domain.models.version_details import VersionDetails
from trainshed.domain.operations import Operation
from trainshed.errors import AlreadyExistsError, FailedPreconditionError, NotFoundError, WriteConflictError
from trainshed.node.crashpoints import crashpoint
from trainshed.store import policies
from trainshed.store.database import Database, Transaction, is_duplicate, load_queries, storable
from trainshed.store.operations import insert_operation, update_operation
from trainshed.store.rows import ReadRows, parse_row, read_page, read_rows

QUERY = load_queries("models")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWithDefault:
    """A model with its default version, from one snapshot."""

    model: Model
    default: Version | None

    @property
    def id(self) -> str:
        return self.model.id

    @property
    def order_us(self) -> int:
        return self.model.order_us


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChange:
    """What `ModelStore.change` writes, and what it has written. None: nothing of that kind."""

    model: Model | None = None
    version: Version | None = None
    operation: Operation | None = None  #: a new operation; also the version's if its `operation` has this id
    check: Callable[[Transaction], object] = lambda tx: None  #: called last; if it raises, nothing is written


class VersionSummary(NamedTuple):
    """A version without its large fields."""

    model: str
    id: str
    state: VersionState
    error: str


class ModelStore:
    """Rows of models and versions. Each write is one transaction and includes its operation.

    Writes to one model are serialized. A rule over all its versions therefore still holds when it is written.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, model: Model) -> Model:
        """Store a new model. Raises `AlreadyExistsError` if its project has a model with this name."""
        try:
            with self._database.write() as tx:
                tx.run(QUERY["insert_model"], _model_values(model))
        except sa.exc.IntegrityError as exc:
            if not is_duplicate(exc):
                raise
            raise AlreadyExistsError("A model with the same name already exists.", field="model.name") from exc
        crashpoint("model.create.after_commit")
        return model

    def get(self, project: str, model_id: str) -> Model:
        with self._database.read() as tx:
            return _get(tx, project, model_id)

    def listed(self, project: str, model_id: str) -> ModelWithDefault:
        with self._database.read() as tx:
            model = _get(tx, project, model_id)
            rows = tx.rows(QUERY["get_version"], _key(project, model_id, model.default_version))
        return ModelWithDefault(model=model, default=_version(rows[0]) if rows else None)

    def page(self, project: str, *, before: tuple[int, str], limit: int) -> Sequence[ModelWithDefault]:
        """Up to `limit` readable models older than `before` (its order_us and id), newest first."""
        values = {"project": project, "before_us": before[0], "before_id": before[1]}
        with self._database.read() as tx:
            models = read_page(tx, QUERY["list_models"], values, _model, limit=limit)
            rows = tx.rows(QUERY["defaults_of_list"], {**values, "limit": limit + len(models.unreadable)})
        defaults = {version.model: version for version in read_rows(rows, _version).values}
        return [ModelWithDefault(model=model, default=defaults.get(model.id)) for model in models.values]

    def change(
        self, project: str, model_id: str, decide: Callable[[Model, Sequence[Version]], ModelChange]
    ) -> tuple[Model, ModelChange]:
        """Write what `decide` returns for a model and its versions, oldest first. Returns the stored values.

        The model is locked meanwhile, so `decide` must be quick. If it raises, nothing is written.
        """
        with self._locked(project, model_id) as tx:
            model = _get(tx, project, model_id)
            decision = decide(model, _versions(tx, project, model_id))
            operation = insert_operation(tx, decision.operation) if decision.operation else None
            version = decision.version
            if version and operation and decision.operation and version.operation == decision.operation.id:
                version = replace(version, operation=operation.id)
            model = _update_model(tx, decision.model) if decision.model else model
            version = _update_version(tx, version) if version else None
            decision.check(tx)
            crashpoint("model.change.before_commit")
        crashpoint("model.change.after_commit")
        return model, ModelChange(model=model if decision.model else None, version=version, operation=operation)

    def remove(self, project: str, model_id: str, operation: Operation) -> Operation:
        """Delete a model and its policy. Raises `FailedPreconditionError` if it has versions."""
        with self._locked(project, model_id) as tx:
            model = _get(tx, project, model_id)
            if versions := _versions(tx, project, model_id):
                some = ", ".join(version.id for version in versions[:5])
                raise FailedPreconditionError(
                    f"Model {model_id} has versions ({some}{', …' if len(versions) > 5 else ''}). Delete them first."
                )
            tx.run(QUERY["delete_model"], {"project": project, "id": model_id})
            tx.run(policies.QUERY["delete_policy"], {"resource": model.name})
            crashpoint("model.delete.before_commit")
            return insert_operation(tx, operation)

    def add_version(
        self, version: Version, operation: Operation, check: Callable[[Transaction], object] = lambda tx: None
    ) -> tuple[Version, Operation]:
        """Store a new version and its create operation, unless `check`, which the transaction calls last, raises.

        Raises `AlreadyExistsError` if the model has a version with this name.
        """
        try:
            with self._locked(version.project, version.model) as tx:
                _get(tx, version.project, version.model)
                operation = insert_operation(tx, operation)
                version = replace(version, operation=operation.id)
                tx.run(QUERY["insert_version"], _version_values(version))
                check(tx)
                crashpoint("version.create.before_commit")
        except sa.exc.IntegrityError as exc:
            if not is_duplicate(exc):
                raise
            raise AlreadyExistsError("A version with the same name already exists.", field="version.name") from exc
        crashpoint("version.create.after_commit")
        return version, operation

    def has_version(self, project: str, model: str, version: str) -> bool:
        """Whether the model exists and has this version."""
        try:
            self.version(project, model, version)
        except NotFoundError:
            return False
        return True

    def version(self, project: str, model_id: str, version_id: str) -> Version:
        return self.version_listed(project, model_id, version_id)[1]

    def served(self, project: str, model_id: str, version_id: str) -> Version:
        """A version, or the model's default if no id is given.

        Raises `FailedPreconditionError` unless it serves requests.
        """
        resolved_id = version_id or self.get(project, model_id).default_version
        if not resolved_id:
            raise FailedPreconditionError(f"Model {model_id} has no default version. Name the version to use.")
        version = self.version(project, model_id, resolved_id)
        if not version.serving:
            raise FailedPreconditionError(f"Version {version.id} of model {model_id} is {version.state}, not READY.")
        return version

    def version_listed(self, project: str, model_id: str, version_id: str) -> tuple[Model, Version]:
        """A version with its model, from one snapshot. Raises `NotFoundError` if either does not exist."""
        with self._database.read() as tx:
            model = _get(tx, project, model_id)
            rows = tx.rows(QUERY["get_version"], _key(project, model_id, version_id))
        if not rows:
            raise version_not_found(project, model_id, version_id)
        return model, _version(rows[0])

    def versions(self, project: str, model_id: str) -> Sequence[Version]:
        """All readable versions of a model, oldest first."""
        with self._database.read() as tx:
            return _readable_versions(tx, project, model_id)

    def page_versions(self, model: Model, *, before: tuple[int, str], limit: int) -> Sequence[Version]:
        """Up to `limit` readable versions older than `before` (its order_us and id), newest first."""
        values = {"project": model.project, "model": model.id, "before_us": before[0], "before_id": before[1]}
        with self._database.read() as tx:
            return read_page(tx, QUERY["list_versions"], values, _version, limit=limit).values

    def names(self, project: str, *, limit: int) -> list[tuple[str, str]]:
        """The models of a project with their default versions, newest first."""
        with self._database.read() as tx:
            rows = tx.rows(QUERY["names_of_models"], {"project": project, "limit": limit})
        return [(row["id"], row["default_version"]) for row in rows]

    def version_lines(self, project: str) -> list[VersionSummary]:
        """Summaries of all readable versions of a project, newest first."""
        with self._database.read() as tx:
            return read_rows(tx.rows(QUERY["states_of_versions"], {"project": project}), _summary).values

    def every(self) -> list[Model]:
        """The readable models of all projects."""
        with self._database.read() as tx:
            return read_rows(tx.rows(QUERY["every_model"]), _model).values

    def rolling_out(self) -> list[Model]:
        """The readable models of all projects with a rollout that is running."""
        with self._database.read() as tx:
            return read_rows(tx.rows(QUERY["models_rolling_out"]), _model).values

    def versions_to_serve(self) -> ReadRows[Version]:
        """All versions of all projects except FAILED ones, oldest first: those that have, had or will have hosts."""
        with self._database.read() as tx:
            return read_rows(tx.rows(QUERY["versions_to_serve"]), _version)

    def record_version(self, version: Version, operation: Operation | None = None) -> Version:
        """Write a changed version and, if given, the changed operation behind the change.

        The first READY version of a model becomes its default in the same transaction, and the operation's response
        says so. Raises `WriteConflictError`, without any write, if either row changed since it was read: a patch of the
        version, or a cancellation of the operation.
        """
        with self._locked(version.project, version.model) as tx:
            model = _get(tx, version.project, version.model)
            updated_model = model.with_ready_version(version)
            stored = _update_version(tx, version)
            if updated_model != model:
                _update_model(tx, updated_model)
            if operation is not None:
                if operation.response is not None and updated_model.default_version == version.id:
                    operation = replace(operation, response={**operation.response, "isDefault": True})
                update_operation(tx, operation)
        return stored

    def remove_version(self, version: Version, operation: Operation) -> None:
        """Delete a version and write its changed delete operation.

        Raises `WriteConflictError` as in `record_version`.
        """
        with self._locked(version.project, version.model) as tx:
            if tx.run(QUERY["delete_version"], _version_values(version)) == 0:
                raise _version_conflict(version)
            model = _get(tx, version.project, version.model)
            updated_model = model.without_version(version.id, _readable_versions(tx, version.project, version.model))
            if updated_model != model:
                _update_model(tx, updated_model)
            update_operation(tx, operation)

    def files_used(self, project: str, files: str, *, besides: Version | None = None) -> bool:
        """Whether any version of a project, in any state, has the snapshot with this content hash."""
        other = {"model": besides.model, "version": besides.id} if besides else {"model": "", "version": ""}
        with self._database.read() as tx:
            [row] = tx.rows(QUERY["versions_with_files"], {"project": project, "files": files, **other})
        return bool(row["found"])

    @contextmanager
    def _locked(self, project: str, model_id: str) -> Iterator[Transaction]:
        with self._database.write() as tx:
            tx.lock(QUERY["lock_model"], {"project": project, "id": model_id})
            yield tx


def _get(tx: Transaction, project: str, model_id: str) -> Model:
    rows = tx.rows(QUERY["get_model"], {"project": project, "id": model_id})
    if not rows:
        raise model_not_found(project, model_id)
    return _model(rows[0])


def _versions(tx: Transaction, project: str, model_id: str) -> list[Version]:
    """All versions of a model, for a rule over all of them. Raises `DataLossError` if one is unreadable."""
    return [_version(row) for row in tx.rows(QUERY["versions_of"], {"project": project, "model": model_id})]


def _readable_versions(tx: Transaction, project: str, model_id: str) -> list[Version]:
    return read_rows(tx.rows(QUERY["versions_of"], {"project": project, "model": model_id}), _version).values


def _update_model(tx: Transaction, model: Model) -> Model:
    if tx.run(QUERY["update_model"], _model_values(model)) == 0:
        raise WriteConflictError(f"Model {model.id} was changed by someone else; read it again.")
    return replace(model, generation=model.generation + 1)


def _update_version(tx: Transaction, version: Version) -> Version:
    if tx.run(QUERY["update_version"], _version_values(version)) == 0:
        raise _version_conflict(version)
    return replace(version, generation=version.generation + 1)


def _version_conflict(version: Version) -> WriteConflictError:
    return WriteConflictError(f"Version {version.id} was changed by someone else; read it again.")


def _key(project: str, model_id: str, version_id: str) -> dict[str, str]:
    return {"project": project, "model": model_id, "id": version_id}


def _model(row: Mapping[str, Any]) -> Model:
    return parse_row(row, _parse_model, name=f"model {row['id']} of project {row['project']}")


def _parse_model(row: Mapping[str, Any]) -> Model:
    parsed = {name: orjson.loads(row[name]) for name in ("body", "labels")}
    rollouts = {
        "rollout": parse_rollout(orjson.loads(row["rollout"])) if row["rollout"] else None,
        "past_rollouts": tuple(map(parse_rollout, orjson.loads(row["past_rollouts"] or "[]"))),
    }
    return Model(**{**row, **parsed, **rollouts, "split": orjson.loads(row["split"] or "{}")})


def _model_values(model: Model) -> dict[str, Any]:
    return {
        "project": model.project,
        "id": model.id,
        "body": orjson.dumps(model.body).decode(),
        "labels": orjson.dumps(model.labels).decode(),
        "default_version": model.default_version,
        "previous_version": model.previous_version,
        "split": orjson.dumps(model.split).decode() if model.split else "",
        "rollout": orjson.dumps(model.rollout.stored()).decode() if model.rollout else "",
        "past_rollouts": (
            orjson.dumps([past.stored() for past in model.past_rollouts]).decode() if model.past_rollouts else ""
        ),
        "created_us": model.created_us,
        "generation": model.generation,
    }


def _version(row: Mapping[str, Any]) -> Version:
    return parse_row(
        row, _parse_version, name=f"version {row['id']} of model {row['model']} of project {row['project']}"
    )


def _parse_version(row: Mapping[str, Any]) -> Version:
    parsed = {name: orjson.loads(row[name]) for name in ("body", "labels")}
    details = VersionDetails.parse(orjson.loads(row["details"]))
    return Version(**{**row, **parsed, "details": details, "state": VersionState(row["state"])})


def _summary(row: Mapping[str, Any]) -> VersionSummary:
    return parse_row(row, _parse_summary, name=f"version {row['id']} of model {row['model']}")


def _parse_summary(row: Mapping[str, Any]) -> VersionSummary:
    return VersionSummary(row["model"], row["id"], VersionState(row["state"]), row["error"])


def _version_values(version: Version) -> dict[str, Any]:
    return {
        **_key(version.project, version.model, version.id),
        "body": orjson.dumps(version.body).decode(),
        "labels": orjson.dumps(version.labels).decode(),
        "state": version.state.value,
        "error": storable(version.error),
        "files": version.files,
        "details": orjson.dumps(version.details.body()).decode(),
        "operation": version.operation,
        "created_us": version.created_us,
        "generation": version.generation,
    }
