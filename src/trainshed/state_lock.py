"""The lock of the state folder: one server, or one restore, at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from trainshed.config import Home
from trainshed.errors import CannotProceedError


@contextmanager
def hold_lock(home: Home) -> Iterator[None]:
    """Hold the lock of the state folder. The kernel releases it when this process exits."""
    with open(os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise CannotProceedError(
                f"Another server runs on the state folder {home.path}. `trainshed status` shows it; "
                f"`trainshed down` stops it; TRAINSHED_HOME chooses another folder."
            ) from exc
        yield
