"""Runtimes as a resource: listed, installed ahead of their first job, removed."""

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
    """What owners can do with the runtimes of this machine. `in_use` says whether an active job runs from one."""

    def __init__(self, runtimes: Runtimes, *, in_use: Callable[[str], bool]) -> None:
        self._runtimes = runtimes
        self._in_use = in_use
        self._lock = threading.Lock()
        self._installing: dict[str, threading.Thread] = {}

    def visible(self) -> list[dict[str, Any]]:
        """All runtimes of the catalogue, as they stand."""
        return [_body(self._as_seen(info)) for info in self._runtimes.list()]

    def ready(self, name: str) -> Path | None:
        """The interpreter of a runtime, if it is there."""
        return self._runtimes.ready(name)

    def install(self, name: str) -> dict[str, Any]:
        """Start building a runtime and return at once; `visible` shows how far it is. Ready or under way: no change.

        `NotFoundError` for a name that is not in the catalogue, `FailedPreconditionError` if it can't be had on this
        machine.
        """
        with self._lock:
            info = self._as_seen(self._runtimes.get(name))
            if info.state is RuntimeState.UNAVAILABLE:
                raise FailedPreconditionError(info.error)
            if info.state is RuntimeState.ABSENT:
                builder = threading.Thread(target=self._build, args=(name,), name=f"install-{name}", daemon=True)
                self._installing[name] = builder
                builder.start()
                info = self._as_seen(info)
            return _body(info)

    def remove(self, name: str) -> dict[str, Any]:
        """Remove a runtime. `FailedPreconditionError` while it is being built or a job runs from it."""
        info = self._as_seen(self._runtimes.get(name))
        if info.state is RuntimeState.BUILDING:
            raise FailedPreconditionError(f"Runtime {name} is being built. Remove it once it is ready.")
        self._runtimes.remove(name, in_use=lambda: self._in_use(name))
        LOG.info("runtime.removed name=%s", name)
        return {}

    def close(self) -> None:
        """End the builds that were started here, and wait for them to have ended."""
        self._runtimes.close()
        for builder in list(self._installing.values()):
            builder.join(timeout=10)

    def _build(self, name: str) -> None:
        try:
            self._runtimes.ensure(name, lambda fraction, text: None)  # pollers read the build's own news
            LOG.info("runtime.installed name=%s", name)
        except (TrainshedError, OSError) as exc:
            LOG.warning("runtime.install_failed name=%s reason=%s", name, exc)
        finally:
            with self._lock:
                self._installing.pop(name, None)

    def _as_seen(self, info: RuntimeInfo) -> RuntimeInfo:
        """A build that was asked for is under way from that moment on, also before it holds its lock."""
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
