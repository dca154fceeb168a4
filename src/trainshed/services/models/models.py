"""Models: create, get, list, patch, split, roll back and delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainshed.domain import names
from trainshed.domain.filters.parser import parse
from trainshed.domain.filters.server import SERVER
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
from trainshed.domain.patches import check_etag, check_mask, merge_labels
from trainshed.domain.times import now_us
from trainshed.errors import InvalidArgumentError
from trainshed.gateway.metrics import VersionMetrics
from trainshed.services.access.projects import Projects
from trainshed.services.operations import operation_body
from trainshed.services.paging import PageRequest, ResourcePage, scan
from trainshed.services.ports import DeploymentControl
from trainshed.store.models import ModelChange, ModelStore, ModelWithDefault

_PATCHABLE = ("description", "online_prediction_logging", "online_prediction_console_logging", "default_version.name")
_FIELDS = {
    "description": "description",
    "online_prediction_logging": "onlinePredictionLogging",
    "online_prediction_console_logging": "onlinePredictionConsoleLogging",
}


class Models:
    """The models of all projects. Thread-safe. Changes are stored and routed when a method returns."""

    def __init__(
        self,
        store: ModelStore,
        control: DeploymentControl,
        metrics: VersionMetrics,
        projects: Projects,
        *,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._store = store
        self._control = control
        self._metrics = metrics
        self._projects = projects
        self._clock = clock

    def create(self, project: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a model without versions. Raises `AlreadyExistsError` if the project has one of that name."""
        model = self._store.add(read_model(body, project, now_us=self._clock()))
        self._control.publish(project, model.id)
        return model_body(model, None)

    def get(self, project: str, model_id: str) -> dict[str, Any]:
        return self._body(self._store.listed(project, model_id))

    def page(self, project: str, request: PageRequest) -> ResourcePage:
        """Return models that match the filter, newest first. See `scan`."""
        query = parse(request.query, SERVER)
        models, cursor = scan(
            lambda before, limit: self._store.page(project, before=before, limit=limit),
            lambda model: query.matches(self._body(model)),
            request,
        )
        return ResourcePage(items=[self._body(model) for model in models], next=cursor)

    def patch(self, project: str, model_id: str, *, mask: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change what the mask names. The returned operation is done.

        Raises `AbortedError` if the body has an etag that is not current.
        """
        patch, paths = read_model_patch(body), mask_paths(mask, field="update_mask")
        check_mask(paths, _PATCHABLE, patch, what="model")
        labels = names.labels(patch.get("labels", {}), field="model.labels")
        now, number = self._clock(), self._projects.number(project)

        def decide(model: Model, versions: Sequence[Version]) -> ModelChange:
            if "etag" in patch:
                check_etag(patch["etag"], model.generation, what=f"model {model.id}")
            changed = replace(
                model,
                labels=names.labels(merge_labels(model.labels, labels, paths), field="model.labels"),
                body=_apply_patch(model.body, patch, paths),
            )
            if "default_version.name" in paths:
                changed = changed.with_default(_named_default(model, patch, versions))
            default = [version for version in versions if version.id == changed.default_version]
            stored = replace(changed, generation=changed.generation + 1)
            result = response("Model", model_body(stored, default[0] if default else None))
            operation = _start_operation(OperationType.UPDATE_MODEL, changed, number=number, now_us=now)
            return ModelChange(model=changed, operation=operation.succeeded(result, now_us=now))

        _, change = self._store.change(project, model_id, decide)
        self._control.publish(project, model_id)
        assert change.operation is not None  # `decide` sets it
        return operation_body(change.operation)

    def delete(self, project: str, model_id: str) -> dict[str, Any]:
        """Delete a model. The returned operation is done. Raises `FailedPreconditionError` if it has versions."""
        now = self._clock()
        model = self._store.get(project, model_id)
        started = _start_operation(OperationType.DELETE_MODEL, model, number=self._projects.number(project), now_us=now)
        operation = self._store.remove(project, model_id, started.succeeded(EMPTY, now_us=now))
        self._control.publish(project, model_id)
        return operation_body(operation)

    def split(self, project: str, model_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Split requests that name no version among several.

        Without weights, the default gets all. Returns `details`.
        """
        weights = read_split(body)
        return self._change_routing(project, model_id, lambda model, versions: model.with_split(weights, versions))

    def rollback(self, project: str, model_id: str) -> dict[str, Any]:
        """Stop a rollout, or end a split, or restore the previous default version. Returns `details`."""
        now = self._clock()
        return self._change_routing(project, model_id, lambda model, versions: model.rolled_back(versions, now_us=now))

    def details(self, project: str, model_id: str) -> dict[str, Any]:
        """Return the model with what the API has no field for: split, previous version, notes, traffic."""
        stored = self._store.listed(project, model_id)
        return {
            "model": self._body(stored),
            "notes": list(stored.model.notes),
            "split": stored.model.split,
            "previousVersion": stored.model.previous_version,
            "traffic": self._metrics.traffic(project, model_id),
        }

    def _change_routing(
        self, project: str, model_id: str, decide: Callable[[Model, Sequence[Version]], Model]
    ) -> dict[str, Any]:
        self._store.change(project, model_id, lambda model, versions: ModelChange(model=decide(model, versions)))
        self._control.publish(project, model_id)
        return self.details(project, model_id)

    def _body(self, stored: ModelWithDefault) -> dict[str, Any]:
        default = stored.default
        last_use_us = self._metrics.last_used_us(stored.model.project, stored.model.id, default.id) if default else 0
        return model_body(stored.model, default, last_use_us=last_use_us or None)


def _start_operation(kind: OperationType, model: Model, *, number: int, now_us: int) -> Operation:
    metadata = {"operationType": kind.value, "modelName": model.name, "projectNumber": str(number)}
    labels = {"labels": model.labels} if model.labels else {}
    return Operation.begin(model.project, kind.id(model.id, now_us=now_us), metadata | labels, now_us=now_us)


def _apply_patch(body: Mapping[str, Any], patch: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """Return the body after a patch. Fields that the mask names and the patch lacks are removed."""
    result = dict(body)
    for name in (_FIELDS[path] for path in paths if path in _FIELDS):
        result.pop(name, None)
        if patch.get(name):
            result[name] = patch[name]
    check_size(result, field="model.description")
    return result


def _named_default(model: Model, patch: Mapping[str, Any], versions: Sequence[Version]) -> Version:
    """Return the version that a patch makes the default. It is named by id or by resource name."""
    field = "model.default_version.name"
    default = patch.get("defaultVersion")
    name = default.get("name") if isinstance(default, dict) else None
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(
            "The mask names the default version, but the model in the body doesn't say which.", field=field
        )
    matching = [version for version in versions if name in (version.id, version.name)]
    if not matching:
        raise version_not_found(model.project, model.id, name.rpartition("/")[2])
    return matching[0]
