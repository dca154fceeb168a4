"""Models and their versions as rows. Whatever changes a model or one of its versions holds the model's row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson
import sqlalchemy as sa

from trainshed.domain.models.model import Model, model_not_found, version_not_found
from trainshed.domain.models.version import Version, VersionState
from trainshed.domain.operations import Operation
from trainshed.errors import AlreadyExistsError, FailedPreconditionError, NotFoundError, WriteConflictError
from trainshed.store import policies
from trainshed.store.database import Database, Transaction, is_duplicate, load_queries, storable
from trainshed.store.operations import insert_operation, update_operation

QUERY = load_queries("models")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWithDefault:
    """A model with its default version, both of one moment."""

    model: Model
    default: Version | None

    @property
    def id(self) -> str:
        return self.model.id

    @property
    def created_us(self) -> int:
        return self.model.created_us


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChange:
    """What `ModelStore.change` shall write, and what it wrote. None: nothing of that kind."""

    model: Model | None = None
    version: Version | None = None
    operation: Operation | None = None  #: a new one; the version's own if its `operation` says so


class VersionSummary(NamedTuple):
    """A version without what is large about it."""

    model: str
    id: str
    state: VersionState
    error: str


class ModelStore:
    """Each write is one transaction, with the operation that tells of it. Writes to one model come one by one, so a
    rule over all its versions holds when it is written as it did when it was read.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, model: Model) -> Model:
        """Store a new model. `AlreadyExistsError` while its project has one of that name."""
        try:
            with self._database.write() as tx:
                tx.run(QUERY["insert_model"], _model_values(model))
        except sa.exc.IntegrityError as exc:
            if not is_duplicate(exc):
                raise
            raise AlreadyExistsError("A model with the same name already exists.", field="model.name") from exc
        return model

    def get(self, project: str, model_id: str) -> Model:
        with self._database.read() as tx:
            return _get(tx, project, model_id)

    def listed(self, project: str, model_id: str) -> ModelWithDefault:
        with self._database.read() as tx:
            model = _get(tx, project, model_id)
            found = tx.rows(QUERY["get_version"], _key(project, model_id, model.default_version))
        return ModelWithDefault(model=model, default=_version(found[0]) if found else None)

    def page(self, project: str, *, before: tuple[int, str], limit: int) -> Sequence[ModelWithDefault]:
        """Up to `limit` models older than `before` (its created_us and id), newest first."""
        values = {"project": project, "before_us": before[0], "before_id": before[1], "limit": limit}
        with self._database.read() as tx:
            models = [_model(row) for row in tx.rows(QUERY["list_models"], values)]
            defaults = {row["model"]: _version(row) for row in tx.rows(QUERY["defaults_of_list"], values)}
        return [ModelWithDefault(model=model, default=defaults.get(model.id)) for model in models]

    def change(
        self, project: str, model_id: str, decide: Callable[[Model, Sequence[Version]], ModelChange]
    ) -> tuple[Model, ModelChange]:
        """Write what `decide` makes of a model and all its versions, oldest first, and return it as it is stored now.

        Nobody else changes any of them meanwhile, so `decide` must be quick; it may raise, and nothing is written.
        """
        with self._held(project, model_id) as tx:
            model = _get(tx, project, model_id)
            wanted = decide(model, _versions(tx, project, model_id))
            operation = insert_operation(tx, wanted.operation) if wanted.operation else None
            version = wanted.version
            if version and operation and wanted.operation and version.operation == wanted.operation.id:
                version = replace(version, operation=operation.id)
            model = _update_model(tx, wanted.model) if wanted.model else model
            version = _update_version(tx, version) if version else None
        return model, ModelChange(model=model if wanted.model else None, version=version, operation=operation)

    def remove(self, project: str, model_id: str, operation: Operation) -> Operation:
        """Forget a model and its policy. `FailedPreconditionError` if it has versions."""
        with self._held(project, model_id) as tx:
            model = _get(tx, project, model_id)
            if versions := _versions(tx, project, model_id):
                some = ", ".join(version.id for version in versions[:5])
                raise FailedPreconditionError(
                    f"Model {model_id} has versions ({some}{', …' if len(versions) > 5 else ''}). Delete them first."
                )
            tx.run(QUERY["delete_model"], {"project": project, "id": model_id})
            tx.run(policies.QUERY["delete_policy"], {"resource": model.name})
            return insert_operation(tx, operation)

    def add_version(self, version: Version, operation: Operation) -> tuple[Version, Operation]:
        """Store a new version and the operation that creates it.

        `AlreadyExistsError` while the model has one so named.
        """
        try:
            with self._held(version.project, version.model) as tx:
                _get(tx, version.project, version.model)
                operation = insert_operation(tx, operation)
                version = replace(version, operation=operation.id)
                tx.run(QUERY["insert_version"], _version_values(version))
        except sa.exc.IntegrityError as exc:
            if not is_duplicate(exc):
                raise
            raise AlreadyExistsError("A version with the same name already exists.", field="version.name") from exc
        return version, operation

    def has_version(self, project: str, model: str, version: str) -> bool:
        """Whether the model is there, and has one of this name."""
        try:
            self.version(project, model, version)
        except NotFoundError:
            return False
        return True

    def version(self, project: str, model_id: str, version_id: str) -> Version:
        return self.version_listed(project, model_id, version_id)[1]

    def served(self, project: str, model_id: str, version_id: str) -> Version:
        """A version, or the model's default one if none is named. `FailedPreconditionError` unless it is served."""
        wanted = version_id or self.get(project, model_id).default_version
        if not wanted:
            raise FailedPreconditionError(f"Model {model_id} has no default version. Name the version to use.")
        version = self.version(project, model_id, wanted)
        if not version.serving:
            raise FailedPreconditionError(f"Version {version.id} of model {model_id} is {version.state}, not READY.")
        return version

    def version_listed(self, project: str, model_id: str, version_id: str) -> tuple[Model, Version]:
        """A version with its model, both of one moment. `NotFoundError` if either is not there."""
        with self._database.read() as tx:
            model = _get(tx, project, model_id)
            rows = tx.rows(QUERY["get_version"], _key(project, model_id, version_id))
        if not rows:
            raise version_not_found(project, model_id, version_id)
        return model, _version(rows[0])

    def versions(self, project: str, model_id: str) -> Sequence[Version]:
        """All versions of a model, oldest first."""
        with self._database.read() as tx:
            return _versions(tx, project, model_id)

    def page_versions(self, model: Model, *, before: tuple[int, str], limit: int) -> Sequence[Version]:
        """Up to `limit` versions older than `before` (its created_us and id), newest first."""
        place = {"project": model.project, "model": model.id}
        values = place | {"before_us": before[0], "before_id": before[1], "limit": limit}
        with self._database.read() as tx:
            return [_version(row) for row in tx.rows(QUERY["list_versions"], values)]

    def names(self, project: str, *, limit: int) -> list[tuple[str, str]]:
        """The models of a project and their default versions, newest first."""
        with self._database.read() as tx:
            rows = tx.rows(QUERY["names_of_models"], {"project": project, "limit": limit})
        return [(row["id"], row["default_version"]) for row in rows]

    def version_lines(self, project: str) -> list[VersionSummary]:
        """Every version of a project in short, newest first."""
        with self._database.read() as tx:
            rows = tx.rows(QUERY["states_of_versions"], {"project": project})
        return [VersionSummary(row["model"], row["id"], VersionState(row["state"]), row["error"]) for row in rows]

    def every(self) -> list[Model]:
        """The models of all projects."""
        with self._database.read() as tx:
            return [_model(row) for row in tx.rows(QUERY["every_model"])]

    def versions_to_serve(self) -> list[tuple[Model, Version]]:
        """Every version of every project that has, had or shall have hosts, oldest first: all but FAILED ones."""
        with self._database.read() as tx:
            models = {(row["project"], row["id"]): _model(row) for row in tx.rows(QUERY["models_to_serve"])}
            found = [_version(row) for row in tx.rows(QUERY["versions_to_serve"])]
        return [(models[version.project, version.model], version) for version in found]

    def record_version(self, version: Version, operation: Operation | None = None) -> Version:
        """Write a changed version, and the changed operation that it comes of, over those they were made from.

        The first version of a model to be READY becomes its default in the same step, and the operation's response
        says so. `WriteConflictError`, and nothing is written, if someone else wrote either since it was read: the
        version may have been patched, the operation may have been asked to stop.
        """
        with self._held(version.project, version.model) as tx:
            model = _get(tx, version.project, version.model)
            welcoming = model.with_ready_version(version)
            written = _update_version(tx, version)
            if welcoming != model:
                _update_model(tx, welcoming)
            if operation is not None:
                if operation.response is not None and welcoming.default_version == version.id:
                    operation = replace(operation, response={**operation.response, "isDefault": True})
                update_operation(tx, operation)
        return written

    def remove_version(self, version: Version, operation: Operation) -> None:
        """Forget a version, and write the changed operation that deletes it.

        `WriteConflictError` as in `record_version`.
        """
        with self._held(version.project, version.model) as tx:
            if tx.run(QUERY["delete_version"], _version_values(version)) == 0:
                raise _overtaken(version)
            model = _get(tx, version.project, version.model)
            left = model.without_version(version.id, _versions(tx, version.project, version.model))
            if left != model:
                _update_model(tx, left)
            update_operation(tx, operation)

    def files_used(self, project: str, files: str) -> bool:
        """Whether any version of a project, in whatever state, has the files of this content hash."""
        with self._database.read() as tx:
            [row] = tx.rows(QUERY["versions_with_files"], {"project": project, "files": files})
        return bool(row["found"])

    @contextmanager
    def _held(self, project: str, model_id: str) -> Iterator[Transaction]:
        with self._database.write() as tx:
            tx.lock(QUERY["lock_model"], {"project": project, "id": model_id})
            yield tx


