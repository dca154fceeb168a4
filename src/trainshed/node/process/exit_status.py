"""How a process ended, and the two values by which replica proxies and supervisors understand each other."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


NODE_LOST = 64  #: the signal by which a stand-in ends whose replica was lost with the machine that it ran on
STARTED = "started"  #: what a stand-in says to its supervisor when its replica runs
_SIGNALS = 64


class ExitStatus:
    """How one process ended: with the status `code`, or killed by `signal`. The other of the two is None."""

    __slots__ = ("code", "signal")

    def __init__(self, code: Optional[int], signal: Optional[int] = None) -> None:
        self.code = code
        self.signal = signal

    @classmethod
    def of(cls, status: int) -> ExitStatus:
        """From a status as `os.waitpid` gives it."""
        if os.WIFSIGNALED(status):
            return cls(None, os.WTERMSIG(status))
        return cls(os.WEXITSTATUS(status))

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def lost(self) -> bool:
        """Ended from outside: by a signal, or with 128 + n, which is how a shell tells of one."""
        return self.code is None or 128 < self.code <= 128 + _SIGNALS

    @property
    def node_lost(self) -> bool:
        return self.signal == NODE_LOST

    @property
    def how(self) -> str:
        if self.node_lost:
            return "lost with its node"
        if self.code is None:
            return "killed by signal %d" % (self.signal or 0)
        if self.lost:
            return "exited with %d, which stands for signal %d" % (self.code, self.code - 128)
        return "exited with %d" % self.code
