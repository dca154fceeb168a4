"""Models: deploy exports, get predictions, choose the default version."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import trainshed.sdk.display as display
from trainshed.client import operations
from trainshed.client.context import ClientContext
from trainshed.client.copy_plan import Transfer, run_transfer
from trainshed.client.operations import create_once
from trainshed.client.parallel import in_parallel
from trainshed.client.staging import stage_upload
from trainshed.client.submission import REGION
from trainshed.client.transport import segment
from trainshed.domain.uris import is_uri
from trainshed.errors import AlreadyExistsError, CannotProceedError, InvalidArgumentError, NotFoundError, TrainshedError
from trainshed.sdk.predictions import Predictions
from trainshed.sdk.records import Export
from trainshed.sdk.rollouts import ModelRollout


class Trained(Protocol):
    """Something with exports: a job."""

    @property
    def name(self) -> str: ...

    def exports(self) -> list[Export]:
        """List what can be deployed, the newest last."""
        ...


class Models:
    """The models of a project: `connect().models`."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context

    def create(self, name: str, *, description: str = "", labels: Mapping[str, str] | None = None) -> Model:
        """Create a model: a name for versions. Raises `AlreadyExistsError` if the name is taken."""
        body: dict[str, Any] = {"name": name, "regions": [REGION]}
        body |= {"description": description} if description else {}
        body |= {"labels": dict(labels)} if labels else {}
        self._context.client.call("POST", self._context.ml("models"), body=body)
        return Model(self._context, name)

    def get(self, name: str) -> Model:
        """Return an existing model. Raises `NotFoundError` if there is none of this name."""
        model = Model(self._context, name)
        model.describe()
        return model

    def list(self) -> list[Model]:
        """List all models, the newest first."""
        pages = self._context.client.pages(self._context.ml("models"), "models", query={"pageSize": 100})
        return [Model(self._context, _last(item["name"])) for item in pages]

    def deploy(
        self,
        name: str,
        origin: str | Path | None = None,
        *,
        job: Trained | None = None,
        version: str | None = None,
        runtime_version: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Model:
        """Create a version from an export, wait until it is ready, and make it the default.

        Give `origin`, gs://BUCKET/FOLDER or a local folder, or `job`, whose newest export is used. The model is created
        if it is missing; without a `version` it is the next of v1, v2 and so on. `config` is a Version as in the API,
        for fields without an argument, such as `{"servingOptions": {"batching": "EXACT"}}`; with a `container` in it
        neither is needed. Raises `TrainshedError`, with the
        reason, if the version can't be served.
        """
        if (origin is None) == (job is None) and (origin is not None or "container" not in (config or {})):
            raise InvalidArgumentError("Deploying needs what was exported: give either origin or job.")
        export = _newest(job) if job is not None else None
        source = export.uri if export is not None else self._uri(origin) if origin is not None else ""
        model = self._get_or_create(name)
        version_name = version or _next([each.name for each in model.versions])
        body = dict(config or {}) | {"name": version_name} | ({"deploymentUri": source} if source else {})
        runtime = runtime_version or (export.runtime if export is not None and "container" not in body else "")
        if runtime:
            body["runtimeVersion"] = runtime
        model._create(body)
        if model.default != version_name:
            model.set_default(version_name)
        return model

    def _get_or_create(self, name: str) -> Model:
        try:
            return self.get(name)
        except NotFoundError:
            pass
        try:
            return self.create(name)
        except AlreadyExistsError:  # another client created it first
            return self.get(name)

    def _uri(self, origin: str | Path) -> str:
        if is_uri(str(origin)):
            return str(origin)

        def run_transfers(transfers: Sequence[Transfer]) -> None:
            in_parallel(lambda each: run_transfer(self._context.storage, each, progress=lambda count: None), transfers)

        return stage_upload(self._context, Path(origin), None, run_transfers=run_transfers, notify=lambda text: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a model, as it was when it was listed."""

    name: str
    state: str  #: CREATING, READY, FAILED, UPDATING or DELETING
    is_default: bool
    origin: str  #: the folder it was created from
    runtime: str
    error: str  #: why it FAILED


class Model:
    """One model. It stores only a name: each call goes to the server."""

    def __init__(self, context: ClientContext, name: str) -> None:
        self._context = context
        self.name = name

    def predict(
        self,
        instances: Sequence[Any] | Any,
        *,
        version: str | None = None,
        signature: str | None = None,
        labels: Sequence[str] | None = None,
    ) -> Predictions:
        """Return the predictions for instances, one each. NumPy arrays and pandas frames are accepted.

        The default version is used, unless `version` names one. `labels` name the elements of a vector, for display.
        Errors are the model's own sentences.
        """
        body: dict[str, Any] = {"instances": _instances(instances)}
        if signature is not None:
            body["signature_name"] = signature
        response = self._send("predict", version, body)
        if not isinstance(response, dict) or "predictions" not in response:
            error = response.get("error") if isinstance(response, dict) else response
            raise TrainshedError(f"Model {self.name} gave no predictions: {error}")
        return Predictions(response["predictions"], labels=labels)

    @property
    def versions(self) -> list[Version]:
        """The versions, the newest first."""
        pages = self._context.client.pages(f"{self._path}/versions", "versions", query={"pageSize": 100})
        return [_version(item) for item in pages]

    @property
    def default(self) -> str:
        """The version for requests that name none; "" if there is none."""
        return _last((self.describe().get("defaultVersion") or {}).get("name", ""))

    def set_default(self, version: str) -> Model:
        """Make another version the default. It must be READY."""
        self._context.client.call("POST", f"{self._version_path(version)}:setDefault", body={})
        return self

    def rollout(
        self,
        version: str,
        *,
        shadow_s: float = 0,
        steps: Sequence[int] = (1, 10, 50, 100),
        step_s: float = 300,
        abort_if: Sequence[str] = (),
        min_requests: int = 200,
    ) -> ModelRollout:
        """Start to roll a version out by stages, such as `abort_if=["error_rate>0.5%", "p99>1.5x"]`.

        It goes on in the server; `wait` of the result waits for its end.
        """
        body = {
            "version": version,
            "shadowSeconds": shadow_s,
            "steps": list(steps),
            "stepSeconds": step_s,
            "abortIf": list(abort_if),
            "minRequests": min_requests,
        }
        started = self._context.client.call("POST", f"/trainshed{self._path}/rollouts", body=body)
        return ModelRollout(self._context, f"/trainshed{self._path}/rollouts/{started['id']}")

    @property
    def rollouts(self) -> list[ModelRollout]:
        """The rollouts, the newest first."""
        listed = self._context.client.call("GET", f"/trainshed{self._path}/rollouts")
        return [
            ModelRollout(self._context, f"/trainshed{self._path}/rollouts/{each['id']}") for each in listed["rollouts"]
        ]

    def describe(self) -> dict[str, Any]:
        """Return the Model as in the API."""
        body: dict[str, Any] = self._context.client.call("GET", self._path)
        return body

    def details(self, version: str | None = None) -> dict[str, Any]:
        """Return what serves a version, by default the default one: `loader`, `batching`, `invariance`, `hosts`."""
        path = f"/trainshed{self._version_path(version or self.default)}"
        body: dict[str, Any] = self._context.client.call("GET", path)
        return body

    def delete_version(self, version: str) -> None:
        """Delete one version. The default version can only be deleted last."""
        self._finish(self._context.client.call("DELETE", self._version_path(version)))

    def delete(self, *, with_versions: bool = False) -> None:
        """Delete the model.

        Raises `FailedPreconditionError` if it has versions, unless `with_versions` deletes them too.
        """
        if with_versions:
            for each in sorted(self.versions, key=lambda version: version.is_default):
                self.delete_version(each.name)
        self._finish(self._context.client.call("DELETE", self._path))

    @property
    def _path(self) -> str:
        return self._context.ml(f"models/{segment(self.name)}")

    def _version_path(self, version: str) -> str:
        return f"{self._path}/versions/{segment(version)}"

    def _send(self, verb: str, version: str | None, body: Mapping[str, Any]) -> Any:
        """Send one request, without retries: the caller decides whether to repeat it."""
        client = self._context.client
        path = self._version_path(version) if version else self._path
        headers = {"content-type": "application/json"}
        raw = client.read(client.exchange("POST", f"{path}:{verb}", headers=headers, body=json.dumps(body).encode()))
        try:
            return json.loads(raw)
        except ValueError as exc:
            raise CannotProceedError(f"What {client.url} answered is not JSON: {raw[:200]!r}.") from exc

    def _create(self, body: dict[str, Any]) -> None:
        name, live = str(body["name"]), display.Live()
        check_command = f"trainshed versions describe {name} --model {self.name}"
        operation = create_once(self._context, f"{self._path}/versions", body, check_command=check_command)
        for update in operations.follow(self._context, operation):
            if not update.get("done"):
                text = f"Version {name} of model {self.name} is being created. {self._progress(name)}".rstrip()
                live.show(display.message(text), text)
        if "error" in update:
            raise TrainshedError(str(update["error"].get("message", "The version could not be created.")))
        text = f"Version {name} of model {self.name} is ready."
        live.show(display.message(text), text)

    def _progress(self, version: str) -> str:
        return str(self._context.client.call("GET", f"/trainshed{self._version_path(version)}").get("progress", ""))

    def _finish(self, operation: dict[str, Any]) -> None:
        for update in operations.follow(self._context, operation):
            if "error" in update:
                raise TrainshedError(str(update["error"].get("message", "It failed.")))

    def __repr__(self) -> str:
        return f"<Model {self.name} of project {self._context.project}>"

    def _repr_html_(self) -> str | None:
        try:
            rows = [
                {
                    "version": each.name,
                    "state": each.state,
                    "default": "yes" if each.is_default else "",
                    "runtime": each.runtime,
                    "origin": each.origin,
                }
                for each in self.versions
            ]
        except TrainshedError:
            return None  # the notebook then shows the name; a display must not raise
        head = display.message(f"Model {self.name}" + ("" if rows else ", without versions"))
        return head + (display.table(rows, tuple(rows[0])) if rows else "")


def _newest(job: Trained) -> Export:
    exports = job.exports()
    if not exports:
        raise NotFoundError(f"Job {job.name} exported nothing that can be deployed. Give the folder as origin.")
    return exports[-1]


def _next(names: Sequence[str]) -> str:
    numbers = [int(name[1:]) for name in names if re.fullmatch(r"v[1-9][0-9]*", name)]
    return f"v{max(numbers, default=0) + 1}"


def _version(body: Mapping[str, Any]) -> Version:
    return Version(
        name=_last(body["name"]),
        state=body.get("state", ""),
        is_default=bool(body.get("isDefault")),
        origin=body.get("deploymentUri", ""),
        runtime=body.get("runtimeVersion", ""),
        error=body.get("errorMessage", ""),
    )


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _instances(instances: Any) -> list[Any]:
    values = _to_json(instances.to_dict(orient="records") if hasattr(instances, "to_dict") else instances)
    if not isinstance(values, list):
        raise InvalidArgumentError("instances must be a list, with one item for each prediction wanted.")
    return values


def _to_json(value: Any) -> Any:
    """Convert to JSON types: arrays and their numbers become lists and numbers, bytes become {"b64": ...}."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {str(key): _to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(each) for each in value]
    return value
