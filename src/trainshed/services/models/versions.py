"""Versions: create, get, list, patch and delete. This service writes rows; the deployment controller acts on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainshed.domain import names
from trainshed.domain.access.secrets import check_unchanged
from trainshed.domain.filters.parser import parse
from trainshed.domain.filters.server import SERVER
from trainshed.domain.image_registries import ImageRegistries
from trainshed.domain.json_fields import mask_paths
from trainshed.domain.models.model import Model, version_not_found
from trainshed.domain.models.sample_request import sample_request
from trainshed.domain.models.version import (
    HOSTED_CONTAINER,
    HOSTED_VERSION,
    Version,
    VersionState,
    serving_runtime,
    version_body,
)
from trainshed.domain.models.version_container import container_of
from trainshed.domain.models.version_details import VersionDetails
from trainshed.domain.models.version_request import (
    PATCHABLE,
    VersionRequest,
    apply_patch,
    notes_after,
    read_version,
    read_version_patch,
)
from trainshed.domain.names import ENGINE_LABEL, LOCAL_ENGINE
from trainshed.domain.operations import Operation, OperationType, response
from trainshed.domain.patches import check_etag, check_mask, merge_labels
from trainshed.domain.times import now_us
from trainshed.domain.uris import is_uri
from trainshed.domain.work_budget import WorkBudget, unlimited
from trainshed.errors import FailedPreconditionError, InvalidArgumentError
from trainshed.gateway.metrics import VersionMetrics
from trainshed.services.access.projects import Projects
from trainshed.services.access.quotas import Quotas
from trainshed.services.access.secrets import Secrets
from trainshed.services.operations import operation_body
from trainshed.services.paging import PageRequest, ResourcePage, scan
from trainshed.services.ports import DeploymentControl, HostPlacement, RuntimeResolver
from trainshed.services.storage.uris import UriChecker, parse_uri
from trainshed.store.models import ModelChange, ModelStore


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChecks:
    """What a request for a version is checked with."""

    runtimes: RuntimeResolver
    placement: HostPlacement
    uri_checker: UriChecker
    registries: ImageRegistries
    quotas: Quotas
    secrets: Secrets


class Versions:
    """The versions of all models. Thread-safe. Changes are stored and routed when a method returns."""

    def __init__(
        self,
        store: ModelStore,
        control: DeploymentControl,
        metrics: VersionMetrics,
        projects: Projects,
        checks: VersionChecks,
        *,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._store = store
        self._control = control
        self._metrics = metrics
        self._projects = projects
        self._checks = checks
        self._clock = clock

    def create(
        self, project: str, model_id: str, body: Mapping[str, Any], budget: WorkBudget | None = None
    ) -> dict[str, Any]:
        """Start to create a version. Raises `AlreadyExistsError` if the model has one of that name.
        Raises `QuotaExceededError` beyond a limit of the project.

        Its files are looked for within the budget. Raises what `WorkBudget.check` raises, and nothing is stored then.
        """
        budget = budget or unlimited()
        request = read_version(body)
        model = self._store.get(project, model_id)
        details = self._details(model, request)
        self._check_uris(project, request.body, budget)
        budget.check(0)
        version = Version(
            project=project,
            model=model_id,
            id=request.id,
            body=request.body,
            labels=request.labels,
            details=details,
            created_us=self._clock(),
        )
        self._checks.secrets.check(project, version.labels, _without_secrets(version), what="version")
        started = _start_operation(
            OperationType.CREATE_VERSION, version, number=self._projects.number(project), default=False
        )
        check = self._checks.quotas.check_version(project, version.host_range.maximum)
        _, operation = self._store.add_version(version, started, check)
        self._control.publish(project, model_id)  # so that predictions are refused with 503 from now on, not with 404
        self._control.wake()
        return operation_body(operation)

    def get(self, project: str, model_id: str, version_id: str) -> dict[str, Any]:
        return self._body(*self._store.version_listed(project, model_id, version_id))

    def page(self, project: str, model_id: str, request: PageRequest) -> ResourcePage:
        """Return versions of a model that match the filter, newest first. See `scan`."""
        query = parse(request.query, SERVER)
        model = self._store.get(project, model_id)
        versions, cursor = scan(
            lambda before, limit: self._store.page_versions(model, before=before, limit=limit),
            lambda version: query.matches(self._body(model, version)),
            request,
        )
        return ResourcePage(items=[self._body(model, version) for version in versions], next=cursor)

    def patch(
        self, project: str, model_id: str, version_id: str, *, mask: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Change what the mask names. Raises `AbortedError` if the body has an etag that is not current.
        Raises `QuotaExceededError` if it has more hosts then than the limit of the project allows.

        The returned operation is done, unless the number of hosts changes: then it ends when they are ready.
        """
        patch, paths = read_version_patch(body), mask_paths(mask, field="update_mask")
        check_mask(paths, PATCHABLE, patch, what="version")
        labels = names.labels(patch.get("labels", {}), field="version.labels")
        fields = [path for path in paths if path in PATCHABLE]
        if any(path.startswith("request_logging_config") for path in fields):
            self._check_logging(project, patch)
        now, number = self._clock(), self._projects.number(project)

        def decide(model: Model, versions: Sequence[Version]) -> ModelChange:
            version = _find_version(model, versions, version_id)
            if "etag" in patch:
                check_etag(patch["etag"], version.generation, what=f"version {version.id}")
            if version.state is VersionState.DELETING:
                raise FailedPreconditionError(f"Version {version.id} is being deleted.")
            new_labels = names.labels(merge_labels(version.labels, labels, paths), field="version.labels")
            if new_labels.get(ENGINE_LABEL, version.engine) != version.engine:
                raise FailedPreconditionError(
                    f"The hosts of version {version.id} are on engine {version.engine}, and stay there. Leave the "
                    f"label {ENGINE_LABEL} as it is, or create another version.",
                    field=f"version.labels.{ENGINE_LABEL}",
                )
            check_unchanged(version.labels, new_labels, what=f"version {version.id}")
            new_body = apply_patch(version.body, patch, fields)
            operation_id = OperationType.UPDATE_VERSION.id(model_id, version_id, now_us=now)
            changed = replace(
                version.with_body(new_body, operation_id),
                labels=new_labels,
                details=replace(version.details, notes=notes_after(new_body, version.details.notes)),
            )
            default = model.default_version == version.id
            stored = replace(changed, generation=changed.generation + 1)
            operation = _start_operation(
                OperationType.UPDATE_VERSION, stored, number=number, default=default, now_us=now
            )
            if changed.operation != operation_id:
                operation = operation.succeeded(response("Version", version_body(stored, default=default)), now_us=now)
            more = changed.host_range.maximum - version.host_range.maximum
            return ModelChange(
                version=changed, operation=operation, check=self._checks.quotas.check_hosts(project, more)
            )

        _, change = self._store.change(project, model_id, decide)
        self._control.publish(project, model_id)
        self._control.wake()
        assert change.operation is not None  # `decide` sets it
        return operation_body(change.operation)

    def delete(self, project: str, model_id: str, version_id: str) -> dict[str, Any]:
        """Start to delete a version.

        Raises `FailedPreconditionError` if requests to the model still go to it.
        """
        now, number = self._clock(), self._projects.number(project)

        def decide(model: Model, versions: Sequence[Version]) -> ModelChange:
            version = _find_version(model, versions, version_id)
            model.check_can_lose(version, versions)
            default = model.default_version == version.id
            operation = _start_operation(
                OperationType.DELETE_VERSION, version, number=number, default=default, now_us=now
            )
            deleting = version.to(VersionState.DELETING, error=version.error, operation=operation.id)
            return ModelChange(version=deleting, operation=operation)

        _, change = self._store.change(project, model_id, decide)
        self._control.wake()
        assert change.operation is not None  # `decide` sets it
        return operation_body(change.operation)

    def set_default(self, project: str, model_id: str, version_id: str) -> dict[str, Any]:
        """Make a version the default of its model. Raises `FailedPreconditionError` unless it is READY."""
        self._store.change(
            project,
            model_id,
            lambda model, versions: ModelChange(model=model.with_default(_find_version(model, versions, version_id))),
        )
        self._control.publish(project, model_id)
        return self.get(project, model_id, version_id)

    def details(self, project: str, model_id: str, version_id: str) -> dict[str, Any]:
        """Return the version with what the API has no field for: loader, runtime, parity, hosts, progress, log."""
        model, version = self._store.version_listed(project, model_id, version_id)
        return {
            "version": self._body(model, version),
            **version.details.body(),
            "files": version.files,
            "operation": version.operation,
            "progress": self._control.progress(project, model_id, version_id),
            "hosts": list(self._control.hosts(project, model_id, version_id)),
            "scaling": self._scaling(version),
            "log": self._control.log_tail(project, model_id, version_id),
        }

    def _scaling(self, version: Version) -> dict[str, Any] | None:
        limits = version.host_range
        if not limits.scales:
            return None
        scaling = self._control.scaling(version.project, version.model, version.id)
        return {
            "minHosts": version.nodes,
            "maxHosts": limits.maximum,
            "hosts": scaling.hosts,
            "inFlight": scaling.in_flight,
            "waitsForMemory": scaling.waits_for_memory,
        }

    def signatures(self, project: str, model_id: str, version_id: str) -> Mapping[str, Any]:
        """Return the signatures of the model, as its first host loaded it. No host is called.

        Returns an empty mapping for models without signatures, and until the version is READY.
        """
        _, version = self._store.version_listed(project, model_id, version_id)
        return version.details.served.signatures if version.details.served is not None else {}

    def sample(self, project: str, model_id: str, version_id: str) -> dict[str, Any]:
        """Return sample instances. They come from the version's details; no host is called."""
        _, version = self._store.version_listed(project, model_id, version_id)
        return sample_request(version.details.served)

    def _details(self, model: Model, request: VersionRequest) -> VersionDetails:
        """Resolve the runtime, and the engine from the version's own labels or else from those of its model."""
        labels = {**model.labels, **request.labels}
        if "container" in request.body:
            self._checks.registries.check(request.body["container"]["image"], field="version.container.image")
            engine = self._checks.placement.choose_for_hosts(labels, HOSTED_CONTAINER)
            return VersionDetails(runtime="", engine=engine, notes=request.notes)
        runtime_request = serving_runtime(
            request.body.get("runtimeVersion", ""),
            request.body.get("pythonVersion", ""),
            request.body.get("framework", ""),
        )
        try:
            choice = self._checks.runtimes.resolve(
                runtime_request.runtime_version, runtime_request.python_version, what="version"
            )
        except InvalidArgumentError as exc:
            raise InvalidArgumentError(str(exc), field=f"version.{exc.field.rpartition('.')[2]}") from None
        notes = tuple(note for note in (runtime_request.note, *choice.notes, *request.notes) if note)
        engine = self._checks.placement.choose_for_hosts(labels, HOSTED_VERSION)
        return VersionDetails(runtime=choice.name, engine=engine, notes=notes)

    def _check_uris(self, project: str, body: Mapping[str, Any], budget: WorkBudget) -> None:
        """Raise `FailedPreconditionError` if files are missing. Buckets of other projects count as missing."""
        uri = body.get("deploymentUri", "")
        uri_checker = self._checks.uri_checker
        if uri and not uri_checker.folder_readable(project, uri, field="version.deployment_uri", budget=budget):
            raise FailedPreconditionError(
                f"There are no files in {uri}. It must be a folder in a bucket of project {project} that holds the "
                f"exported model. List what there is with `trainshed buckets ls gs://BUCKET`.",
                field="version.deployment_uri",
            )
        field = "version.package_uris"
        packages = body.get("packageUris", ())
        if missing := [
            each for each in packages if not uri_checker.object_readable(project, each, field=field, budget=budget)
        ]:
            raise FailedPreconditionError(
                f"The provided GCS paths cannot be read: {', '.join(missing[:5])}. Each must be an object in a bucket "
                f"of project {project}.",
                field=field,
            )
        self._check_logging(project, body)

    def _check_logging(self, project: str, body: Mapping[str, Any]) -> None:
        field = "version.request_logging_config.bigquery_table_name"
        uri = body.get("requestLoggingConfig", {}).get("bigqueryTableName", "")
        if not is_uri(uri):
            return  # absent, or rejected by another check
        bucket, _ = parse_uri(uri, field=field)
        if not self._checks.uri_checker.owns(project, bucket):
            raise FailedPreconditionError(
                f"The bucket gs://{bucket} does not exist in project {project}. "
                f"Make it with `trainshed buckets mb gs://{bucket}`.",
                field=field,
            )

    def _body(self, model: Model, version: Version) -> dict[str, Any]:
        last_use_us = self._metrics.last_used_us(version.project, version.model, version.id)
        return version_body(version, default=model.default_version == version.id, last_use_us=last_use_us or None)


def _start_operation(
    kind: OperationType, version: Version, *, number: int, default: bool, now_us: int | None = None
) -> Operation:
    """Start an operation on a version. A create operation starts at the version's creation time."""
    metadata = {
        "operationType": kind.value,
        "modelName": f"projects/{version.project}/models/{version.model}",
        "version": version_body(version, default=default),
        "projectNumber": str(number),
    }
    labels = {"labels": version.labels} if version.labels else {}
    start_us = version.created_us if now_us is None else now_us
    operation_id = kind.id(version.model, version.id, now_us=start_us)
    return Operation.begin(version.project, operation_id, metadata | labels, now_us=start_us)


def _without_secrets(version: Version) -> str:
    """Return why the hosts of a version get no secrets. Returns "" if they do."""
    if version.engine != LOCAL_ENGINE:
        return f"Hosts on the engine {version.engine} get no secrets: these stay on this machine."
    return "" if container_of(version) is None else "Versions in containers get no secrets."


def _find_version(model: Model, versions: Sequence[Version], version_id: str) -> Version:
    for version in versions:
        if version.id == version_id:
            return version
    raise version_not_found(model.project, model.id, version_id)
