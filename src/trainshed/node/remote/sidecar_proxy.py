"""The sidecar proxy: a CONNECT proxy on the loopback address of a remote node.

Connections to Google's hosts go to the server's TLS port, byte for byte. TLS is between trainer and server, which has a
certificate for these names and requires a token as usual. All other hosts are reached from this machine, through its
own `https_proxy` if it has one. The proxy holds no token and decrypts nothing.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import traceback

from ..process.tree import set_parent_death_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_RESET_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class SidecarProxy:
    """Listens once constructed. `start` forks the process that serves, and may be called
    again after that process exits."""

    def __init__(self, route: dict[str, Any]) -> None:
        self._route = route
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(128)
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]

    def start(self) -> int:
        """Fork the serving process and return its pid. It dies with this process."""
        parent = os.getpid()
        pid = os.fork()
        if pid != 0:
            return pid
        try:
            os.setpgid(0, 0)
            set_parent_death_signal(parent, signal.SIGKILL)
            for number in _RESET_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            _close_others(self._listener.fileno())
            select.select([self._listener], [], [])
            from .tunnels import serve  # late: most replicas never connect to anything, and the import is slow

            serve(self._listener, self._route)
        except BaseException:  # noqa: BLE001 - the error is printed; the parent restarts it
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)

    def close(self) -> None:
        """Stop listening. A serving process continues until it exits."""
        self._listener.close()


def _close_others(listener: int) -> None:
    """Close all descriptors of the parent except stderr and the listener."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    os.closerange(3, listener)
    os.closerange(listener + 1, highest + 1)
