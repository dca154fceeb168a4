"""Ports that the user named."""

from __future__ import annotations

import socket

import pytest

from trainshed.errors import CannotProceedError
from trainshed.local.processes import check_port


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotProceedError, match=f"Port {port} of 127.0.0.1 can't be used: .*--port"):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)
