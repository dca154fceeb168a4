"""Shapes of projects' networks."""

from typing import Annotated, Literal, TypedDict

from trainshed.api.schemas.notes import Example


class NetworkBody(TypedDict):
    """What user code of a project reaches."""

    network: Annotated[
        Literal["none", "google-storage", "all", "machine"],
        "`machine` is the machine's own network, which the server's setting alone gives.",
        Example("all"),
    ]
    default: Annotated[bool, "Whether it is that of the server's setting.", Example(True)]


class NetworkRequestBody(TypedDict):
    """A network to set."""

    network: Annotated[Literal["none", "google-storage", "all"], Example("google-storage")]
