"""Signals as something to wait for."""

from __future__ import annotations

import os
import signal


def signal_pipe(numbers: tuple[int, ...]) -> int:
    """From now on these signals are only bytes in the pipe that is returned."""
    out, into = os.pipe()
    os.set_blocking(out, False)
    os.set_blocking(into, False)
    signal.set_wakeup_fd(into, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda number, frame: None)
    return out
