"""The runtimes of this machine: their states, and building, resolving and removing their environments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from trainshed.errors import FailedPreconditionError, NotFoundError
from trainshed.runtimes import builds
from trainshed.runtimes.builds import BuildTools, EnvironmentDir
from trainshed.runtimes.catalogue import CATALOGUE, Runtime
from trainshed.runtimes.keras_data import accept_mirrored_data
from trainshed.runtimes.progress import ProgressCallback, monotonic
from trainshed.runtimes.pythons import Pythons
from trainshed.runtimes.resolution import RuntimeChoice, resolve


class RuntimeState(StrEnum):
    ABSENT = "ABSENT"  #: not built yet; built at first use
    BUILDING = "BUILDING"  #: a process builds it, this one or another
    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"  #: its Python is not installed and cannot be downloaded


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInfo:
    """The state of one runtime on this machine."""

    name: str
    python: str
    summary: str
    state: RuntimeState
    fraction: float  #: of the build
    text: str  #: the current step of the build
    error: str  #: of the last build; cleared by the next
    path: Path  #: of its folder, even before it exists
    size: int  #: bytes on disk, if READY


class PythonFinder(Protocol):
    """Finds or downloads interpreters."""

    def can_be_had(self, version: str) -> bool: ...

    def get(self, version: str) -> Path | None: ...


class _Obtainable(Container[str]):
    """The names of runtimes that are built or can be built. A built one needs no search for its Python."""

    def __init__(self, catalogue: Mapping[str, Runtime], obtainable: Callable[[Runtime], bool]) -> None:
        self._catalogue = catalogue
        self._obtainable = obtainable

    def __contains__(self, name: object) -> bool:
        runtime = self._catalogue.get(name) if isinstance(name, str) else None
        return runtime is not None and self._obtainable(runtime)


class Runtimes:
    """Environments below one folder, shared by all jobs. Safe across threads and processes."""

    def __init__(
        self,
        folder: Path,
        uv: Path,
        *,
        pythons: PythonFinder | None = None,
        catalogue: Mapping[str, Runtime] = CATALOGUE,
        find_links: tuple[str, ...] = (),
    ) -> None:
        """`find_links` are folders and pages where uv finds packages besides its index."""
        self._folder = folder
        self._uv = uv
        self._pythons = pythons or Pythons(uv)
        self._catalogue = catalogue
        self._find_links = find_links
        self._stopping = threading.Event()

    def look_ahead(self) -> None:
        """Look for interpreters in the background, so that the first `resolve` is fast. Returns immediately.

        Environments that an older server built are brought up to date first.
        """
        for runtime in self._catalogue.values():
            if (directory := self._directory(runtime)).ready():
                accept_mirrored_data(directory.site(runtime.python))
        threading.Thread(target=self._find_pythons, name="look-for-pythons", daemon=True).start()

    def list(self) -> list[RuntimeInfo]:
        """All runtimes of the catalogue, unavailable ones included."""
        return [self._info(runtime) for runtime in self._catalogue.values()]

    def get(self, name: str) -> RuntimeInfo:
        """One runtime. Raises `NotFoundError` if the catalogue does not have it."""
        return self._info(self._runtime(name))

    def resolve(self, runtime_version: str | None, python_version: str | None, *, what: str = "job") -> RuntimeChoice:
        """Resolve the requested versions to a runtime for a job, or for `what`. Builds nothing.

        Calls uv only if it is not known whether a runtime that isn't built can be had. Raises `InvalidArgumentError`
        if no runtime matches.
        """
        available = _Obtainable(self._catalogue, self._obtainable)
        return resolve(runtime_version, python_version, available=available, catalogue=self._catalogue, what=what)

    def ensure(self, name: str, progress: ProgressCallback) -> Path:
        """The interpreter of a runtime, which is built first if necessary. Blocks until it is ready. Idempotent.

        If another process builds it, this waits for that build. An exception from `progress` ends the wait or the
        build. Raises `UnavailableError` if uv fails or the server stops, `DiskFullError` if the disk is full, and
        `FailedPreconditionError` if its Python is unavailable.
        """
        runtime = self._runtime(name)
        directory = self._directory(runtime)
        if directory.ready():
            return directory.python
        progress = monotonic(progress)
        with directory.locked(progress, self._stopping) as lock:
            if not directory.ready():
                tools = BuildTools(
                    uv=self._uv, python=self._python(runtime), find_links=self._find_links, stopping=self._stopping
                )
                builds.build(runtime, directory, tools=tools, progress=progress, lock=lock)
        return directory.python

    def ready(self, name: str) -> Path | None:
        """The interpreter of a runtime. Returns None if it is not built."""
        directory = self._directory(self._runtime(name))
        return directory.python if directory.ready() else None

    def remove(self, name: str, *, in_use: Callable[[], bool] = lambda: False) -> None:
        """Remove a runtime's environment, and those of the same name from older catalogues. Idempotent.

        Raises `FailedPreconditionError` during a build, or if it is `in_use`. `in_use` is called after `ensure` no
        longer returns the environment. A user who counts as one before calling `ensure` therefore keeps it or has it
        rebuilt.
        """
        self._runtime(name)
        for lock in self._folder.glob(f"{name}-*.lock"):
            directory = EnvironmentDir(lock.with_suffix(""))
            with directory.locked_now():
                if not directory.erase_unless(in_use):
                    raise FailedPreconditionError(
                        f"A job runs from runtime {name}. Wait until it ends, or cancel it with "
                        f"`trainshed jobs cancel`."
                    )
                directory.news.unlink(missing_ok=True)
                directory.log.unlink(missing_ok=True)

    def close(self) -> None:
        """Stop all builds and waits. Callers of `ensure` get `UnavailableError`."""
        self._stopping.set()

    def _find_pythons(self) -> None:
        for runtime in self._catalogue.values():
            if self._stopping.is_set():
                return
            self._obtainable(runtime)

    def _info(self, runtime: Runtime) -> RuntimeInfo:
        directory = self._directory(runtime)
        state = self._state(runtime, directory)
        status = directory.last_news()
        building = state is RuntimeState.BUILDING
        return RuntimeInfo(
            name=runtime.name,
            python=runtime.python,
            summary=runtime.summary,
            state=state,
            fraction=float(state is RuntimeState.READY) or (float(status.get("fraction", 0)) if building else 0.0),
            text=str(status.get("text", "")) if building else "",
            error=self._error(runtime, state, status),
            path=directory.path,
            size=directory.size() if state is RuntimeState.READY else 0,
        )

    def _error(self, runtime: Runtime, state: RuntimeState, status: Mapping[str, Any]) -> str:
        if state is RuntimeState.UNAVAILABLE:
            return _no_python(runtime)
        return str(status.get("error", "")) if state is RuntimeState.ABSENT else ""

    def _state(self, runtime: Runtime, directory: EnvironmentDir) -> RuntimeState:
        if directory.ready():
            return RuntimeState.READY
        if directory.busy():
            return RuntimeState.BUILDING
        return RuntimeState.ABSENT if self._obtainable(runtime) else RuntimeState.UNAVAILABLE

    def _obtainable(self, runtime: Runtime) -> bool:
        return self._directory(runtime).ready() or self._pythons.can_be_had(runtime.python)

    def _python(self, runtime: Runtime) -> Path:
        if python := self._pythons.get(runtime.python):
            return python
        raise FailedPreconditionError(_no_python(runtime))

    def _runtime(self, name: str) -> Runtime:
        if runtime := self._catalogue.get(name):
            return runtime
        raise NotFoundError(f"There is no runtime {name!r}. The runtimes are: {', '.join(self._catalogue)}.")

    def _directory(self, runtime: Runtime) -> EnvironmentDir:
        return EnvironmentDir(self._folder / runtime.key)


def _no_python(runtime: Runtime) -> str:
    return (
        f"Runtime {runtime.name} needs Python {runtime.python}, which is not on this machine and which uv can't fetch. "
        f"Install it, for example with pyenv, and start the server again."
    )
