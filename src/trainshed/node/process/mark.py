"""The mark of an attempt, by which its processes are found when its supervisor and its reaper were both killed.

Every process below a supervisor inherits it, and needs no rights for it: a resource limit and an environment variable.
A clean environment, closed descriptors, a new session and another folder leave the limit as it is, and without rights
no process can raise it.
"""

from __future__ import annotations

import os

VARIABLE = "TRAINSHED_ATTEMPT"
_RLIMIT_LOCKS = 10  #: inherited, shown in /proc/PID/limits, and without effect since Linux 2.4.25
_HIGH_BIT = 1 << 61  #: far above any limit that people set, and below "unlimited"
_FNV_BASIS, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3  #: of the 64-bit FNV-1a hash


def limit_of(folder: str) -> int:
    """The resource limit that marks processes of the attempt in `folder`. No two attempts have the same."""
    value = _FNV_BASIS  # hashlib would load OpenSSL, which takes 4 ms of every start
    for byte in os.fsencode(os.path.abspath(folder)):
        value = (value ^ byte) * _FNV_PRIME % (1 << 64)
    return _HIGH_BIT | value % _HIGH_BIT


def set_limit(folder: str) -> None:
    """Mark this process and all that it starts. Below a lower limit, the variable is the only mark."""
    import resource  # late: only supervisors need it

    limit = limit_of(folder)
    try:
        resource.setrlimit(_RLIMIT_LOCKS, (limit, limit))
    except ValueError:
        return  # it is above the hard limit, which only root can raise


def has_mark(pid: int, folder: str) -> bool:
    """Whether a process has the mark of the attempt in `folder`. False for a process that is gone."""
    return _limit(pid) == b"%d" % limit_of(folder) or _variable(folder) in _read(pid, "environ").split(b"\0")


def _variable(folder: str) -> bytes:
    return os.fsencode("%s=%s" % (VARIABLE, os.path.abspath(folder)))


def _limit(pid: int) -> bytes:
    for line in _read(pid, "limits").split(b"\n"):
        if line.startswith(b"Max file locks"):
            return line.split()[4]  # the hard limit
    return b""


def _read(pid: int, name: str) -> bytes:
    """Empty for a process that is gone, and for what another user's process does not show."""
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as file:
            return file.read()
    except OSError:
        return b""
