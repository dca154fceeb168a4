"""Why a job failed or was cancelled, as facts. `failure_text` makes the sentences from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

_TEXT_MAX_CHARACTERS = 8192
_MAX_FACTS = 20


class FailureCause(StrEnum):
    """What ended a job. All but the last five are recorded by the supervisor of its attempt."""

    REPLICA_EXITED = "replica_exited"  #: with another code than 0
    REPLICA_KILLED = "replica_killed"  #: by a signal that Trainshed did not send
    REPLICA_HUNG = "replica_hung"  #: and the supervisor killed it, but its restarts are used up
    OUT_OF_MEMORY = "out_of_memory"  #: a replica
    TOO_MANY_PROCESSES = "too_many_processes"  #: of a replica, with its threads
    TOO_MANY_OPEN_FILES = "too_many_open_files"  #: of a process of a replica
    FILE_TOO_LARGE = "file_too_large"  #: that a replica wrote
    DISK_LIMIT = "disk_limit"  #: a replica wrote too much in files of its own
    NODE_LOST = "node_lost"  #: the machine of a replica
    TIME_LIMIT = "time_limit"
    CANCELLED = "cancelled"
    REAPER_LOST = "reaper_lost"
    SUPERVISOR_STOPPED = "supervisor_stopped"  #: by SIGTERM
    SUPERVISOR_FAILED = "supervisor_failed"  #: message: its exception
    START_FAILED = "start_failed"  #: message: why a process can't be started
    INSTALL_FAILED = "install_failed"  #: of packages; output: the installer's
    NODE_SETUP_FAILED = "node_setup_failed"  #: message: why a node can't be set up for a replica
    CONTAINER_TOOL_MISSING = "container_tool_missing"
    IMAGE_MISSING = "image_missing"
    IMAGE_ARCHITECTURE = "image_architecture"
    SUPERVISOR_LOST = "supervisor_lost"  #: killed
    LAUNCH_FAILED = "launch_failed"  #: message: why the server can't launch the attempt
    BUCKET_LIMIT = "bucket_limit"  #: the buckets of its project have too much; message: how much, and who can help
    METRIC_MISSING = "metric_missing"  #: of a tuning job's first trial; message: which tags it reported
    TRIALS_FAILED = "trials_failed"  #: too many of a tuning job; message: the commonest cause


#: The facts that a cause may have. The other causes have none of their own. A test compares them with `node.failure`.
FACTS: Mapping[FailureCause, tuple[str, ...]] = {
    FailureCause.OUT_OF_MEMORY: ("used", "limit"),  # in bytes; none if the memory of the machine was used up
    FailureCause.TOO_MANY_PROCESSES: ("used", "limit"),
    FailureCause.TOO_MANY_OPEN_FILES: ("limit",),
    FailureCause.FILE_TOO_LARGE: ("limit",),  # in bytes
    FailureCause.DISK_LIMIT: ("used", "limit"),  # in bytes
    FailureCause.TIME_LIMIT: ("limit_s",),
    FailureCause.CANCELLED: ("by", "disabled_user"),  # who cancelled it; its user, if it ended because of that
    FailureCause.BUCKET_LIMIT: ("used", "limit"),  # in bytes
    FailureCause.CONTAINER_TOOL_MISSING: ("wanted", "broken", "detail"),  # wanted, or the other two
    FailureCause.IMAGE_MISSING: ("image", "tool", "detail"),
    FailureCause.IMAGE_ARCHITECTURE: ("image", "tool", "architecture", "machine"),
    FailureCause.SUPERVISOR_LOST: ("ended", "ended_pids", "left", "left_pids"),  # all four if the engine searched
}
#: What a replica ran that ended the job: a module, or a container.
RAN_FACTS = ("module", "sibling_module", "image", "command", "memory_limit_bytes")
#: Of restarts, if their limit was reached.
RESTART_FACTS = ("gang_restarts", "replica_restarts", "gang_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a job failed or was cancelled. A replica that ended the job has `RAN_FACTS` and `RESTART_FACTS`."""

    cause: FailureCause
    replica: str = ""  #: the replica that ended the job, such as master-replica-0; empty if none did
    exit_code: int | None = None
    signal: int | None = None
    memory_peak_bytes: int | None = None  #: the largest sample of the replica
    message: str = ""  #: of the part that failed, for people; nothing searches it
    output: str = ""  #: the last output of user code or of a tool
    facts: Mapping[str, str | int | float] = field(default_factory=dict)  #: more facts of the cause: `FACTS`

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        """Parse what a supervisor recorded. User code can write there, so all values are checked and bounded.

        Raises `ValueError`, `TypeError` or `LookupError` if it is invalid.
        """
        facts = {_text(name): _fact(fact) for name, fact in dict(value.get("facts") or {}).items()}
        if len(facts) > _MAX_FACTS:
            raise ValueError(len(facts))
        return cls(
            cause=FailureCause(value["cause"]),
            replica=_text(value.get("replica", "")),
            exit_code=_number(value.get("exit_code")),
            signal=_number(value.get("signal")),
            memory_peak_bytes=_number(value.get("memory_peak_bytes")),
            message=_text(value.get("message", "")),
            output=_text(value.get("output", "")),
            facts=facts,
        )

    def body(self) -> dict[str, Any]:
        """All facts as JSON, which `parse` reads."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {"cause": self.cause.value, "facts": dict(self.facts)}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return (
        value[:_TEXT_MAX_CHARACTERS]
        .replace("\0", "\N{REPLACEMENT CHARACTER}")
        .encode(errors="backslashreplace")
        .decode()
    )


def _number(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or not 0 <= value < 2**63):
        raise TypeError(value)
    return value


def _fact(value: object) -> str | int | float:
    if not isinstance(value, int | float):
        return _text(value)
    if not -(2**63) <= value < 2**63:  # NaN is not either
        raise ValueError(value)
    return value
