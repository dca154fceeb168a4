"""The limit of open files: the server raises its own, and the processes that it starts get the previous one back.

Programs that use select() fail with descriptors above 1023, so the soft limit of user code stays as it was.
"""

from __future__ import annotations

import os
import resource

_VARIABLE = "TRAINSHED_OPEN_FILES"
_UNLIMITED = 1 << 20

_previous = 0  #: the soft limit before `raise_limit`; 0: it was not called


def raise_limit() -> int:
    """Raise the soft limit of this process to the hard one. Returns it."""
    global _previous
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _previous = _previous or soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _UNLIMITED if hard == resource.RLIM_INFINITY else hard


def variables() -> dict[str, str]:
    """The variables with which `run.py` is started, for `restore_limit`."""
    return {_VARIABLE: str(_previous)} if _previous else {}


def restore_limit() -> None:
    """Set the soft limit to the one before `raise_limit` of the server that started this process."""
    soft = int(os.environ.pop(_VARIABLE, "0"))
    if soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
