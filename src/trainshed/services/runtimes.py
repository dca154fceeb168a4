"""Runtimes as a resource: list, install and remove."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainshed.errors import FailedPreconditionError, TrainshedError
from trainshed.runtimes.environments import RuntimeInfo, Runtimes, RuntimeState

LOG = logging.getLogger("trainshed.runtimes")


class RuntimeService:
    """Manages the runtimes of this machine. `in_use` returns whether an active job or version uses one."""

    def __init__(self, runtimes: Runtimes, *, in_use: Callable[[str], bool]) -> None:
        self._runtimes = runtimes
        self._in_use = in_use
        self._lock = threading.Lock()
        self._installing: dict[str, threading.Thread] = {}

    def visible(self) -> list[dict[str, Any]]:
        """Return all runtimes of the catalogue with their state."""
        return [_body(self._with_pending_build(info)) for info in self._runtimes.list()]

    def ready(self, name: str) -> Path | None:
        """Return the interpreter of a runtime. Returns None if it is not built."""
        return self._runtimes.ready(name)

    def install(self, name: str) -> dict[str, Any]:
        """Start building a runtime. Returns immediately; `visible` shows its progress. Idempotent.

        Raises `NotFoundError` for an unknown name. Raises `FailedPreconditionError` if this machine cannot have it.
        """
        with self._lock:
            info = self._with_pending_build(self._runtimes.get(name))
            if info.state is RuntimeState.UNAVAILABLE:
                raise FailedPreconditionError(info.error)
            if info.state is RuntimeState.ABSENT:
                builder = threading.Thread(target=self._build, args=(name,), name=f"install-{name}", daemon=True)
                self._installing[name] = builder
                builder.start()
                info = self._with_pending_build(info)
            return _body(info)

    def remove(self, name: str) -> dict[str, Any]:
        """Remove a runtime. Raises `FailedPreconditionError` if it is in use or being built."""
        info = self._with_pending_build(self._runtimes.get(name))
        if info.state is RuntimeState.BUILDING:
            raise FailedPreconditionError(f"Runtime {name} is being built. Remove it once it is ready.")
        self._runtimes.remove(name, in_use=lambda: self._in_use(name))
        LOG.info("runtime.removed name=%s", name)
        return {}

    def close(self) -> None:
        """Cancel the builds that were started here. Blocks until they have ended."""
        self._runtimes.close()
        for builder in list(self._installing.values()):
            builder.join(timeout=10)

    def _build(self, name: str) -> None:
        try:
            self._runtimes.ensure(name, lambda fraction, text: None)  # the build itself records its progress
            LOG.info("runtime.installed name=%s", name)
        except (TrainshedError, OSError) as exc:
            LOG.warning("runtime.install_failed name=%s reason=%s", name, exc)
        finally:
            with self._lock:
                self._installing.pop(name, None)

    def _with_pending_build(self, info: RuntimeInfo) -> RuntimeInfo:
        """Report a requested build as BUILDING before it holds its lock."""
        if info.state is RuntimeState.ABSENT and info.name in self._installing:
            return replace(info, state=RuntimeState.BUILDING, error="", text="Starting")
        return info


def _body(info: RuntimeInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "python": info.python,
        "summary": info.summary,
        "state": str(info.state),
        "fraction": round(info.fraction, 4),
        "text": info.text,
        "error": info.error,
        "path": str(info.path),
        "size": info.size,
    }
