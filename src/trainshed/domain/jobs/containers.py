"""Custom containers of a training job: which image each role runs, and with which command and arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainshed.domain import json_fields as f
from trainshed.errors import InvalidArgumentError

#: role -> the field of trainingInput that says what it runs
_CONFIGS = {
    "master": "masterConfig",
    "worker": "workerConfig",
    "ps": "parameterServerConfig",
    "evaluator": "evaluatorConfig",
}
_OWN = ("containerCommand", "containerArgs")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}")  # Podman and Docker know the rest of the rules

#: what a package needs and an image brings along
_BROUGHT_ALONG = {
    "pythonModule": "the program that runs",
    "packageUris": "its own packages",
    "runtimeVersion": "its own environment",
    "pythonVersion": "its own Python",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingContainer:
    """What the replicas of one role run. With neither command nor args it is what the image says."""

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


def read_containers(given: Mapping[str, Any]) -> Mapping[str, TrainingContainer]:
    """By role, from a trainingInput that `check_containers` let through. None at all if the master has no image."""
    image = given.get("masterConfig", {}).get("imageUri", "")
    if not image:
        return {}
    return {role: _spec(given.get(field, {}), image, given.get("args", ())) for role, field in _CONFIGS.items()}


def _spec(config: Mapping[str, Any], image: str, args: Any) -> TrainingContainer:
    command, own = config.get("containerCommand", ()), config.get("containerArgs", ())
    return TrainingContainer(
        image=config.get("imageUri") or image, command=tuple(command), args=tuple(own if own or command else args)
    )


def check_containers(given: Mapping[str, Any]) -> None:
    """`InvalidArgumentError` for images, commands and arguments that don't go together."""
    image = given.get("masterConfig", {}).get("imageUri", "")
    for field in _CONFIGS.values():
        _check_config(given.get(field, {}), field=field, image=image, args=given.get("args"))
    if not image:
        return
    for name, what in _BROUGHT_ALONG.items():
        if given.get(name):
            raise InvalidArgumentError(
                f"The job runs a container image, which brings {what} along. Leave this field out, or the image.",
                field=f.snake(name),
            )


def _check_config(config: Mapping[str, Any], *, field: str, image: str, args: Any) -> None:
    own = config.get("imageUri", "")
    where = f.snake(f"{field}.imageUri")
    if own and not image:
        raise InvalidArgumentError(
            "Replicas of this kind have an image, but the master has none. Name the master's in "
            "master_config.image_uri; a kind that names none runs the master's.",
            field=where,
        )
    if own and not IMAGE.fullmatch(own):
        raise InvalidArgumentError(
            f"{own!r} is not the name of an image, such as trainer:1 or trainer@sha256:….", field=where
        )
    for name in _OWN:
        words = config.get(name, ())
        where = f.snake(f"{field}.{name}")
        if words and not image:
            raise InvalidArgumentError(
                "This goes with an image, and the job has none in master_config.image_uri.", field=where
            )
        if words and args:
            raise InvalidArgumentError(
                "The job has args already, which go to every container. Use one or the other.", field=where
            )
        if any("\0" in word for word in words):
            raise InvalidArgumentError("A word here holds a NUL character, which no program can be given.", field=where)
