"""Finds the strongest level of the sandbox that this machine allows, by trying it."""

from __future__ import annotations

import os
import shutil
import socket

from ..process.environment import user_environment
from ..process.spawn import spawn
from . import landlock, syscalls, view
from .cell import FULL, LANDLOCK, NONE, Cell, read_status
from .network.namespace import ALL, SandboxNetwork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

_ELSEWHERE = ("192.0.2.1", 9)  #: an address that no machine has


def find_level(folder: str, uid: int) -> dict[str, Any]:
    """Try the levels in the empty folder `folder`, which is removed. As root, `uid` is a user for the processes in it.

    Returns the `level`, the `reason` why it is not a higher one, and the `uid` if processes can have it. With
    `network`, they can have a network of their own, else `network_reason` says why not; with `redirects`, the kernel
    leads their connections to other addresses to a forwarder, else `redirects_reason` says why not.
    """
    if not syscalls.is_supported():
        return _found(NONE, "processors of the kind %s are not supported" % syscalls.MACHINE)
    try:
        reason = _try(FULL, folder, uid)
        if not reason:
            return {**_found(FULL, uid=uid), **_find_network(folder, uid)}
        mapped = "files can't be mapped to another user (%s)" % reason
        if uid and not _try(FULL, folder, 0):
            return {**_found(FULL, mapped), **_find_network(folder, 0)}
        if not landlock.version():
            return _found(NONE, "%s; the kernel has no Landlock" % reason)
        second = _try(LANDLOCK, folder, 0)
        return _found(NONE, "%s; %s" % (reason, second)) if second else _found(LANDLOCK, reason)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _found(level: str, reason: str = "", uid: int = 0) -> dict[str, Any]:
    own = "its level is %s" % level
    return {
        "level": level,
        "reason": reason,
        "uid": uid,
        "network": False,
        "network_reason": own,
        "redirects": False,
        "redirects_reason": own,
    }


def _find_network(folder: str, uid: int) -> dict[str, Any]:
    reason = _try_network(folder, uid, redirects=True)
    if not reason:
        return {"network": True, "network_reason": "", "redirects": True, "redirects_reason": ""}
    second = _try_network(folder, uid, redirects=False)
    return {"network": not second, "network_reason": second, "redirects": False, "redirects_reason": reason}


def _try_network(folder: str, uid: int, redirects: bool) -> str:
    """Run a process in a network that its parent has made, as a supervisor does. Returns the reason if it fails."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        reason = "an unknown reason"
        try:
            os.close(reading)
            network = SandboxNetwork({"access": ALL, "ports": [], "redirects": redirects})
            network.begin()
            network.enter()
            reason = _try(FULL, folder, uid, network, redirects)
        except OSError as exc:
            reason = exc.strerror or reason
        finally:
            os.write(writing, reason.encode("utf-8", "replace"))
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        reason = file.read().decode("utf-8", "replace")
    os.waitpid(pid, 0)
    return reason


def _try(level: str, folder: str, uid: int, network: Optional[SandboxNetwork] = None, redirects: bool = False) -> str:
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
        if redirects:
            socket.create_connection(_ELSEWHERE, 5.0).close()
        try:
            with open(secret):
                return 2
        except OSError:
            return 0

    try:
        cell = Cell(level, seen, os.path.join(folder, "private"), env.get("HOME", ""), uid)
        if network is not None:
            cell.join_network(network)
        process = spawn(["check"], env, work, look, cell)
    except OSError as exc:
        return exc.strerror or "an unknown reason"
    _, status = os.waitpid(process.pid, 0)
    inner = status if process.status < 0 else read_status(process.status)
    output = os.read(process.stderr, 4096).decode("utf-8", "replace").strip().splitlines()
    if inner == 0:
        return ""
    return output[-1] if output else "a process in it sees what it should not, or ends with the status %s" % inner
