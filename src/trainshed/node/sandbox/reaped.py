"""Cells of processes below a reaper: hosts, package builds, TensorBoards and the like."""

from __future__ import annotations

import json
import os
import socket

from . import view
from .cell import Cell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

VARIABLE = "TRAINSHED_CELL"  #: the cell of a process whose reaper is a new Python, in JSON
_BACKLOG = 64


def take_cell() -> tuple[Optional[Cell], int]:
    """The cell that the environment of this process asks for, and the socket for it. The variable is removed."""
    text = os.environ.pop(VARIABLE, "")
    return make_cell(json.loads(text), dict(os.environ)) if text else (None, -1)


def make_cell(spec: dict[str, Any], env: dict[str, str]) -> tuple[Optional[Cell], int]:
    """The cell of a process with these variables, in this interpreter or in a fork of it; None if `spec` is empty.

    And a listening socket for it, or -1: its path is outside of the cell, where nothing in it can put a link.
    """
    if not spec:
        return None, -1
    shown = dict(spec)
    shown["read_only"] = [*view.interpreter_paths(view.own_interpreter()), view.node_folder(), *spec["read_only"]]
    cell = Cell.of(shown, spec["private"], env.get("HOME", ""))
    if cell.limits is not None:
        cell.limits.open()
    return cell, _listen(spec["listen"]) if spec["listen"] else -1


def _listen(path: str) -> int:
    if os.path.lexists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(_BACKLOG)
    return listener.detach()
