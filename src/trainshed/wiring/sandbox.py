"""The sandbox of a server: its level, which is found while the server starts, and what all user code sees in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trainshed.config import Home, Settings
from trainshed.engines.local.limits import find_limits, machine_memory
from trainshed.engines.local.sandbox import NONE, Sandbox, SandboxCheck
from trainshed.services.server import ServerInfo


def begin_sandbox(home: Home, settings: Settings) -> Callable[[], Sandbox]:
    """Begin to look for the level. Returns a function that waits for it, and raises `CannotProceedError` if it is less
    than the setting asks for."""
    check = SandboxCheck(home, settings.sandbox)

    def find() -> Sandbox:
        level = check.result()
        limits = find_limits(home, settings, machine_memory()) if level.level != NONE else None
        return Sandbox(home=home, level=level, paths=settings.visible_paths, limits=limits)

    return find


def with_levels(info: ServerInfo, sandbox: Sandbox) -> ServerInfo:
    """The server's description with the levels in force of the sandbox and of its limits."""
    limits = sandbox.limits
    return replace(
        info,
        sandbox=sandbox.level.level,
        sandbox_reason=sandbox.level.reason,
        limits=limits.level if limits else NONE,
        limits_reason=limits.reason if limits else "there is no sandbox",
    )
