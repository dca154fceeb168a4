"""The body of an error."""

from typing import Annotated, Any, NotRequired, TypedDict

from trainshed.api.schemas.notes import Example


class ErrorReasonBody(TypedDict):
    """A reason, in the form that clients of Cloud Storage read."""

    domain: Annotated[str, Example("global")]
    reason: Annotated[str, Example("invalid")]
    message: Annotated[str, Example("There is no job mnist_1 in project trainshed.")]


class ErrorStatusBody(TypedDict):
    """What went wrong. `message` is a sentence for people, `status` a word for programs."""

    code: Annotated[int, "The HTTP status.", Example(404)]
    message: Annotated[str, Example("There is no job mnist_1 in project trainshed.")]
    status: Annotated[str, "The name of a google.rpc.Code.", Example("NOT_FOUND")]
    errors: list[ErrorReasonBody]
    details: NotRequired[Annotated[list[dict[str, Any]], "`BadRequest` with the field, if one is wrong."]]


class ErrorBody(TypedDict):
    """An error, in Google's form."""

    error: ErrorStatusBody


class TokenErrorBody(TypedDict):
    """An error of the token endpoint, in the form of RFC 6749."""

    error: Annotated[str, Example("invalid_grant")]
    error_description: NotRequired[str]


class EmptyBody(TypedDict):
    """An empty object."""
