"""Shapes of log lines and log pages."""

from typing import Annotated, Literal, NotRequired, TypedDict

from trainshed.api.schemas.notes import Example, Named, Time

Severity = Annotated[
    Literal["DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY"],
    Named("Severity"),
    Example("INFO"),
]


class LogEntryBody(TypedDict):
    """One line of a job's log."""

    insertId: Annotated[str, "Unique within the job, and in the order of the log.", Example("0001-000000000120")]
    time: Time
    replica: Annotated[str, "The replica that wrote it, or `service`.", Example("master-replica-0")]
    trial: Annotated[str, "The number of its trial; empty for a job that tunes nothing.", Example("")]
    severity: Severity
    message: Annotated[str, Example("step 400: loss 0.25")]


class LogPageBody(TypedDict):
    """Lines in order, between two cursors. A page may be short, or empty, and still not be the last."""

    entries: list[LogEntryBody]
    cursor: Annotated[str, "Behind the last line.", Example("7.120")]
    before: Annotated[str, "The cursor before the first line; empty if nothing is before it.", Example("")]
    end: NotRequired[Annotated[str, "The end of the log at this request, if that had no cursor.", Example("7.120")]]
    more: Annotated[bool, "Whether later lines are there already."]
    ended: Annotated[bool, "Whether the job has ended and no line comes after these.", Example(True)]
    replicas: Annotated[list[str], "The names that lines may have.", Example(["master-replica-0", "service"])]
    since: NotRequired[Annotated[Time, "The time that `since` meant, by the server's clock."]]
