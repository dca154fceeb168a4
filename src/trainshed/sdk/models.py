"""Models: deploy what trainings exported, ask for predictions, say which version answers."""

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
from trainshed.client.staging import staged
from trainshed.client.submission import REGION
from trainshed.client.transport import segment
from trainshed.errors import AlreadyExistsError, CannotProceedError, InvalidArgumentError, NotFoundError, TrainshedError
from trainshed.sdk.predictions import Predictions
from trainshed.sdk.records import Export


class Trained(Protocol):
    """Something with exports: a job."""

    @property
    def name(self) -> str: ...

    def exports(self) -> list[Export]:
        """What can be deployed, the newest last."""
        ...


class Models:
    """The models of a project: `connect().models`."""

    def __init__(self, here: ClientContext) -> None:
        self._here = here

    def create(self, name: str, *, description: str = "", labels: Mapping[str, str] | None = None) -> Model:
        """A new model: a name for versions to come. `AlreadyExistsError` if there is one of this name."""
        body: dict[str, Any] = {"name": name, "regions": [REGION]}
        body |= {"description": description} if description else {}
        body |= {"labels": dict(labels)} if labels else {}
        self._here.client.call("POST", self._here.ml("models"), body=body)
        return Model(self._here, name)

    def get(self, name: str) -> Model:
        """A model that is there. `NotFoundError` if there is none of this name."""
        model = Model(self._here, name)
        model.describe()
        return model

    def list(self) -> list[Model]:
        """All models, the newest first."""
        pages = self._here.client.pages(self._here.ml("models"), "models", query={"pageSize": 100})
        return [Model(self._here, _last(found["name"])) for found in pages]

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
        """Make a version from what a training exported, wait until it is ready, and let it answer for the model.

        Give the `origin`, gs://BUCKET/FOLDER or a folder on this machine, or the `job`, whose newest export it is
        then. The model is made if it is not there; without a `version` it is the next of v1, v2 and so on. `config` is
        a Version as the API has it, for what has no argument; with a `container` in it neither is needed.
        `TrainshedError`, with the reason, if it can't be served.
        """
        if (origin is None) == (job is None) and (origin is not None or "container" not in (config or {})):
            raise InvalidArgumentError("Deploying needs what was exported: give either origin or job.")
        export = _newest(job) if job is not None else None
        source = export.uri if export is not None else self._uri(origin) if origin is not None else ""
        model = self._made(name)
        chosen = version or _next([each.name for each in model.versions])
        body = dict(config or {}) | {"name": chosen} | ({"deploymentUri": source} if source else {})
        runtime = runtime_version or (export.runtime if export is not None and "container" not in body else "")
        if runtime:
            body["runtimeVersion"] = runtime
        model._create(body)
        if model.default != chosen:
            model.set_default(chosen)
        return model

    def _made(self, name: str) -> Model:
        try:
            return self.get(name)
        except NotFoundError:
            pass
        try:
            return self.create(name)
        except AlreadyExistsError:  # someone else was faster
            return self.get(name)

    def _uri(self, origin: str | Path) -> str:
        if str(origin).startswith("gs://"):
            return str(origin)

        def carry(transfers: Sequence[Transfer]) -> None:
            in_parallel(lambda each: run_transfer(self._here.storage, each, progress=lambda count: None), transfers)

        return staged(self._here, Path(origin), None, carry=carry, say=lambda text: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a model, as it was when it was asked for."""

    name: str
    state: str  #: CREATING, READY, FAILED, UPDATING or DELETING
    is_default: bool
    origin: str  #: the folder that it was made from
    runtime: str
    error: str  #: why it FAILED


class Model:
    """One model. It holds a name only: each question goes to the server."""

    def __init__(self, here: ClientContext, name: str) -> None:
        self._here = here
        self.name = name

    def predict(
        self,
        instances: Sequence[Any] | Any,
        *,
        version: str | None = None,
        signature: str | None = None,
        labels: Sequence[str] | None = None,
    ) -> Predictions:
        """The predictions for instances, one each. NumPy arrays and pandas frames are taken as they are.

        The default version answers, unless `version` names one. `labels` are words for the places of a vector, for
        display. Errors are the model's own sentences.
        """
        body: dict[str, Any] = {"instances": _instances(instances)}
        if signature is not None:
            body["signature_name"] = signature
        answer = self._ask("predict", version, body)
        if not isinstance(answer, dict) or "predictions" not in answer:
            said = answer.get("error") if isinstance(answer, dict) else answer
            raise TrainshedError(f"Model {self.name} gave no predictions: {said}")
        return Predictions(answer["predictions"], labels=labels)

    @property
    def versions(self) -> list[Version]:
        """Its versions, the newest first."""
        pages = self._here.client.pages(f"{self._path}/versions", "versions", query={"pageSize": 100})
        return [_version(found) for found in pages]

    @property
    def default(self) -> str:
        """The version that answers requests which name none; "" if there is none."""
        return _last((self.describe().get("defaultVersion") or {}).get("name", ""))

    def set_default(self, version: str) -> Model:
        """Let another version answer from now on. It must be READY."""
        self._here.client.call("POST", f"{self._version_path(version)}:setDefault", body={})
        return self

    def describe(self) -> dict[str, Any]:
        """The Model as the API has it."""
        found: dict[str, Any] = self._here.client.call("GET", self._path)
        return found

    def delete_version(self, version: str) -> None:
        """Delete one version. The default one can only go last."""
        self._finish(self._here.client.call("DELETE", self._version_path(version)))

    def delete(self, *, with_versions: bool = False) -> None:
        """Delete the model. `FailedPreconditionError` if it has versions, unless they are to go too."""
        if with_versions:
            for each in sorted(self.versions, key=lambda found: found.is_default):
                self.delete_version(each.name)
        self._finish(self._here.client.call("DELETE", self._path))

    @property
    def _path(self) -> str:
        return self._here.ml(f"models/{segment(self.name)}")

    def _version_path(self, version: str) -> str:
        return f"{self._path}/versions/{segment(version)}"

    def _ask(self, verb: str, version: str | None, body: Mapping[str, Any]) -> Any:
        """One request, once: whoever asks decides whether to ask again."""
        client = self._here.client
        where = self._version_path(version) if version else self._path
        headers = {"content-type": "application/json"}
        raw = client.read(client.exchange("POST", f"{where}:{verb}", headers=headers, body=json.dumps(body).encode()))
        try:
            return json.loads(raw)
        except ValueError as exc:
            raise CannotProceedError(f"What {client.url} answered is not JSON: {raw[:200]!r}.") from exc

    def _create(self, body: dict[str, Any]) -> None:
        name, live = str(body["name"]), display.Live()
        look_with = f"trainshed versions describe {name} --model {self.name}"
        operation = create_once(self._here, f"{self._path}/versions", body, look_with=look_with)
        for found in operations.follow(self._here, operation):
            if not found.get("done"):
                text = f"Version {name} of model {self.name} is being created. {self._news(name)}".rstrip()
                live.show(display.message(text), text)
        if "error" in found:
            raise TrainshedError(str(found["error"].get("message", "The version could not be created.")))
        text = f"Version {name} of model {self.name} is ready."
        live.show(display.message(text), text)

    def _news(self, version: str) -> str:
        return str(self._here.client.call("GET", f"/trainshed{self._version_path(version)}").get("progress", ""))

    def _finish(self, operation: dict[str, Any]) -> None:
        for found in operations.follow(self._here, operation):
            if "error" in found:
                raise TrainshedError(str(found["error"].get("message", "It failed.")))

    def __repr__(self) -> str:
        return f"<Model {self.name} of project {self._here.project}>"

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
            return None  # the notebook shows the name then; a display must not fail where a value was asked for
        head = display.message(f"Model {self.name}" + ("" if rows else ", without versions"))
        return head + (display.table(rows, tuple(rows[0])) if rows else "")


def _newest(job: Trained) -> Export:
    exports = job.exports()
    if not exports:
        raise NotFoundError(f"Job {job.name} exported nothing that can be deployed. Give the folder as origin.")
    return exports[-1]


def _next(taken: Sequence[str]) -> str:
    numbers = [int(name[1:]) for name in taken if re.fullmatch(r"v[1-9][0-9]*", name)]
    return f"v{max(numbers, default=0) + 1}"


def _version(found: Mapping[str, Any]) -> Version:
    return Version(
        name=_last(found["name"]),
        state=found.get("state", ""),
        is_default=bool(found.get("isDefault")),
        origin=found.get("deploymentUri", ""),
        runtime=found.get("runtimeVersion", ""),
        error=found.get("errorMessage", ""),
    )


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _instances(given: Any) -> list[Any]:
    plain = _plain(given.to_dict(orient="records") if hasattr(given, "to_dict") else given)
    if not isinstance(plain, list):
        raise InvalidArgumentError("instances must be a list, with one item for each prediction wanted.")
    return plain


def _plain(value: Any) -> Any:
    """What JSON can hold: arrays and their numbers become lists and numbers, bytes become {"b64": ...}."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
