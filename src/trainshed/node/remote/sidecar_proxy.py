"""An HTTP proxy on the loopback of a machine other than the server's. It knows one method, CONNECT.

Google's names lead to the server's TLS port, byte for byte: TLS goes from the trainer to the server, which has a
certificate for these names there, and asks for a token as it does of anyone. All other hosts are reached from this
machine, through its own `https_proxy` if it has one. The relay holds no token and looks into nothing.
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

_RESET = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class SidecarProxy:
    """Listens from the start; `start` forks a process that answers, and may be called again when that has ended."""

    def __init__(self, way: dict[str, Any]) -> None:
        self._way = way
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(128)
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]

    def start(self) -> int:
        """The pid of the process that answers. It ends with this one."""
        parent = os.getpid()
        pid = os.fork()
        if pid != 0:
            return pid
        try:
            os.setpgid(0, 0)
            set_parent_death_signal(parent, signal.SIGKILL)
            for number in _RESET:
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            _close_others(self._listener.fileno())
            select.select([self._listener], [], [])
            from .tunnels import serve  # late: most replicas never connect to anything, and this takes a while

            serve(self._listener, self._way)
        except BaseException:  # noqa: BLE001 - what ended it is told; its parent starts it again
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)

    def close(self) -> None:
        """Let go of the address. A process that answers goes on until it ends."""
        self._listener.close()


def _close_others(kept: int) -> None:
    """What the parent has open is not held open by the relay, but for stderr."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    os.closerange(3, kept)
    os.closerange(kept + 1, highest + 1)
