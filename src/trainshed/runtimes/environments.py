"""The runtimes of this machine: which there are, which can be had, and their environments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from trainshed.errors import FailedPreconditionError, NotFoundError
from trainshed.runtimes import builds
from trainshed.runtimes.builds import BuildTools, EnvironmentDir
from trainshed.runtimes.catalogue import CATALOGUE, Runtime
from trainshed.runtimes.progress import ProgressCallback, rising
from trainshed.runtimes.pythons import Pythons
from trainshed.runtimes.resolution import RuntimeChoice, resolve


class RuntimeState(StrEnum):
    ABSENT = "ABSENT"  #: can be built, and is at first use
    BUILDING = "BUILDING"  #: someone builds it, in this process or another
    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"  #: the Python it needs is not here and can't be fetched


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInfo:
    """One runtime as it stands on this machine."""

    name: str
    python: str
    summary: str
    state: RuntimeState
    fraction: float  #: of the build
    text: str  #: what the build does now
    error: str  #: why the last build failed, until the next
    path: Path  #: its folder, also before it is there
    size: int  #: bytes on disk, once it is READY


class PythonFinder(Protocol):
    """Where interpreters come from."""

    def can_be_had(self, version: str) -> bool: ...

    def get(self, version: str) -> Path | None: ...


class Runtimes:
    """Environments below one folder, shared by jobs. Safe to use from many threads and processes at once."""

    def __init__(
        self,
        folder: Path,
        uv: Path,
        *,
        pythons: PythonFinder | None = None,
        catalogue: Mapping[str, Runtime] = CATALOGUE,
    ) -> None:
        self._folder = folder
        self._uv = uv
        self._pythons = pythons or Pythons(uv)
        self._catalogue = catalogue
        self._stopping = threading.Event()

    def look_ahead(self) -> None:
        """Begin to look for the interpreters, in the background, so that the first `resolve` need not wait for it."""
        threading.Thread(target=self._look, name="look-for-pythons", daemon=True).start()

    def list(self) -> list[RuntimeInfo]:
        """All of the catalogue, also what can't be had here."""
        return [self._info(runtime) for runtime in self._catalogue.values()]

    def get(self, name: str) -> RuntimeInfo:
        """One of them. `NotFoundError` if there is none of this name."""
        return self._info(self._known(name))

    def resolve(self, runtime_version: str | None, python_version: str | None, *, what: str = "job") -> RuntimeChoice:
        """The runtime for what a job asks for, or `what` else.

        `InvalidArgumentError` if there is none for it. Builds nothing.
        """
        available = {r.name for r in self._catalogue.values() if self._obtainable(r)}
        return resolve(runtime_version, python_version, available=available, catalogue=self._catalogue, what=what)

    def ensure(self, name: str, progress: ProgressCallback) -> Path:
        """The interpreter of a runtime, which is built first if it is not there, or waited for if another builds it.

        Blocks; safe to repeat. An exception out of `progress` ends the wait or the build. `UnavailableError` if uv
        fails or
        the server stops, `DiskFullError` if the disk is full, `FailedPreconditionError` if its Python can't be had.
        """
        runtime = self._known(name)
        place = self._place(runtime)
        if place.ready():
            return place.python
        progress = rising(progress)
        with place.locked(progress, self._stopping) as lock:
            if not place.ready():
                tools = BuildTools(uv=self._uv, python=self._python(runtime), stopping=self._stopping)
                builds.build(runtime, place, tools=tools, progress=progress, lock=lock)
        return place.python

    def ready(self, name: str) -> Path | None:
        """The interpreter of a runtime that is there; None: it would have to be built."""
        place = self._place(self._known(name))
        return place.python if place.ready() else None

    def remove(self, name: str, *, in_use: Callable[[], bool] = lambda: False) -> None:
        """Remove a runtime's environment, and those of the same name that an older catalogue left. Absent: nothing.

        `FailedPreconditionError` while it is being built, or if it is `in_use`. That is asked when `ensure` gives the
        environment out no more: who counts as a user before they call `ensure` keeps it, or has it built again.
        """
        self._known(name)
        for lock in self._folder.glob(f"{name}-*.lock"):
            place = EnvironmentDir(lock.with_suffix(""))
            with place.locked_now():
                if not place.erase_unless(in_use):
                    raise FailedPreconditionError(
                        f"A job runs from runtime {name}. Wait until it ends, or cancel it with "
                        f"`trainshed jobs cancel`."
                    )
                place.news.unlink(missing_ok=True)
                place.log.unlink(missing_ok=True)

    def close(self) -> None:
        """End the builds and waits of this object; those who called `ensure` get `UnavailableError`."""
        self._stopping.set()

    def _look(self) -> None:
        for runtime in self._catalogue.values():
            if self._stopping.is_set():
                return
            self._obtainable(runtime)

    def _info(self, runtime: Runtime) -> RuntimeInfo:
        place = self._place(runtime)
        state = self._state(runtime, place)
        news = place.last_news()
        building = state is RuntimeState.BUILDING
        return RuntimeInfo(
            name=runtime.name,
            python=runtime.python,
            summary=runtime.summary,
            state=state,
            fraction=float(state is RuntimeState.READY) or (float(news.get("fraction", 0)) if building else 0.0),
            text=str(news.get("text", "")) if building else "",
            error=self._error(runtime, state, news),
            path=place.path,
            size=place.size() if state is RuntimeState.READY else 0,
        )

    def _error(self, runtime: Runtime, state: RuntimeState, news: Mapping[str, Any]) -> str:
        if state is RuntimeState.UNAVAILABLE:
            return _no_python(runtime)
        return str(news.get("error", "")) if state is RuntimeState.ABSENT else ""

    def _state(self, runtime: Runtime, place: EnvironmentDir) -> RuntimeState:
        if place.ready():
            return RuntimeState.READY
        if place.busy():
            return RuntimeState.BUILDING
        return RuntimeState.ABSENT if self._obtainable(runtime) else RuntimeState.UNAVAILABLE

    def _obtainable(self, runtime: Runtime) -> bool:
        return self._place(runtime).ready() or self._pythons.can_be_had(runtime.python)

    def _python(self, runtime: Runtime) -> Path:
        if python := self._pythons.get(runtime.python):
            return python
        raise FailedPreconditionError(_no_python(runtime))

    def _known(self, name: str) -> Runtime:
        if runtime := self._catalogue.get(name):
            return runtime
        raise NotFoundError(f"There is no runtime {name!r}. The runtimes are: {', '.join(self._catalogue)}.")

    def _place(self, runtime: Runtime) -> EnvironmentDir:
        return EnvironmentDir(self._folder / runtime.key)


def _no_python(runtime: Runtime) -> str:
    return (
        f"Runtime {runtime.name} needs Python {runtime.python}, which is not on this machine and which uv can't fetch. "
        f"Install it, for example with pyenv, and start the server again."
    )
