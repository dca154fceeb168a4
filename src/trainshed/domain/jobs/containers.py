"""Custom containers of a training job: the image, command and arguments of each role."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainshed.domain import json_fields as f
from trainshed.errors import InvalidArgumentError

#: role -> its field in trainingInput
_CONFIGS = {
    "master": "masterConfig",
    "worker": "workerConfig",
    "ps": "parameterServerConfig",
    "evaluator": "evaluatorConfig",
}
_COMMAND_FIELDS = ("containerCommand", "containerArgs")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}")  # a first check; Podman and Docker check the rest

#: fields for packages, which an image replaces
_PROVIDED_BY_IMAGE = {
    "pythonModule": "the program that runs",
    "packageUris": "its own packages",
    "runtimeVersion": "its own environment",
    "pythonVersion": "its own Python",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingContainer:
    """What the replicas of one role run. Without command and args, the image's defaults apply."""

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


def read_containers(training_input: Mapping[str, Any]) -> Mapping[str, TrainingContainer]:
    """The container of each role. The input has passed `check_containers`. Empty if the master has no image."""
    image = training_input.get("masterConfig", {}).get("imageUri", "")
    if not image:
        return {}
    return {
        role: _container(training_input.get(field, {}), image, training_input.get("args", ()))
        for role, field in _CONFIGS.items()
    }


def _container(config: Mapping[str, Any], image: str, args: Any) -> TrainingContainer:
    command, own_args = config.get("containerCommand", ()), config.get("containerArgs", ())
    return TrainingContainer(
        image=config.get("imageUri") or image,
        command=tuple(command),
        args=tuple(own_args if own_args or command else args),
    )


def image_field(role: str) -> str:
    """The field that names the image of a role, for errors."""
    return f.snake(f"{_CONFIGS[role]}.imageUri")


def check_containers(training_input: Mapping[str, Any]) -> None:
    """Raises `InvalidArgumentError` if images, commands and arguments contradict each other."""
    image = training_input.get("masterConfig", {}).get("imageUri", "")
    for field in _CONFIGS.values():
        _check_config(training_input.get(field, {}), field=field, image=image, args=training_input.get("args"))
    if not image:
        return
    for name, content in _PROVIDED_BY_IMAGE.items():
        if training_input.get(name):
            raise InvalidArgumentError(
                f"The job runs a container image, which brings {content} along. Leave this field out, or the image.",
                field=f.snake(name),
            )


def _check_config(config: Mapping[str, Any], *, field: str, image: str, args: Any) -> None:
    own_image = config.get("imageUri", "")
    path = f.snake(f"{field}.imageUri")
    if own_image and not image:
        raise InvalidArgumentError(
            "Replicas of this kind have an image, but the master has none. Name the master's in "
            "master_config.image_uri; a kind that names none runs the master's.",
            field=path,
        )
    if own_image and not IMAGE.fullmatch(own_image):
        raise InvalidArgumentError(
            f"{own_image!r} is not the name of an image, such as trainer:1 or trainer@sha256:….", field=path
        )
    for name in _COMMAND_FIELDS:
        argv = config.get(name, ())
        path = f.snake(f"{field}.{name}")
        if argv and not image:
            raise InvalidArgumentError(
                "This goes with an image, and the job has none in master_config.image_uri.", field=path
            )
        if argv and args:
            raise InvalidArgumentError(
                "The job has args already, which go to every container. Use one or the other.", field=path
            )
        if any("\0" in word for word in argv):
            raise InvalidArgumentError("A word here holds a NUL character, which no program can be given.", field=path)