def _get(tx: Transaction, project: str, model_id: str) -> Model:
    rows = tx.rows(QUERY["get_model"], {"project": project, "id": model_id})
    if not rows:
        raise model_not_found(project, model_id)
    return _model(rows[0])


def _versions(tx: Transaction, project: str, model_id: str) -> list[Version]:
    return [_version(row) for row in tx.rows(QUERY["versions_of"], {"project": project, "model": model_id})]


def _update_model(tx: Transaction, model: Model) -> Model:
    if tx.run(QUERY["update_model"], _model_values(model)) == 0:
        raise WriteConflictError(f"Model {model.id} was changed by someone else; read it again.")
    return replace(model, generation=model.generation + 1)


def _update_version(tx: Transaction, version: Version) -> Version:
    if tx.run(QUERY["update_version"], _version_values(version)) == 0:
        raise _overtaken(version)
    return replace(version, generation=version.generation + 1)


def _overtaken(version: Version) -> WriteConflictError:
    return WriteConflictError(f"Version {version.id} was changed by someone else; read it again.")


def _key(project: str, model_id: str, version_id: str) -> dict[str, str]:
    return {"project": project, "model": model_id, "id": version_id}


def _model(row: Mapping[str, Any]) -> Model:
    parsed = {name: orjson.loads(row[name]) for name in ("body", "labels")}
    return Model(**{**row, **parsed, "split": orjson.loads(row["split"] or "{}")})


def _model_values(model: Model) -> dict[str, Any]:
    return {
        "project": model.project,
        "id": model.id,
        "body": orjson.dumps(model.body).decode(),
        "labels": orjson.dumps(model.labels).decode(),
        "default_version": model.default_version,
        "previous_version": model.previous_version,
        "split": orjson.dumps(model.split).decode() if model.split else "",
        "created_us": model.created_us,
        "generation": model.generation,
    }


def _version(row: Mapping[str, Any]) -> Version:
    parsed = {name: orjson.loads(row[name]) for name in ("body", "labels", "details")}
    return Version(**{**row, **parsed, "state": VersionState(row["state"])})


def _version_values(version: Version) -> dict[str, Any]:
    return {
        **_key(version.project, version.model, version.id),
        "body": orjson.dumps(version.body).decode(),
        "labels": orjson.dumps(version.labels).decode(),
        "state": version.state.value,
        "error": storable(version.error),
        "files": version.files,
        "details": orjson.dumps(version.details).decode(),
        "operation": version.operation,
        "created_us": version.created_us,
        "generation": version.generation,
    }
