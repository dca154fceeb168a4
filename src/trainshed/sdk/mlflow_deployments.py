"""The plugin of `mlflow deployments` for the target `trainshed`: a deployment is a model, its latest URI the default
version. MLflow imports this module; nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import mlflow.artifacts
from mlflow.deployments import BaseDeploymentClient, PredictionsResponse
from mlflow.exceptions import MlflowException
from mlflow.models import Model as MlflowModel
from mlflow.protos.databricks_pb2 import (
    INTERNAL_ERROR,
    INVALID_PARAMETER_VALUE,
    RESOURCE_ALREADY_EXISTS,
    RESOURCE_DOES_NOT_EXIST,
)

from trainshed.client.transport import segment
from trainshed.domain.uris import is_uri
from trainshed.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError, TrainshedError
from trainshed.sdk.models import Model
from trainshed.sdk.session import Trainshed, connect

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGET = "trainshed"
_HELP = """\
The target is `trainshed`, or `trainshed:/PROJECT` for a project other than that of TRAINSHED_PROJECT.
The server and the token are those of the command line `trainshed`: TRAINSHED_URL and TRAINSHED_TOKEN.

A deployment is a model of the project. `create` makes it with version v1, `update` with another model URI makes the
next version the default, and `delete` removes it with all versions. The model URI is any that MLflow reads, such as
models:/NAME/1 or a local folder, or a folder in a bucket of the server, gs://BUCKET/FOLDER.

Options of `create` and `update` (--config KEY=VALUE):

  runtime_version  the runtime; `torch` if the folder has the flavour pytorch, else the server's default
  min_nodes        hosts that never sleep; 0 lets the version sleep
  max_nodes        the most hosts
  batching         auto, exact or off
  machine_type     kept with the version

Requests also go by HTTP: URL/mlflow/projects/PROJECT/models/NAME/invocations.

Example:
  mlflow deployments create -t trainshed -m models:/iris/1 --name iris
"""
_CODES = (
    (NotFoundError, RESOURCE_DOES_NOT_EXIST),
    (AlreadyExistsError, RESOURCE_ALREADY_EXISTS),
    (InvalidArgumentError, INVALID_PARAMETER_VALUE),
)
_OPTIONS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "runtime_version": lambda value: {"runtimeVersion": value},
    "min_nodes": lambda value: {"autoScaling": {"minNodes": int(value)}},
    "max_nodes": lambda value: {"autoScaling": {"maxNodes": int(value)}},
    "batching": lambda value: {"servingOptions": {"batching": value.upper()}},
    "machine_type": lambda value: {"machineType": value},
}


def target_help() -> str:
    """Return the text of `mlflow deployments help -t trainshed`."""
    return _HELP


def run_local(target: str, name: str, model_uri: str, flavor: str | None = None, config: object = None) -> None:
    """Raise `MlflowException`: models are served by a server."""
    raise MlflowException(
        f"The target {target} deploys to a server and has no local mode. Start a server with `trainshed up`, and "
        f"deploy {name} with `mlflow deployments create`.",
        INVALID_PARAMETER_VALUE,
    )


class TrainshedDeploymentClient(BaseDeploymentClient):  # type: ignore[misc]  # MLflow has no types
    """Deploys to one project of one server. Errors are `MlflowException`s with the server's sentences."""

    def create_deployment(
        self,
        name: str,
        model_uri: str,
        flavor: str | None = None,
        config: Mapping[str, Any] | None = None,
        endpoint: str | None = None,
    ) -> dict[str, Any]:
        """Create a model with one version, and wait until it is ready."""
        with self._connection(endpoint) as shed:
            _check_flavor(flavor)
            if any(model.name == name for model in shed.models.list()):
                raise AlreadyExistsError(f"There is a deployment {name} already. Update it, or choose another name.")
            _deploy(shed, name, model_uri, config)
            return {"name": name, "flavor": flavor} | _description(shed.models.get(name))

    def update_deployment(
        self,
        name: str,
        model_uri: str | None = None,
        flavor: str | None = None,
        config: Mapping[str, Any] | None = None,
        endpoint: str | None = None,
    ) -> dict[str, Any]:
        """Create the next version, which becomes the default. The versions before it stay."""
        with self._connection(endpoint) as shed:
            _check_flavor(flavor)
            if model_uri is None:
                raise InvalidArgumentError("An update needs a model URI: versions do not change.")
            shed.models.get(name)
            _deploy(shed, name, model_uri, config)
            return {"flavor": flavor}

    def delete_deployment(
        self, name: str, config: Mapping[str, Any] | None = None, endpoint: str | None = None
    ) -> None:
        """Delete the model with all versions. A model that is not there is no error."""
        with self._connection(endpoint) as shed:
            try:
                shed.models.get(name).delete(with_versions=True)
            except NotFoundError:
                return

    def list_deployments(self, endpoint: str | None = None) -> list[dict[str, Any]]:
        """List the models of the project, the newest first."""
        with self._connection(endpoint) as shed:
            return [{"name": model.name} for model in shed.models.list()]

    def get_deployment(self, name: str, endpoint: str | None = None) -> dict[str, Any]:
        """Return the model with its default version."""
        with self._connection(endpoint) as shed:
            return {"name": name} | _description(shed.models.get(name))

    def predict(self, deployment_name: str | None = None, inputs: Any = None, endpoint: str | None = None) -> Any:
        """Return the predictions for a data frame, an array, a list of instances or the body of a request."""
        with self._connection(endpoint) as shed:
            if deployment_name is None:
                raise InvalidArgumentError("Say which deployment to ask: deployment_name.")
            path = f"/mlflow/projects/{shed.project}/models/{segment(deployment_name)}/invocations"
            return PredictionsResponse(shed.client.call("POST", path, body=_body(inputs)))

    def _connection(self, endpoint: str | None) -> AbstractContextManager[Trainshed]:
        return _connection(str(self.target_uri), endpoint)


