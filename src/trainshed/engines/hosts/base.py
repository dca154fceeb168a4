"""The contract of engines that run hosts, and the router that sends each call to the engine of a version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from trainshed.engines.hosts.spec import HostSpec
from trainshed.engines.hosts.watcher import HostStatus
from trainshed.errors import EngineUnavailableError


class HostEngine(Protocol):
    """Runs hosts. A key names one start of a host. Unknown keys and ended hosts are ignored. Thread-safe."""

    def open(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called by a thread of the engine whenever a status changes."""

    def close(self) -> None:
        """Kill all hosts. Blocks until none is left."""

    def prepare(self, spec: HostSpec, *, existing: bool = False) -> HostSpec:
        """Add what hosts of a version need where they run. May block. Raises any error of Trainshed.

        `existing`: the version is not new, so the preparation was done before.
        """

    def start(self, spec: HostSpec) -> str:
        """Start a host and return its key immediately; `status` says when it is ready.

        Raises `EngineUnavailableError` if it can't be started.
        """

    def status(self, key: str) -> HostStatus | None:
        """Returns None if the key is unknown."""

    def drain(self, key: str) -> None:
        """Let the host finish in-flight requests and exit. Returns immediately."""

    def kill(self, key: str, *, reason: str = "") -> None:
        """Kill the host with all descendants. Returns immediately. `reason` becomes the message of its status."""

    def forget(self, key: str) -> None:
        """Forget a host that has ended."""

    def discard(self, key: str) -> None:
        """Kill the host and forget it."""

    def memory_use(self, key: str) -> tuple[int, int]:
        """The pid of the host, 0 if it is remote, and the unshared bytes of it and its descendants."""

    def stats(self, key: str) -> Mapping[str, float]:
        """Requests waiting at a host and its counters since its start. Empty if it does not respond immediately."""

    def compare(self, key: str, reference: Path, *, timeout_s: float) -> Mapping[str, Any]:
        """Difference of the host's responses from those in the file: `difference`, `within`, `text`. Raises
        `EngineUnavailableError` if it can't be computed."""

    def folder(self, project: str, model: str, version: str) -> Path:
        """Folder of a version's hosts on this machine."""

    def remove(self, project: str, model: str, version: str) -> None:
        """Remove that folder. None of the hosts may run any more."""


class HostEngineRouter:
    """Routes calls to a table of engines. All of them share the same folders. A key begins
    with the name of its engine."""

    def __init__(self, engines: Mapping[str, HostEngine]) -> None:
        self._engines = engines

    def open(self, on_change: Callable[[], None]) -> None:
        for engine in self._engines.values():
            engine.open(on_change)

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()

    def prepare(self, spec: HostSpec, *, existing: bool = False) -> HostSpec:
        return self._engine(spec.engine).prepare(spec, existing=existing)

    def start(self, spec: HostSpec) -> str:
        return f"{spec.engine}:{self._engine(spec.engine).start(spec)}"

    def status(self, key: str) -> HostStatus | None:
        engine, engine_key = self._split_key(key)
        return engine.status(engine_key)

    def drain(self, key: str) -> None:
        engine, engine_key = self._split_key(key)
        engine.drain(engine_key)

    def kill(self, key: str, *, reason: str = "") -> None:
        engine, engine_key = self._split_key(key)
        engine.kill(engine_key, reason=reason)

    def forget(self, key: str) -> None:
        engine, engine_key = self._split_key(key)
        engine.forget(engine_key)

    def discard(self, key: str) -> None:
        engine, engine_key = self._split_key(key)
        engine.discard(engine_key)

    def memory_use(self, key: str) -> tuple[int, int]:
        engine, engine_key = self._split_key(key)
        return engine.memory_use(engine_key)

    def stats(self, key: str) -> Mapping[str, float]:
        engine, engine_key = self._split_key(key)
        return engine.stats(engine_key)

    def compare(self, key: str, reference: Path, *, timeout_s: float) -> Mapping[str, Any]:
        engine, engine_key = self._split_key(key)
        return engine.compare(engine_key, reference, timeout_s=timeout_s)

    def folder(self, project: str, model: str, version: str) -> Path:
        return next(iter(self._engines.values())).folder(project, model, version)

    def remove(self, project: str, model: str, version: str) -> None:
        next(iter(self._engines.values())).remove(project, model, version)

    def _engine(self, name: str) -> HostEngine:
        if (engine := self._engines.get(name)) is None:
            raise EngineUnavailableError(
                f"There is no engine {name!r} any more. Those there are: {', '.join(self._engines)}."
            )
        return engine

    def _split_key(self, key: str) -> tuple[HostEngine, str]:
        engine, _, engine_key = key.partition(":")
        return self._engines[engine], engine_key
