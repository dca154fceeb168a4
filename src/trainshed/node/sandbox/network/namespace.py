"""The network of a sandbox: a namespace in which processes reach each other, and what a forwarder lets out."""

from __future__ import annotations

import os
import signal
import socket

from .. import syscalls
from . import rules
from .forwarder import send_sockets, start_forwarder
from .rules import NAMES, PROXY, REDIRECTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

NONE, ALL, INDEX = "none", "all", "index"
PROXY_PORT = 3128  #: in the namespace
_BACKLOG = 128
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
_OTHER_PROXY_VARIABLES = ("all_proxy", "ALL_PROXY", "ftp_proxy", "FTP_PROXY")


class SandboxNetwork:
    """A network namespace. `begin` is called outside, then `set_up` or `enter` inside."""

    def __init__(self, spec: dict[str, Any]) -> None:
        """From the part of a spec file about the network."""
        self._spec = spec
        self._channel: Optional[socket.socket] = None
        self._forwarder = 0
        self._entered = False

    def begin(self) -> None:
        """Start the forwarder. Without any access there is none."""
        if self._spec["access"] != NONE:
            self._forwarder, self._channel = start_forwarder(self._spec)

    def enter(self) -> None:
        """Move this process, which has one thread, into a new network. Idempotent. Raises `OSError` if that can't
        be."""
        if self._entered:
            return
        uid, gid = os.getuid(), os.getgid()
        syscalls.unshare(syscalls.CLONE_NEWNET | (syscalls.CLONE_NEWUSER if uid else 0))
        if uid:
            syscalls.map_own_user(uid, gid)
        self.set_up()
        self._entered = True

    def set_up(self) -> None:
        """Prepare the new network of this process."""
        rules.raise_loopback()
        if self._channel is None:
            return
        sockets = {PROXY: _listen("127.0.0.1", PROXY_PORT)}
        for host, port in self._spec["ports"]:
            if not host.startswith("127.") and host != "::1":
                rules.add_address(host)
            sockets[str(port)] = _listen(host, port)
        if self._spec["redirects"]:
            sockets[REDIRECTED] = _listen("127.0.0.1", 0)
            sockets[NAMES] = names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            names.bind(("127.0.0.1", 0))
            rules.redirect(sockets[REDIRECTED].getsockname()[1], names.getsockname()[1])
        send_sockets(self._channel, sockets)
        self._channel = None

    def close(self) -> None:
        """Close this process's end of the channel. Without sockets, the forwarder then ends."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def end(self) -> None:
        """End the forwarder, and wait for it."""
        self.close()
        if self._forwarder:
            os.kill(self._forwarder, signal.SIGKILL)
            os.waitpid(self._forwarder, 0)
            self._forwarder = 0

    def variables(self, env: dict[str, str]) -> dict[str, str]:
        """These variables with the proxy of this network in place of the machine's."""
        dropped = (*_PROXY_VARIABLES, *_OTHER_PROXY_VARIABLES, "no_proxy", "NO_PROXY")
        kept = {name: value for name, value in env.items() if name not in dropped}
        if self._spec["access"] == NONE:
            return kept
        kept.update(dict.fromkeys(_PROXY_VARIABLES, "http://127.0.0.1:%d" % PROXY_PORT))
        if self._spec["access"] != INDEX:  # an index may be on loopback outside
            kept.update(dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"))
        return kept


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.bind((host, port))
    listener.listen(_BACKLOG)
    return listener
