"""The journal of an attempt: an append-only file with one JSON event a line. It is all that
others know of the attempt."""

from __future__ import annotations

import errno
import json
import os
import time

from .crashpoints import crashpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

SUPERVISOR_STARTED = "supervisor_started"
PREPARING = "preparing"  #: the supervisor installs packages or pulls images
RUNNING = "running"  #: all replicas were started
REPLICA_STARTED = "replica_started"
REPLICA_EXITED = "replica_exited"
REPLICA_RESTARTED = "replica_restarted"  #: one replica, because of its own exit
GANG_RESTARTED = "gang_restarted"  #: all replicas, because of the exit of one
RESUMED = "resumed"  #: the first step after a restart
REPLICA_HUNG = "replica_hung"  #: no step, no output and no CPU time, or stopped by a signal
HANG_ENDED = "hang_ended"  #: the replica is active again; its exit ends a hang too
SIGNALLED = "signalled"  #: a signal was sent to a replica, for fault injection
STOPPING = "stopping"  #: the end was decided, and replicas are being ended
CONTAINERS_LEFT = "containers_left"  #: containers that can't be removed
ENDED = "ended"  #: the last event of a supervisor
LOST = "lost"  #: the supervisor was killed; written by its reaper

_RESTART = ("name", "code", "signal", "hung", "after_loss_of", "step_before")

#: The facts of each event, besides `event`, its name, and `t`, its time in microseconds.
EVENTS = {
    SUPERVISOR_STARTED: ("pid", "started", "boot_id", "reaper", "start"),  # the first three identify the process
    PREPARING: (),
    RUNNING: (),
    REPLICA_STARTED: ("name", "pid"),
    REPLICA_EXITED: ("name", "code", "signal"),  # one of code and signal is null
    REPLICA_RESTARTED: _RESTART,
    GANG_RESTARTED: _RESTART,
    RESUMED: ("name", "step"),
    REPLICA_HUNG: (  # `HangReport` tells what they mean
        *("name", "kind", "seconds", "pid", "state", "step", "working", "suspect", "evidence", "restart"),
        *("stack", "threads", "stack_error"),
    ),
    HANG_ENDED: ("name", "seconds"),
    SIGNALLED: ("name", "signal"),
    STOPPING: ("outcome",),
    CONTAINERS_LEFT: ("reason",),
    ENDED: ("outcome", "failure"),  # the failure as in `failure.py`; null if the job succeeded
    LOST: (),
}

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class Journal:
    """Appends events. A full disk delays events; it never loses or tears one."""

    def __init__(self, path: str) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
        self._pending = b""

    def started(self) -> bool:
        """Whether the journal has any event. An attempt starts only once."""
        return os.fstat(self._fd).st_size > 0

    def append(self, event: str, **facts: Any) -> None:
        """Append an event of `EVENTS` now or, if the disk is full, with a later one."""
        if set(facts) != set(EVENTS[event]):
            raise ValueError("%s has the facts %s" % (event, ", ".join(EVENTS[event]) or "of none"))
        line = json.dumps(dict(facts, t=now_us(), event=event), sort_keys=True)
        crashpoint("journal.append.before")
        self._pending += line.encode() + b"\n"
        self.flush()
        crashpoint("journal.append.after")

    def flush(self) -> bool:
        """Write pending events. Returns False if the disk is still full."""
        try:
            while self._pending:
                self._pending = self._pending[os.write(self._fd, self._pending) :]
        except OSError as exc:
            if exc.errno not in DISK_FULL:
                raise
        return not self._pending

    def sync(self) -> None:
        """Blocks until all events are on disk, and waits for space if the disk is full."""
        while not self.flush():
            time.sleep(0.2)
        os.fsync(self._fd)

    def ended(self) -> bool:
        """Whether the journal has the end of the job. Also terminates a line that a killed writer left unfinished."""
        os.lseek(self._fd, 0, os.SEEK_SET)
        content = b""
        while True:
            chunk = os.read(self._fd, 1 << 20)
            if not chunk:
                break
            content += chunk
        if content and not content.endswith(b"\n"):
            self._pending = b"\n" + self._pending
        events = map(parse_event, content.split(b"\n")[:-1])
        return any(event is not None and event["event"] == ENDED for event in events)


def parse_event(line: bytes) -> Optional[dict[str, Any]]:
    """The event of a line, with all facts of `EVENTS`. Returns None for any other line: its writer was killed
    before it finished the line, or was no supervisor."""
    try:
        event = json.loads(line.decode())
        facts = EVENTS[event["event"]]
        return event if isinstance(event["t"], int) and all(name in event for name in facts) else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def now_us() -> int:
    """Wall clock time in microseconds."""
    return int(time.time() * 1000000)