@contextmanager
def _connection(target_uri: str, endpoint: str | None) -> Iterator[Trainshed]:
    """A connection to the project in a target. Raises `MlflowException` in place of the client's own errors."""
    try:
        if endpoint is not None:
            raise InvalidArgumentError("The target trainshed has no endpoints: a deployment has a URL of its own.")
        with connect(project=_project(target_uri)) as shed:
            yield shed
    except TrainshedError as exc:
        code = next((code for kind, code in _CODES if isinstance(exc, kind)), INTERNAL_ERROR)
        raise MlflowException(str(exc), code) from exc


def _project(target_uri: str) -> str | None:
    """The project in `trainshed:/PROJECT`. None if the target names none."""
    parsed = urlparse(target_uri)
    return (parsed.netloc + parsed.path).strip("/") or None if parsed.scheme else None


def _check_flavor(flavor: str | None) -> None:
    if flavor not in (None, "python_function"):
        raise InvalidArgumentError(
            f"The flavour {flavor!r} can't be chosen: the server takes the best one that the model's folder has."
        )


def _deploy(shed: Trainshed, name: str, model_uri: str, config: Mapping[str, Any] | None) -> None:
    body = _version_body(config or {})
    if is_uri(model_uri):
        shed.models.deploy(name, model_uri, config=body)
        return
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=model_uri))
    if "pytorch" in MlflowModel.load(str(folder)).flavors:
        body = {"runtimeVersion": "torch"} | body
    shed.models.deploy(name, folder, config=body)


def _version_body(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Version for the options of a deployment."""
    body: dict[str, Any] = {}
    for key, value in config.items():
        if key not in _OPTIONS:
            raise InvalidArgumentError(f"There is no option {key!r}. There are: {', '.join(_OPTIONS)}.")
        try:
            fields = _OPTIONS[key](str(value))
        except ValueError:
            raise InvalidArgumentError(f"The option {key} must be a whole number, and is {value!r}.") from None
        for name, field in fields.items():
            body[name] = body[name] | field if name in body else field
    return body


def _description(model: Model) -> dict[str, Any]:
    default = model.default
    versions = {each.name: each for each in model.versions}
    known = versions.get(default)
    return {
        "version": default,
        "state": known.state if known is not None else "",
        "model_uri": known.origin if known is not None else "",
        "runtime_version": known.runtime if known is not None else "",
    }


def _body(inputs: Any) -> dict[str, Any]:
    """The body of a request to /invocations. An object with one of MLflow's fields is sent as it is."""
    if hasattr(inputs, "to_dict") and hasattr(inputs, "columns"):
        split = inputs.to_dict(orient="split")
        return {"dataframe_split": {"columns": list(split["columns"]), "data": split["data"]}}
    if isinstance(inputs, Mapping):
        fields = {"dataframe_split", "dataframe_records", "instances", "inputs"}
        values = {str(key): _plain(value) for key, value in inputs.items()}
        return values if fields & values.keys() else {"inputs": values}
    if hasattr(inputs, "tolist") or isinstance(inputs, list):
        return {"instances": _plain(inputs)}
    raise InvalidArgumentError("Inputs must be a data frame, an array, a list of instances or the body of a request.")


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
