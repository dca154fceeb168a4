"""Versions that are containers: what a user may ask of one, and what it finds in its environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainshed.domain import json_fields as f
from trainshed.domain.jobs.containers import IMAGE
from trainshed.domain.models.version import Version
from trainshed.errors import FailedPreconditionError, InvalidArgumentError

DEFAULT_PORT = 8080
MODEL_FOLDER = "/gcs"  #: where buckets are, as for trainers; the version's copy of its files is below
_RESERVED = "AIP_"  #: what the names of the variables begin with that are ours to set

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

#: what a container brings along itself
_ITS_OWN = (*("explanationConfig", "framework", "packageUris", "predictionClass", "pythonVersion", "runtimeVersion"),)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PATH = re.compile(r"/[!-~]{0,2000}")
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingContainer:
    """The container of a version, with nothing left out."""

    image: str  #: as the user named it
    command: tuple[str, ...]  #: empty: the image's own
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]  #: in order: later ones may refer to earlier ones
    port: int  #: 0: the user named none
    predict: str
    health: str


def check_container(kept: Mapping[str, Any]) -> None:
    """`InvalidArgumentError`, naming the field, for a container that can't be served, or its parts without one."""
    if "container" not in kept:
        if "routes" in kept:
            raise InvalidArgumentError(
                "Routes are paths of a custom container, and none is given.", field="version.routes"
            )
        return
    if foreign := next((name for name in _ITS_OWN if name in kept), ""):
        raise InvalidArgumentError(
            "A version with a container is served by that alone, with what is in its image. Leave this field out.",
            field=f"version.{f.snake(foreign)}",
        )
    given = kept["container"]
    if not IMAGE.fullmatch(given.get("image", "")):
        raise InvalidArgumentError(
            f"{given.get('image', '')[:200]!r} does not name an image. Write one such as example/predictor:1.0, or an "
            f"image of this machine.",
            field="version.container.image",
        )
    _check_words(given)
    _check_environment(given.get("env", ()))
    for port in given.get("ports", ()):
        if not 0 < port.get("containerPort", 0) < 65_536:
            raise InvalidArgumentError(
                f"A port is a number from 1 to 65535; {port.get('containerPort', 0)} is not.",
                field="version.container.ports",
            )
    for name, path in kept.get("routes", {}).items():
        if path and not _PATH.fullmatch(path):
            raise InvalidArgumentError(
                f"{path[:200]!r} is not a path: those begin with / and have no spaces.", field=f"version.routes.{name}"
            )


def _check_words(given: Mapping[str, Any]) -> None:
    for name in ("command", "args"):
        if any("\0" in word for word in given.get(name, ())):
            raise InvalidArgumentError("No program can be given a NUL.", field=f"version.container.{name}")
    if given.get("command") and not given["command"][0]:
        raise InvalidArgumentError("The program to run has no name.", field="version.container.command")


def _check_environment(env: Sequence[Mapping[str, str]]) -> None:
    field = "version.container.env"
    names = [each.get("name", "") for each in env]
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise InvalidArgumentError(
                f"{name[:200]!r} can't be the name of a variable: those have letters, digits and _.", field=field
            )
        if name.startswith(_RESERVED):
            raise InvalidArgumentError(
                f"{name[:200]} is set by the server: no name may begin with {_RESERVED}.", field=field
            )
        if names.count(name) > 1:
            raise InvalidArgumentError(f"{name[:200]} is given twice.", field=field)
    if any("\0" in each.get("value", "") for each in env):
        raise InvalidArgumentError("No variable can hold a NUL.", field=field)


def container_of(version: Version) -> ServingContainer | None:
    """The container that serves a version; None if none does."""
    given = version.body.get("container")
    if given is None:
        return None
    routes = version.body.get("routes", {})
    own = f"/v1/models/{version.model}/versions/{version.id}"
    ports = given.get("ports", ())
    return ServingContainer(
        image=given["image"],
        command=tuple(given.get("command", ())),
        args=tuple(given.get("args", ())),
        env=tuple((each["name"], each.get("value", "")) for each in given.get("env", ())),
        port=ports[0]["containerPort"] if ports else 0,
        predict=routes.get("predict") or f"{own}:predict",
        health=routes.get("health") or own,
    )


def model_folder(version: Version) -> str:
    """Where the container finds the version's copy of its files; empty if it has none."""
    uri = str(version.body.get("deploymentUri", ""))
    return f"{MODEL_FOLDER}/{uri.removeprefix('gs://').strip('/')}" if uri else ""


def aip_environment(version: Version, container: ServingContainer, *, number: int) -> dict[str, str]:
    """The variables that AI Platform sets, but for AIP_HTTP_PORT. `number` is the project's."""
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
    container: ServingContainer, known: Mapping[str, str]
) -> tuple[dict[str, str], list[str], list[str]]:
    """The whole environment, the command and the arguments, with `$(NAME)` in them replaced.

    `known` are the variables that the server sets. A name that nobody set stays as it is written, and `$$` is a `$`.
    """
    env = dict(known)
    for name, value in container.env:
        env[name] = expanded(value, env)
    return env, [expanded(word, env) for word in container.command], [expanded(word, env) for word in container.args]


def expanded(text: str, known: Mapping[str, str]) -> str:
    """The text with the values of the variables that it refers to by `$(NAME)`."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return known.get(found[1], found[0])

    return _REFERENCE.sub(value, text)


def batch_prediction_unsupported(model: str, *, field: str = "") -> FailedPreconditionError:
    """For who wants a batch prediction by a container."""
    return FailedPreconditionError(
        f"What would predict the rows is a custom container, and batch predictions load models themselves. Send the "
        f"rows as requests, such as with: trainshed predict --model {model} --json-instances FILE",
        field=field,
    )
