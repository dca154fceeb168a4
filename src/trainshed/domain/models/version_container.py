"""Versions served by a custom container: the request, its checks, and the container's environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainshed.domain import json_fields as f
from trainshed.domain.jobs.containers import IMAGE
from trainshed.domain.models.version import Version
from trainshed.domain.uris import uri_parts
from trainshed.errors import FailedPreconditionError, InvalidArgumentError

DEFAULT_PORT = 8080
MODEL_FOLDER = "/gcs"  #: where trainers see buckets too; the version's snapshot is below it
_RESERVED_PREFIX = "AIP_"  #: prefix of variables that the server sets

CONTAINER = f.message(
    {
        "args": f.repeated(f.string),
        "command": f.repeated(f.string),
        "env": f.repeated(f.message({"name": f.string, "value": f.string})),
        "image": f.string,
        "ports": f.repeated(f.message({"containerPort": f.int32})),
    }
)
ROUTES = f.message({"health": f.string, "predict": f.string})

#: fields that an image replaces
_PROVIDED_BY_IMAGE = (
    *("explanationConfig", "framework", "packageUris", "predictionClass", "pythonVersion", "runtimeVersion"),
    "servingOptions",
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PATH = re.compile(r"/[!-~]{0,2000}")
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingContainer:
    """The container of a version, fully resolved."""

    image: str  #: as the user named it
    command: tuple[str, ...]  #: empty: the image's default
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]  #: in order: later values can reference earlier names
    port: int  #: 0: not specified
    predict: str
    health: str


def check_container(body: Mapping[str, Any]) -> None:
    """Raises `InvalidArgumentError`, which names the field, if a container is invalid or fields of one lack it."""
    if "container" not in body:
        if "routes" in body:
            raise InvalidArgumentError(
                "Routes are paths of a custom container, and none is given.", field="version.routes"
            )
        return
    if unsupported := next((name for name in _PROVIDED_BY_IMAGE if name in body), ""):
        raise InvalidArgumentError(
            "A version with a container is served by that alone, with what is in its image. Leave this field out.",
            field=f"version.{f.snake(unsupported)}",
        )
    container = body["container"]
    if not IMAGE.fullmatch(container.get("image", "")):
        raise InvalidArgumentError(
            f"{container.get('image', '')[:200]!r} does not name an image. Write one such as example/predictor:1.0, or "
            f"an image of this machine.",
            field="version.container.image",
        )
    _check_argv(container)
    _check_environment(container.get("env", ()))
    for port in container.get("ports", ()):
        if not 0 < port.get("containerPort", 0) < 65_536:
            raise InvalidArgumentError(
                f"A port is a number from 1 to 65535; {port.get('containerPort', 0)} is not.",
                field="version.container.ports",
            )
    for name, path in body.get("routes", {}).items():
        if path and not _PATH.fullmatch(path):
            raise InvalidArgumentError(
                f"{path[:200]!r} is not a path: those begin with / and have no spaces.", field=f"version.routes.{name}"
            )


def _check_argv(container: Mapping[str, Any]) -> None:
    for name in ("command", "args"):
        if any("\0" in word for word in container.get(name, ())):
            raise InvalidArgumentError("No program can be given a NUL.", field=f"version.container.{name}")
    if container.get("command") and not container["command"][0]:
        raise InvalidArgumentError("The program to run has no name.", field="version.container.command")


def _check_environment(env: Sequence[Mapping[str, str]]) -> None:
    field = "version.container.env"
    names = [variable.get("name", "") for variable in env]
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise InvalidArgumentError(
                f"{name[:200]!r} can't be the name of a variable: those have letters, digits and _.", field=field
            )
        if name.startswith(_RESERVED_PREFIX):
            raise InvalidArgumentError(
                f"{name[:200]} is set by the server: no name may begin with {_RESERVED_PREFIX}.", field=field
            )
        if names.count(name) > 1:
            raise InvalidArgumentError(f"{name[:200]} is given twice.", field=field)
    if any("\0" in variable.get("value", "") for variable in env):
        raise InvalidArgumentError("No variable can hold a NUL.", field=field)


def container_of(version: Version) -> ServingContainer | None:
    """The container that serves a version. Returns None if there is none."""
    container = version.body.get("container")
    if container is None:
        return None
    routes = version.body.get("routes", {})
    default_route = f"/v1/models/{version.model}/versions/{version.id}"
    ports = container.get("ports", ())
    return ServingContainer(
        image=container["image"],
        command=tuple(container.get("command", ())),
        args=tuple(container.get("args", ())),
        env=tuple((variable["name"], variable.get("value", "")) for variable in container.get("env", ())),
        port=ports[0]["containerPort"] if ports else 0,
        predict=routes.get("predict") or f"{default_route}:predict",
        health=routes.get("health") or default_route,
    )


def model_folder(version: Version) -> str:
    """The path of the version's snapshot in the container. Empty if it has no files."""
    uri = str(version.body.get("deploymentUri", ""))
    return f"{MODEL_FOLDER}/{'/'.join(uri_parts(uri)).strip('/')}" if uri else ""


def aip_environment(version: Version, container: ServingContainer, *, number: int) -> dict[str, str]:
    """The variables that AI Platform sets, without AIP_HTTP_PORT. `number` is the project's."""
    return {
        "AIP_FRAMEWORK": "CUSTOM_CONTAINER",
        "AIP_HEALTH_ROUTE": container.health,
        "AIP_MACHINE_TYPE": str(version.body.get("machineType", "")),
        "AIP_MODE": "PREDICTION",
        "AIP_MODE_VERSION": "1.0.0",
        "AIP_MODEL_NAME": version.model,
        "AIP_PREDICT_ROUTE": container.predict,
        "AIP_PROJECT_NUMBER": str(number),
        "AIP_STORAGE_URI": model_folder(version),
        "AIP_VERSION_NAME": version.id,
    }


def resolve_command(
    container: ServingContainer, server_env: Mapping[str, str]
) -> tuple[dict[str, str], list[str], list[str]]:
    """The environment, the command and the arguments, with `$(NAME)` expanded.

    `server_env` has the variables that the server sets. Undefined names stay as written; `$$` is a `$`.
    """
    env = dict(server_env)
    for name, value in container.env:
        env[name] = expand_variables(value, env)
    return (
        env,
        [expand_variables(word, env) for word in container.command],
        [expand_variables(word, env) for word in container.args],
    )


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """Expand `$(NAME)` references in a text."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def batch_prediction_unsupported(model: str, *, field: str = "") -> FailedPreconditionError:
    """The error for a batch prediction with a container."""
    return FailedPreconditionError(
        f"What would predict the rows is a custom container, and batch predictions load models themselves. Send the "
        f"rows as requests, such as with `trainshed predict --model {model} --json-instances FILE`.",
        field=field,
    )
