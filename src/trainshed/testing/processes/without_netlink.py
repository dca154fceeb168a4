"""Runs a program that can't watch the machine's network: `without_netlink.py PROGRAM [ARGUMENT...]`.

Chromium fails requests in flight with ERR_NETWORK_CHANGED when an interface comes or goes, and tests of clusters create
interfaces while tests of the console run.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

_SOCKET_CALLS = {"x86_64": 41, "aarch64": 198}  #: number of socket(2)
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_CALL_NUMBER, _FIRST_ARGUMENT = 0, 16  #: offsets in struct seccomp_data
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refuse_netlink() -> None:
    """Let socket(AF_NETLINK, …) fail in this process and its children. On other processors, does nothing."""
    number = _SOCKET_CALLS.get(platform.machine())
    if number is None:
        return
    steps = (
        (_LOAD, 0, 0, _CALL_NUMBER),
        (_JUMP_IF_EQUAL, 0, 3, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_IF_EQUAL, 0, 1, socket.AF_NETLINK),
        (_RETURN, 0, 0, _ERRNO | errno.EACCES),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(steps), code)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "The system refuses a filter of system calls.")


if __name__ == "__main__":
    refuse_netlink()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell is involved
