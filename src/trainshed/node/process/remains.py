"""What is left of one replica after its first process ended: children, orphans, those in sessions of their own.

The supervisor is a subreaper, so all that lost its parent is a child of the supervisor. Which replica such an orphan
comes from is told by its process group, which each replica has for itself, else by the name in its environment. One
that gave up both can't be told from the remains of the replica that is to start again, and counts as that.
"""

from __future__ import annotations

import os
import signal

from . import tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

MARK = "TRAINSHED_REPLICA"


def kill_orphans(name: str, living: dict[int, str]) -> bool:
    """Kill what is left of the replica `name`. `living` are the first processes of all replicas that run, by pid.

    True: there is nothing. Otherwise it is killed, but not gone yet: collect what ended and ask again.
    """
    left = False
    for root in tree.children(os.getpid()):
        if root not in living and owner(root, living) in (name, None):
            left = True
            tree.send_signal(root, signal.SIGSTOP)
            for pid in (root, *tree.stop_descendants(root)):
                tree.send_signal(pid, signal.SIGKILL)
    return not left


def owner(pid: int, living: dict[int, str]) -> Optional[str]:
    """The replica that an orphan comes from, or None if it does not say."""
    fields = tree.stat_fields(pid)
    group = int(fields[2]) if len(fields) > 2 else 0
    if group in living:
        return living[group]
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return None
    head = MARK.encode() + b"="
    return next((each[len(head) :].decode("utf-8", "replace") for each in variables if each.startswith(head)), None)
