"""Shapes of the audit record."""

from typing import Annotated, TypedDict

from trainshed.api.schemas.notes import Example, Time


class AuditEntryBody(TypedDict):
    """A change, or a refused try."""

    id: Annotated[str, Example("1042")]
    time: Time
    project: Annotated[str, "Empty for the server itself.", Example("trainshed")]
    user: Annotated[str, "Empty if it is not known; `job:NAME` is the code of a job.", Example("ada")]
    address: Annotated[str, Example("127.0.0.1")]
    method: Annotated[str, "The name of the method, or its HTTP method and path.", Example("tokens.create")]
    resource: Annotated[str, Example("tokens/bob")]
    outcome: Annotated[str, "`OK`, or the code of an error.", Example("OK")]
    times: Annotated[int, "How often, if refused tries share an entry.", Example(1)]


class AuditPageBody(TypedDict):
    """Entries, the newest first, or with `after` in the order in which they were written."""

    entries: list[AuditEntryBody]
    cursor: Annotated[str, "Behind the last entry that is written, for `after`.", Example("1042")]
    nextPageToken: Annotated[str, "Empty on the last page.", Example("")]
