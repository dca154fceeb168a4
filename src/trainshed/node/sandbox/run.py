"""Runs a function in a cell, and waits for it."""

from __future__ import annotations

import os
import signal
import sys
import traceback

from ..process.tree import set_parent_death_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from .cell import Cell


def run_in_cell(cell: Cell, run: Callable[[], int], env: dict[str, str]) -> int:
    """Call `run` in a process in the cell, with these variables, and wait for all processes in it. Returns the wait
    status. It dies with this process. Raises `OSError` if the cell can't be set up."""
    parent = os.getpid()
    status, status_w = os.pipe()
    alive, alive_w = os.pipe()
    error, error_w = os.pipe()

    def program() -> None:
        for fd in (status_w, alive_w):
            os.close(fd)
        _run(cell, run, env, error_w)

    pid = cell.fork() if cell.has_init else os.fork()
    if pid == 0:
        for fd in (status, alive, error):
            os.close(fd)
        try:
            if cell.has_init:
                cell.run_init(status_w, alive_w, program)
            set_parent_death_signal(parent, signal.SIGKILL)
            program()
        except OSError as exc:
            os.write(error_w, (exc.strerror or "an unknown reason").encode("utf-8", "replace"))
        finally:
            os._exit(1)
    for fd in (status_w, alive_w, error_w):
        os.close(fd)
    with open(error, "rb") as file:
        reason = file.read()  # until the function is called
    first = cell.read_pid(status) if cell.has_init else 0
    ended = os.waitpid(pid, 0)[1]
    cell.end()
    inner = cell.read_status(status) if first else None
    for fd in (status, alive):
        os.close(fd)
    if reason:
        raise OSError(0, "Its sandbox can't be set up: %s." % reason.decode("utf-8", "replace"))
    return ended if inner is None else inner


def _run(cell: Cell, run: Callable[[], int], env: dict[str, str], error: int) -> None:
    """Never returns."""
    status = 1
    try:
        try:
            cell.enter()
            os.chdir("/")
        except OSError as exc:
            os.write(error, (exc.strerror or "an unknown reason").encode("utf-8", "replace"))
            return
        os.close(error)
        os.environ.clear()
        os.environ.update(cell.environment(env))
        status = run()
    except BaseException:  # noqa: BLE001 - the process ends here, and its log has the error
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
