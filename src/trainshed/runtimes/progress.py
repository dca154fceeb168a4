"""How far a build is, from what can be seen of it: bytes that uv wrote, packages in place, files compiled."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psutil

ProgressCallback = Callable[[float, str], None]  #: fraction from 0 to 1, never falling; and a short text

_START, _FETCHED, _INSTALLED, _COMPILED = 0.01, 0.60, 0.65, 0.99


def rising(progress: ProgressCallback) -> ProgressCallback:
    """The same, with a fraction that never falls, also when a build that was waited for fails and is done again."""
    reached = 0.0

    def tell(fraction: float, text: str) -> None:
        nonlocal reached
        reached = max(reached, fraction)
        progress(reached, text)

    return tell


class BuildMeter:
    """Looks at one running `uv pip install --compile-bytecode` into an environment. The fraction never falls.

    uv fetches and unpacks all packages into its cache, then links them into the environment, then compiles. The bytes
    it writes are held against `unpacked_bytes`; what the cache has already is never written, so that stage is then
    left early.
    """

    def __init__(self, *, site: Path, packages: int, unpacked_bytes: int) -> None:
        self._site = site
        self._packages = packages
        self._unpacked_bytes = unpacked_bytes
        self._sources = 0  #: Python files to compile, once they are all there
        self._fraction = 0.0

    def look(self, pid: int) -> tuple[float, str]:
        """The fraction done and what is being done now."""
        if (installed := self._installed()) == 0:
            return self._fetching(_bytes_written(pid))
        if installed < self._packages and not self._sources:
            fraction = _FETCHED + (_INSTALLED - _FETCHED) * installed / self._packages
            return self._up_to(fraction), f"Installing: {installed} of {self._packages} packages"
        compiled, sources = _count(self._site)
        self._sources = max(self._sources, sources, 1)
        fraction = _INSTALLED + (_COMPILED - _INSTALLED) * min(compiled / self._sources, 1)
        return self._up_to(fraction), f"Compiling: {compiled:,} of {self._sources:,} files"

    def _fetching(self, written: int) -> tuple[float, str]:
        part = min(written / self._unpacked_bytes, 1)
        text = f"Fetching packages: {written >> 20:,} MB of at most {self._unpacked_bytes >> 20:,} MB on disk"
        return self._up_to(_START + (_FETCHED - _START) * part), text

    def _up_to(self, fraction: float) -> float:
        self._fraction = max(self._fraction, fraction)
        return self._fraction

    def _installed(self) -> int:
        if not self._site.is_dir():
            return 0
        return sum(1 for entry in os.scandir(self._site) if entry.name.endswith(".dist-info"))


def _bytes_written(pid: int) -> int:
    try:
        return int(psutil.Process(pid).io_counters().write_chars)
    except psutil.Error:  # it has just ended
        return 0


def _count(site: Path) -> tuple[int, int]:
    """Compiled files and source files below a folder."""
    compiled = sources = 0
    for _, _, files in os.walk(site):
        compiled += sum(name.endswith(".pyc") for name in files)
        sources += sum(name.endswith(".py") for name in files)
    return compiled, sources
