"""The hosts of all engines, each where its version says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from trainshed.engines.hosts.spec import HostSpec
from trainshed.engines.hosts.watcher import HostStatus
from trainshed.errors import EngineUnavailableError


class HostEngine(Protocol):
    """Where hosts run. Keys name single starts of hosts; one that is unknown or ended is left alone. Threads may share
    it."""

    def open(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called by a thread of the engine whenever a status changes."""

    def close(self) -> None:
        """End all of them; returns when none is left."""

    def prepare(self, spec: HostSpec, *, existing: bool = False) -> HostSpec:
        """With what hosts of a version need to have where they run. May block, and raise any error with a sentence.

        `existing`: the version was created before; the work is done already.
        """

    def start(self, spec: HostSpec) -> str:
        """Start a host and return its key at once; `status` tells when it is ready.

        `EngineUnavailableError` if it can't be.
        """

    def status(self, key: str) -> HostStatus | None:
        """None if it was forgotten."""

    def drain(self, key: str) -> None:
        """Let it answer what it has and end. Returns at once."""

    def kill(self, key: str, *, reason: str = "") -> None:
        """End it, and all that it started, now. Returns at once. `reason` is what its sighting will say."""

    def forget(self, key: str) -> None:
        """Drop a host that ended."""

    def discard(self, key: str) -> None:
        """End it now, and know nothing of it any more."""

    def memory_use(self, key: str) -> tuple[int, int]:
        """The pid of the host itself, 0 if there is none here, and the bytes that it and all it started hold alone."""

    def stats(self, key: str) -> Mapping[str, float]:
        """How many requests wait at a host, and what it did since its start; nothing if it does not tell at once."""

    def compare(self, key: str, reference: Path, *, timeout_s: float) -> Mapping[str, Any]:
        """How far its answers are from those in the file: `difference`, `within`, `text`. `EngineUnavailableError` if
        it can't tell.
        """

    def folder(self, project: str, model: str, version: str) -> Path:
        """What the hosts of a version have on this machine."""

    def remove(self, project: str, model: str, version: str) -> None:
        """Remove that. None of them may run any more."""


class HostEngineRouter:
    """A table of engines as one. All of them have the same folders. A key begins with the name of its engine."""

    def __init__(self, table: Mapping[str, HostEngine]) -> None:
        self._table = table

    def open(self, on_change: Callable[[], None]) -> None:
        for hosts in self._table.values():
            hosts.open(on_change)

    def close(self) -> None:
        for hosts in self._table.values():
            hosts.close()

    def prepare(self, spec: HostSpec, *, existing: bool = False) -> HostSpec:
        return self._on(spec.engine).prepare(spec, existing=existing)

    def start(self, spec: HostSpec) -> str:
        return f"{spec.engine}:{self._on(spec.engine).start(spec)}"

    def status(self, key: str) -> HostStatus | None:
        hosts, own = self._of(key)
        return hosts.status(own)

    def drain(self, key: str) -> None:
        hosts, own = self._of(key)
        hosts.drain(own)

    def kill(self, key: str, *, reason: str = "") -> None:
        hosts, own = self._of(key)
        hosts.kill(own, reason=reason)

    def forget(self, key: str) -> None:
        hosts, own = self._of(key)
        hosts.forget(own)

    def discard(self, key: str) -> None:
        hosts, own = self._of(key)
        hosts.discard(own)

    def memory_use(self, key: str) -> tuple[int, int]:
        hosts, own = self._of(key)
        return hosts.memory_use(own)

    def stats(self, key: str) -> Mapping[str, float]:
        hosts, own = self._of(key)
        return hosts.stats(own)

    def compare(self, key: str, reference: Path, *, timeout_s: float) -> Mapping[str, Any]:
        hosts, own = self._of(key)
        return hosts.compare(own, reference, timeout_s=timeout_s)

    def folder(self, project: str, model: str, version: str) -> Path:
        return next(iter(self._table.values())).folder(project, model, version)

    def remove(self, project: str, model: str, version: str) -> None:
        next(iter(self._table.values())).remove(project, model, version)

    def _on(self, engine: str) -> HostEngine:
        if (found := self._table.get(engine)) is None:
            raise EngineUnavailableError(
                f"There is no engine {engine!r} any more. Those there are: {', '.join(self._table)}."
            )
        return found

    def _of(self, key: str) -> tuple[HostEngine, str]:
        engine, _, own = key.partition(":")
        return self._table[engine], own
