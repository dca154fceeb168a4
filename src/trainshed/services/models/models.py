"""What the API can do with models: names for versions, and which of these answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainshed.domain import names
from trainshed.domain.etags import check_etag
from trainshed.domain.filters import parser
from trainshed.domain.jobs.job import LOCAL_ENGINE
from trainshed.domain.json_fields import mask_paths
from trainshed.domain.models.model import (
    Model,
    check_size,
    model_body,
    read_model,
    read_model_patch,
    read_split,
    version_not_found,
)
from trainshed.domain.models.version import Version
from trainshed.domain.operations import EMPTY, Operation, OperationType, response
from trainshed.domain.times import now_us
from trainshed.errors import InvalidArgumentError
from trainshed.services.operations import operation_body
from trainshed.services.paging import PageRequest, ResourcePage, scan
from trainshed.services.patches import check_mask, merged
from trainshed.store.models import ModelChange, ModelStore, ModelWithDefault

_PATCHABLE = ("description", "online_prediction_logging", "online_prediction_console_logging", "default_version.name")
_FIELDS = {
    "description": "description",
    "online_prediction_logging": "onlinePredictionLogging",
    "online_prediction_console_logging": "onlinePredictionConsoleLogging",
}


def _nothing(*_: str) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingDependencies:
    """Those who make requests find their versions, as the registry calls them."""

    wake: Callable[[], None] = _nothing  #: there is something to create or to delete
    #: make the routes of a model (project, name) those of its row; they are when this returns
    publish: Callable[[str, str], None] = _nothing
    hosts: Callable[[str, str, str], Sequence[Mapping[str, Any]]] = lambda project, model, version: ()
    #: what is done for a version that is being created, or why one does not answer that should
    progress: Callable[[str, str, str], str] = lambda project, model, version: ""
    log_tail: Callable[[str, str, str], str] = lambda project, model, version: ""  #: what its host printed last
    last_used_us: Callable[[str, str, str], int] = lambda project, model, version: 0  #: 0: never
    #: by labels, and what a version is; `InvalidArgumentError`, with the list, for one there isn't
    choose_engine: Callable[[Mapping[str, str], str], str] = lambda labels, what: LOCAL_ENGINE
    traffic: Callable[[str, str], Mapping[str, Any]] = lambda project, model: {}  #: of the last hour, by version


class Models:
    """Threads may share it. What is answered is stored, and the routes follow it."""

    def __init__(
        self,
        store: ModelStore,
        serving: ServingDependencies,
        *,
        project_number: Callable[[str], int],
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._store = store
        self._serving = serving
        self._number = project_number
        self._clock = clock

    def create(self, project: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """A new model without versions. `AlreadyExistsError` while the project has one of that name."""
        model = self._store.add(read_model(body, project, now_us=self._clock()))
        self._serving.publish(project, model.id)
        return model_body(model, None)

    def get(self, project: str, model_id: str) -> dict[str, Any]:
        return self._shown(self._store.listed(project, model_id))

    def page(self, project: str, wanted: PageRequest) -> ResourcePage:
        """Models that match the filter, newest first, as `scan` gives them."""
        query = parser.parse(wanted.query)
        found, cursor = scan(
            lambda before, limit: self._store.page(project, before=before, limit=limit),
            lambda listed: query.matches(self._shown(listed)),
            wanted,
        )
        return ResourcePage(items=[self._shown(listed) for listed in found], next=cursor)

    def patch(self, project: str, model_id: str, *, mask: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change what the mask names, at once: the operation is done.

        With an etag: `AbortedError` unless it is current.
        """
        given, paths = read_model_patch(body), mask_paths(mask, field="update_mask")
        check_mask(paths, _PATCHABLE, given, what="model")
        labels = names.labels(given.get("labels", {}), field="model.labels")
        now, number = self._clock(), self._number(project)

        def decide(model: Model, versions: Sequence[Version]) -> ModelChange:
            if "etag" in given:
                check_etag(given["etag"], model.generation, what=f"model {model.id}")
            changed = replace(
                model,
                labels=names.labels(merged(model.labels, labels, paths), field="model.labels"),
                body=_patched(model.body, given, paths),
            )
            if "default_version.name" in paths:
                changed = changed.with_default(_named_default(model, given, versions))
            default = [version for version in versions if version.id == changed.default_version]
            stored = replace(changed, generation=changed.generation + 1)
            shown = response("Model", model_body(stored, default[0] if default else None))
            begun = _begin(OperationType.UPDATE_MODEL, changed, number=number, now_us=now)
            return ModelChange(model=changed, operation=begun.succeeded(shown, now_us=now))

        _, change = self._store.change(project, model_id, decide)
        self._serving.publish(project, model_id)
        assert change.operation is not None  # it was asked for
        return operation_body(change.operation)

    def delete(self, project: str, model_id: str) -> dict[str, Any]:
        """Forget a model at once: the operation is done. `FailedPreconditionError` if it has versions."""
        now = self._clock()
        model = self._store.get(project, model_id)
        begun = _begin(OperationType.DELETE_MODEL, model, number=self._number(project), now_us=now)
        operation = self._store.remove(project, model_id, begun.succeeded(EMPTY, now_us=now))
        self._serving.publish(project, model_id)
        return operation_body(operation)

    def split(self, project: str, model_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Spread the requests that name no version over several; no weights: the default gets all. `details`."""
        weights = read_split(body)
        return self._routed(project, model_id, lambda model, versions: model.with_split(weights, versions))

    def rollback(self, project: str, model_id: str) -> dict[str, Any]:
        """End a split, or make the default of before the default again. `details`."""
        return self._routed(project, model_id, lambda model, versions: model.rolled_back(versions))

    def details(self, project: str, model_id: str) -> dict[str, Any]:
        """The model with what the API has no field for: its split, where a rollback leads, notes, traffic."""
        listed = self._store.listed(project, model_id)
        return {
            "model": self._shown(listed),
            "notes": list(listed.model.notes),
            "split": listed.model.split,
            "previousVersion": listed.model.previous_version,
            "traffic": self._serving.traffic(project, model_id),
        }

    def _routed(
        self, project: str, model_id: str, decide: Callable[[Model, Sequence[Version]], Model]
    ) -> dict[str, Any]:
        self._store.change(project, model_id, lambda model, versions: ModelChange(model=decide(model, versions)))
        self._serving.publish(project, model_id)
        return self.details(project, model_id)

    def _shown(self, listed: ModelWithDefault) -> dict[str, Any]:
        default = listed.default
        used = self._serving.last_used_us(listed.model.project, listed.model.id, default.id) if default else 0
        return model_body(listed.model, default, last_use_us=used or None)


def _begin(kind: OperationType, model: Model, *, number: int, now_us: int) -> Operation:
    metadata = {"operationType": kind.value, "modelName": model.name, "projectNumber": str(number)}
    labels = {"labels": model.labels} if model.labels else {}
    return Operation.begin(model.project, kind.id(model.id, now_us=now_us), metadata | labels, now_us=now_us)


def _patched(body: Mapping[str, Any], given: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """The body after a patch. What the mask names and the patch doesn't hold is taken away."""
    new = dict(body)
    for name in (_FIELDS[path] for path in paths if path in _FIELDS):
        new.pop(name, None)
        if given.get(name):
            new[name] = given[name]
    check_size(new, field="model.description")
    return new


def _named_default(model: Model, given: Mapping[str, Any], versions: Sequence[Version]) -> Version:
    """The version that a patch makes the default: its name alone, or the whole name of the resource."""
    field = "model.default_version.name"
    wanted = given.get("defaultVersion")
    name = wanted.get("name") if isinstance(wanted, dict) else None
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(
            "The mask names the default version, but the model in the body doesn't say which.", field=field
        )
    found = [version for version in versions if name in (version.id, version.name)]
    if not found:
        raise version_not_found(model.project, model.id, name.rpartition("/")[2])
    return found[0]
