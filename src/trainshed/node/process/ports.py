"""Free ports of this machine, below the kernel's ephemeral range: any outgoing connection could take one of that range
before a trainer listens on it.
"""

from __future__ import annotations

import contextlib
import errno
import random
import socket
import time

_EPHEMERAL_PORTS_FILE = "/proc/sys/net/ipv4/ip_local_port_range"
_PORT_MIN, _PORT_MAX = 10000, 65535
_BIND_MAX_ATTEMPTS = 1000
_BIND_TIMEOUT_S = 20.0
_RETRY_INTERVAL_S = 0.02


def free_ports(count: int) -> list[int]:
    """Return distinct random loopback ports that nothing listens on now. Raises `OSError` if hardly any is free."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(reserve_port("127.0.0.1")) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


def reserve_port(host: str) -> socket.socket:
    """Bind a random free port of this host. It stays reserved until the socket is closed.

    Raises `OSError` if hardly any is free.
    """
    with open(_EPHEMERAL_PORTS_FILE) as file:
        first = int(file.read().split()[0])
    stop = first if first >= _PORT_MIN + _BIND_MAX_ATTEMPTS else _PORT_MAX + 1
    for port in random.sample(range(_PORT_MIN, stop), _BIND_MAX_ATTEMPTS):
        try:
            return _bind(host, port, shared=False)
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
    reason = "Hardly any port from %d to %d is free. End programs that listen there" % (_PORT_MIN, stop - 1)
    raise OSError(errno.EADDRINUSE, reason)


def reserve_known_port(host: str, port: int) -> socket.socket:
    """Bind the port that a replica had before. Retries for a while, because the old copy may still end."""
    deadline = time.monotonic() + _BIND_TIMEOUT_S
    while True:
        try:
            return _bind(host, port, shared=True)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_INTERVAL_S)


def _bind(host: str, port: int, shared: bool) -> socket.socket:
    """`shared` allows the port while connections of an earlier listener are in TIME_WAIT."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener
