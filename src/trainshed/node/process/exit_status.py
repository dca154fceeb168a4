"""Exit status of a process, and the two values that replica proxies and supervisors exchange."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


NODE_LOST = 64  #: a replica proxy exits by this signal if its replica was lost with its node
STARTED = "started"  #: a replica proxy sends this to its supervisor when its replica runs
_SIGNAL_MAX = 64


class ExitStatus:
    """Exit status of one process: exited with `code`, or killed by `signal`. The other one is None. `limited`: it
    reached a limit of its own, which says nothing of the machine."""

    __slots__ = ("code", "limited", "signal")

    def __init__(self, code: Optional[int], signal: Optional[int] = None) -> None:
        self.code = code
        self.signal = signal
        self.limited = False

    @classmethod
    def of(cls, status: int) -> ExitStatus:
        """From a wait status of `os.waitpid`."""
        if os.WIFSIGNALED(status):
            return cls(None, os.WTERMSIG(status))
        return cls(os.WEXITSTATUS(status))

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def lost(self) -> bool:
        """Ended from outside: by a signal, or with 128 + n, as a shell reports one."""
        return not self.limited and (self.code is None or 128 < self.code <= 128 + _SIGNAL_MAX)

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
