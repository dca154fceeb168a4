"""Ports that nobody else is given while a test needs them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[int]:
    """A port on loopback that is not given to anyone who asks for a free one, or who connects to somewhere.

    Nobody listens on it, so that connections are refused, until the test has a server listen on that very port. The
    server must set SO_REUSEADDR, as those of Python do.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
