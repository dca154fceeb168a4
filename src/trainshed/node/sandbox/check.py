"""Finds the strongest level of the sandbox that this machine allows, by trying it."""

from __future__ import annotations

import os
import shutil

from ..process.environment import user_environment
from ..process.spawn import spawn
from . import landlock, syscalls, view
from .cell import FULL, LANDLOCK, NONE, Cell, read_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def find_level(folder: str, uid: int) -> dict[str, Any]:
    """Try the levels in the empty folder `folder`, which is removed. As root, `uid` is a user for the processes in it.

    Returns the `level`, the `reason` why it is not a higher one, and the `uid` if processes can have it.
    """
    if not syscalls.is_supported():
        return _found(NONE, "processors of the kind %s are not supported" % syscalls.MACHINE)
    try:
        reason = _try(FULL, folder, uid)
        if not reason:
            return _found(FULL, uid=uid)
        mapped = "files can't be mapped to another user (%s)" % reason
        if uid and not _try(FULL, folder, 0):
            return _found(FULL, mapped)
        if not landlock.version():
            return _found(NONE, "%s; the kernel has no Landlock" % reason)
        second = _try(LANDLOCK, folder, 0)
        return _found(NONE, "%s; %s" % (reason, second)) if second else _found(LANDLOCK, reason)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _found(level: str, reason: str = "", uid: int = 0) -> dict[str, Any]:
    return {"level": level, "reason": reason, "uid": uid}


def _try(level: str, folder: str, uid: int) -> str:
    """Run a process at this level. Returns the reason if it fails."""
    work, secret = os.path.join(folder, "work"), os.path.join(folder, "secret")
    os.makedirs(work, mode=0o700, exist_ok=True)
    with open(secret, "w") as file:
        file.write("secret")
    seen = view.View([*view.interpreter_paths(view.own_interpreter()), view.node_folder()], [work])
    env = user_environment()

    def look() -> int:
        with open(os.path.join(work, "written"), "w") as file:
            file.write("x")
        try:
            with open(secret):
                return 2
        except OSError:
            return 0

    try:
        cell = Cell(level, seen, os.path.join(folder, "private"), env.get("HOME", ""), uid)
        process = spawn(["check"], env, work, look, cell)
    except OSError as exc:
        return exc.strerror or "an unknown reason"
    _, status = os.waitpid(process.pid, 0)
    inner = status if process.status < 0 else read_status(process.status)
    output = os.read(process.stderr, 4096).decode("utf-8", "replace").strip().splitlines()
    if inner == 0:
        return ""
    return output[-1] if output else "a process in it sees what it should not, or ends with the status %s" % inner
