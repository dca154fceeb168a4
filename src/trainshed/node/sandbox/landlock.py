"""Landlock: the folders that a process and all that it starts may use. It needs no rights, and can't be taken back."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from . import syscalls

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_VERSION = 1
_PATH_BENEATH = 1
_READ = 1 | 4 | 8  #: execute, read a file, list a folder
_FILE_RIGHTS = 1 | 2 | 4 | 1 << 14 | 1 << 15  #: of a path that is not a folder
#: The rights that each version of the interface added to the first ones.
_RIGHTS_BY_VERSION = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_SCOPES_VERSION = 6
_SCOPES = 1 | 2  #: abstract unix sockets and signals


def version() -> int:
    """The version of the kernel's interface. 0 if there is none."""
    try:
        return syscalls.syscall(_CREATE_RULESET, None, 0, _CREATE_VERSION)
    except OSError as exc:
        if exc.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return 0
        raise


def restrict(read_only: list[str], writable: list[str]) -> None:
    """Restrict this process to what is below these paths. Paths that do not exist are skipped."""
    current = version()
    rights = 0
    for since, added in _RIGHTS_BY_VERSION.items():
        rights |= added if current >= since else 0
    scopes = _SCOPES if current >= _SCOPES_VERSION else 0
    attributes = struct.pack("QQQ", rights, 0, scopes)
    size = 24 if current >= _SCOPES_VERSION else 16 if current >= 4 else 8
    ruleset = syscalls.syscall(_CREATE_RULESET, attributes[:size], size, 0)
    try:
        for path in read_only:
            _allow(ruleset, path, _READ & rights)
        for path in writable:
            _allow(ruleset, path, rights)
        syscalls.forbid_privileges()
        syscalls.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def restrict_scopes() -> None:
    """Keep this process's signals and abstract sockets to itself and what it starts, if the kernel can."""
    if version() < _SCOPES_VERSION:
        return
    ruleset = syscalls.syscall(_CREATE_RULESET, struct.pack("QQQ", 0, 0, _SCOPES), 24, 0)
    try:
        syscalls.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = rights if os.path.isdir(path) else rights & _FILE_RIGHTS
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, fd))
        syscalls.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)
