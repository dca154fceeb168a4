"""The launcher of the browser: the program runs, and sees no changes of the machine's network."""

from __future__ import annotations

import subprocess
import sys

from trainshed.testing.processes import without_netlink

PROGRAM = """
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
try:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()
except PermissionError:
    print("refused", *sys.argv[1:])
"""


def test_the_program_runs_without_netlink() -> None:
    command = [sys.executable, without_netlink.__file__, sys.executable, "-c", PROGRAM, "one", "two"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "refused one two\n"
