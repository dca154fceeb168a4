"""Why an attempt failed, as facts. The server makes the sentences from them.

A failure is a JSON object: `cause`, and what is known of `replica`, `exit_code`, `signal`, `memory_peak_bytes`,
`message` (of the part that failed, for people), `output` (the last output of user code or of a tool) and `facts`.
"""

from __future__ import annotations

import json
import os

from .files import write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

REPLICA_EXITED = "replica_exited"  #: with another code than 0
REPLICA_KILLED = "replica_killed"  #: by a signal that the supervisor did not send
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
INSTALL_FAILED = "install_failed"  #: of packages
NODE_SETUP_FAILED = "node_setup_failed"  #: message: why a node can't be set up for a replica
CONTAINER_TOOL_MISSING = "container_tool_missing"
IMAGE_MISSING = "image_missing"
IMAGE_ARCHITECTURE = "image_architecture"

CAUSES = (
    *(REPLICA_EXITED, REPLICA_KILLED, REPLICA_HUNG, OUT_OF_MEMORY, NODE_LOST, TIME_LIMIT, CANCELLED),
    *(REAPER_LOST, SUPERVISOR_STOPPED, SUPERVISOR_FAILED, START_FAILED, INSTALL_FAILED, NODE_SETUP_FAILED),
    *(CONTAINER_TOOL_MISSING, IMAGE_MISSING, IMAGE_ARCHITECTURE),
    *(TOO_MANY_PROCESSES, TOO_MANY_OPEN_FILES, FILE_TOO_LARGE, DISK_LIMIT),
)

#: The facts that a cause may have. The other causes have none of their own.
FACTS = {
    OUT_OF_MEMORY: ("used", "limit"),  # in bytes; none if the memory of the machine was used up
    TOO_MANY_PROCESSES: ("used", "limit"),
    TOO_MANY_OPEN_FILES: ("limit",),
    FILE_TOO_LARGE: ("limit",),  # in bytes
    DISK_LIMIT: ("used", "limit"),  # in bytes
    TIME_LIMIT: ("limit_s",),
    CONTAINER_TOOL_MISSING: ("wanted", "broken", "detail"),  # wanted, or the other two
    IMAGE_MISSING: ("image", "tool", "detail"),
    IMAGE_ARCHITECTURE: ("image", "tool", "architecture", "machine"),
}
#: What a replica ran that ended the job: a module, or a container.
RAN_FACTS = ("module", "sibling_module", "image", "command", "memory_limit_bytes")
#: Of restarts, if their limit was reached.
RESTART_FACTS = ("gang_restarts", "replica_restarts", "gang_size")

INSTALLATION = "install"  #: the name of the failure of packages or images
_FILE_MAX_BYTES = 64 * 1024


class NodeFailureError(Exception):
    """An error with the failure that it means for a job. The message is for the user.

    Raises `ValueError` if the cause has not these facts.
    """

    def __init__(self, message: str, cause: str, output: str = "", **facts: Any) -> None:
        super().__init__(message)
        if not set(facts) <= set(FACTS.get(cause, ())):
            raise ValueError("%s has the facts %s" % (cause, ", ".join(FACTS.get(cause, ())) or "of none"))
        self.failure = {"cause": cause, "message": message, "output": output, "facts": facts}


def write_failure(folder: str, name: str, failure: dict[str, Any]) -> None:
    """Write the failure of a replica or of `INSTALLATION` into a folder."""
    write_file(os.path.join(folder, name + ".failure"), json.dumps(failure).encode())


def read_failure(folder: str, name: str) -> Optional[dict[str, Any]]:
    """The failure that was written under this name. Returns None if there is none, or if it is invalid: user code can
    write to the folder too."""
    try:
        with open(os.path.join(folder, name + ".failure"), "rb") as file:
            failure = json.loads(file.read(_FILE_MAX_BYTES).decode())
    except (OSError, ValueError, RecursionError):
        return None
    valid = isinstance(failure, dict) and failure.get("cause", "") in ("", *CAUSES)
    return failure if valid and isinstance(failure.get("facts", {}), dict) else None


def remove_failure(folder: str, name: str) -> None:
    """Remove the failure under this name. Idempotent."""
    try:
        os.unlink(os.path.join(folder, name + ".failure"))
    except FileNotFoundError:
        pass
