"""The sandbox of a server: its level, which is found while the server starts, and what all user code sees in it."""

from __future__ import annotations

from collections.abc import Callable

from trainshed.config import Home, Settings
from trainshed.engines.local.sandbox import Sandbox, SandboxCheck


def begin_sandbox(home: Home, settings: Settings) -> Callable[[], Sandbox]:
    """Begin to look for the level. Returns a function that waits for it, and raises `CannotProceedError` if it is less
    than the setting asks for."""
    check = SandboxCheck(home, settings.sandbox)
    return lambda: Sandbox(home=home, level=check.result(), paths=settings.visible_paths)
