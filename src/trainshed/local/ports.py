"""Whether a port that the user named can be used."""

from __future__ import annotations

import socket

from trainshed.errors import CannotProceedError


def check_port(host: str, port: int, *, advice: str = "Choose another one with --port.") -> None:
    """Raises `CannotProceedError`, with the advice, if the port can't be used."""
    try:
        socket.create_server((host, port)).close()
    except OSError as exc:
        raise CannotProceedError(f"Port {port} of {host} can't be used: {exc.strerror}. {advice}") from exc
