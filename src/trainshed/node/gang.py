"""What the end of one replica means for all of them. Decisions only: nothing here touches a process."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    Replica = dict[str, Any]  # as in spec.json

SUCCEEDED = "SUCCEEDED"
FAILED = "FAILED"
CANCELLED = "CANCELLED"


class Exit:
    """How one process ended: with the status `code`, or killed by `signal`. The other of the two is None."""

    __slots__ = ("code", "signal")

    def __init__(self, code: Optional[int], signal: Optional[int] = None) -> None:
        self.code = code
        self.signal = signal

    @classmethod
    def of(cls, status: int) -> Exit:
        """From a status as `os.waitpid` gives it."""
        if os.WIFSIGNALED(status):
            return cls(None, os.WTERMSIG(status))
        return cls(os.WEXITSTATUS(status))

    @property
    def ok(self) -> bool:
        return self.code == 0


class Ending:
    """Why a job ends. `blame` is the replica at fault, `message` says why where there is none, `grace_s` is how long
    the replicas that still run have between SIGTERM and SIGKILL."""

    __slots__ = ("blame", "grace_s", "message", "outcome")

    def __init__(self, outcome: str, grace_s: float, message: str = "", blame: str = "") -> None:
        self.outcome = outcome
        self.grace_s = grace_s
        self.message = message
        self.blame = blame


def ending(replicas: list[Replica], exits: dict[str, Exit], grace_s: float) -> Optional[Ending]:
    """How the job ends, given who has exited; None while it goes on.

    The primary decides: when it is done the job is, and the others are stopped. Another one may finish before it, but
    not fail.
    """
    for replica in replicas:
        seen = exits.get(replica["name"])
        if replica["primary"] and seen is not None:
            if seen.ok:
                return Ending(SUCCEEDED, grace_s)
            return Ending(FAILED, grace_s, blame=replica["name"])
    for replica in replicas:
        seen = exits.get(replica["name"])
        if seen is not None and not seen.ok:
            return Ending(FAILED, grace_s, blame=replica["name"])
    return None
