"""Crash points: named steps at which a test makes this process die, wait or fail.

    crashpoint("job.create.after_commit")

does nothing unless the environment of the process says so when it starts: `TRAINSHED_CRASH_AT=NAME:ACTION:N` acts when
the process passes the point for the Nth time. Tests list all names from the source, so a name is a plain string.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

VARIABLE = "TRAINSHED_CRASH_AT"
HITS_VARIABLE = "TRAINSHED_CRASH_HITS"  #: a file that gets a line with the name when the point acts
DELAY_S = 1.0

KILL = "kill"  #: SIGKILL to this process
DELAY = "delay"
ENOSPC = "enospc"  #: as if the disk were full
EIO = "eio"  #: as if the disk were broken
FAIL = "fail"  #: an error that no code expects; behind a step, the step was executed and its result is lost
ACTIONS = (KILL, DELAY, ENOSPC, EIO, FAIL)


class CrashpointError(RuntimeError):
    """The error of the action `fail`."""


class _ArmedPoint:
    def __init__(self, name: str, action: str, at: int, hits: str) -> None:
        if action not in ACTIONS:
            raise ValueError("%s has no action %r, only %s" % (VARIABLE, action, ", ".join(ACTIONS)))
        self.name = name
        self._action = action
        self._at = at
        self._hits = hits
        self._passes = itertools.count(1)

    def act(self) -> None:
        if next(self._passes) != self._at:
            return
        if self._hits:
            fd = os.open(self._hits, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.write(fd, self.name.encode() + b"\n")
            os.close(fd)
        if self._action == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._action == DELAY:
            time.sleep(DELAY_S)
        elif self._action == FAIL:
            raise CrashpointError("The crash point %s failed, as was asked for." % self.name)
        else:
            number = errno.ENOSPC if self._action == ENOSPC else errno.EIO
            raise OSError(number, os.strerror(number), self.name)


_armed: Optional[_ArmedPoint] = None


def crashpoint(name: str) -> None:
    """Act if this point is armed. Costs nothing otherwise."""
    if _armed is not None and _armed.name == name:
        _armed.act()


def arm() -> None:
    """Arm the point that the environment names, and no other."""
    global _armed
    name, _, rest = os.environ.get(VARIABLE, "").partition(":")
    action, _, at = rest.partition(":")
    _armed = _ArmedPoint(name, action or KILL, int(at or 1), os.environ.get(HITS_VARIABLE, "")) if name else None


def variables() -> dict[str, str]:
    """The variables for a process that this one starts. Empty if no point is armed."""
    return {name: os.environ[name] for name in (VARIABLE, HITS_VARIABLE) if _armed is not None and name in os.environ}


arm()
