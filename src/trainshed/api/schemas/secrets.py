"""Shapes of secrets. None of them has a value but the request to set one."""

from typing import Annotated, TypedDict

from trainshed.api.schemas.notes import Example, Time


class SecretBody(TypedDict):
    """A secret, without its value."""

    name: Annotated[str, Example("wandb-api-key")]
    user: Annotated[str, "Who set it.", Example("ada")]
    updateTime: Time
    readable: Annotated[bool, "False after a restore without its key: set it again.", Example(True)]


class SecretsBody(TypedDict):
    """The secrets of a project."""

    secrets: list[SecretBody]


class SecretRequestBody(TypedDict):
    """The value of a secret. No answer has it."""

    value: Annotated[str, "8 bytes to 64 KB of text.", Example("VALUE")]


class RotationBody(TypedDict):
    """What a rotation of the key has done."""

    secrets: Annotated[int, "How many have the new key.", Example(3)]
    unreadable: Annotated[
        list[str], "Those whose key is not there, which stay as they are.", Example(["projects/p/secrets/s"])
    ]
