"""Shapes of mirrors of public objects."""

from typing import Annotated, TypedDict

from trainshed.api.schemas.notes import Example, Time

PublicUri = Annotated[
    str, "Or its URL at storage.googleapis.com.", Example("gs://tensorflow/tf-keras-datasets/imdb.npz")
]


class MirrorBody(TypedDict):
    """A mirror of a public object."""

    uri: PublicUri
    size: Annotated[int | None, "In bytes; none for the built-in one before its first use.", Example(17464789)]
    builtIn: Annotated[bool, "Whether the server made it of its own samples.", Example(False)]
    updateTime: Time | None


class MirrorsBody(TypedDict):
    """All mirrors."""

    mirrors: list[MirrorBody]


class MirrorNameBody(TypedDict):
    """The public object that a mirror is of."""

    uri: PublicUri


class MirrorRequestBody(MirrorNameBody):
    """A mirror to add."""

    source: Annotated[str, "An object of a bucket here.", Example("gs://my-bucket/imdb.npz")]
