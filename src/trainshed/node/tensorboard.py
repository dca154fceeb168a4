"""Runs TensorBoard with arguments from a file, since everyone on the machine can read a command line.

TensorBoard reads event files without TensorFlow here. The import would take seconds, and memory that jobs need.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import socket
import stat
import sys
import threading
import types

RELAYED_PORT = 6006  #: in a network of its own, where its standard input is a unix socket that the server connects to
_CHUNK_BYTES = 1 << 16
_NO_TENSORFLOW = "tensorboard.compat.notf"  #: TensorBoard skips TensorFlow if this module exists


def main(path: str) -> int:
    """Run TensorBoard until it exits. `path` names a file with a JSON list of arguments."""
    with open(path, "rb") as file:
        arguments = json.loads(file.read().decode())
    sys.modules[_NO_TENSORFLOW] = types.ModuleType(_NO_TENSORFLOW)
    if stat.S_ISSOCK(os.fstat(0).st_mode):
        threading.Thread(target=_relay, args=(socket.socket(fileno=os.dup(0)),), daemon=True).start()
    sys.argv = ["tensorboard", *arguments]
    runpy.run_module("tensorboard.main", run_name="__main__")
    return 0


def _relay(listener: socket.socket) -> None:
    while True:
        connection = listener.accept()[0]
        threading.Thread(target=_relay_connection, args=(connection,), daemon=True).start()


def _relay_connection(connection: socket.socket) -> None:
    """Forward a connection to the port, until both directions have ended or one is broken."""
    with connection:
        try:
            with socket.create_connection(("127.0.0.1", RELAYED_PORT)) as board:
                _forward(connection, board)
        except OSError:
            return  # it does not listen yet, or one of them is gone


def _forward(connection: socket.socket, board: socket.socket) -> None:
    peers = {connection: board, board: connection}
    while peers:
        for source in select.select(list(peers), [], [])[0]:
            data = source.recv(_CHUNK_BYTES)
            if data:
                peers[source].sendall(data)
            else:
                peers.pop(source).shutdown(socket.SHUT_WR)
