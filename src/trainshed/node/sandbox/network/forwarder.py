"""The forwarder of a sandbox's network: a process outside of it that holds every connection out.

It is forked before the namespace is made, and gets sockets that listen in it. So a process in the sandbox has no socket
of another network, from which it could connect elsewhere. It loads what it needs when the first connection comes.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket

from ...process.tree import set_parent_death_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_RESET_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_MESSAGE_BYTES = 4096
_MAX_SOCKETS = 16


def start_forwarder(spec: dict[str, Any]) -> tuple[int, socket.socket]:
    """Fork the forwarder. Returns its pid, and the channel on which it waits for its sockets. It dies with this
    process, and ends if the channel is closed before it has any."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    pid = os.fork()
    if pid != 0:
        theirs.close()
        return pid, ours
    status = 1
    try:
        os.setpgid(0, 0)
        set_parent_death_signal(parent, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number in _RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        _keep_only(theirs.fileno())
        sockets = _receive(theirs)
        theirs.close()
        if sockets:
            select.select(list(sockets.values()), [], [])
            from .serving import serve  # late: most sandboxes never connect to anything, and the import is slow

            serve(sockets, spec)
        status = 0
    finally:
        os._exit(status)


def _keep_only(kept: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    os.closerange(3, kept)
    os.closerange(kept + 1, highest + 1)


def send_sockets(channel: socket.socket, sockets: Mapping[str, socket.socket]) -> None:
    """Give the forwarder its sockets, by what they are for. Closes them and the channel here."""
    numbers = array.array("i", [each.fileno() for each in sockets.values()])
    channel.sendmsg([json.dumps(list(sockets)).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
    for each in sockets.values():
        each.close()
    channel.close()


def _receive(channel: socket.socket) -> dict[str, socket.socket]:
    numbers = array.array("i")
    data, messages, _, _ = channel.recvmsg(_MESSAGE_BYTES, socket.CMSG_SPACE(_MAX_SOCKETS * numbers.itemsize))
    for level, kind, content in messages:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
    names = json.loads(data.decode()) if data else []
    return {name: socket.socket(fileno=numbers[index]) for index, name in enumerate(names)}
