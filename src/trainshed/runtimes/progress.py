"""Progress of a build, estimated from the bytes that uv writes, installed packages and compiled files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psutil

ProgressCallback = Callable[[float, str], None]  #: a fraction from 0 to 1 that never decreases, and a short text

_START, _FETCHED, _INSTALLED, _COMPILED = 0.01, 0.60, 0.65, 0.99


def monotonic(progress: ProgressCallback) -> ProgressCallback:
    """Wrap a callback so that its fraction never decreases, even if a failed build is repeated."""
    highest = 0.0

    def report(fraction: float, text: str) -> None:
        nonlocal highest
        highest = max(highest, fraction)
        progress(highest, text)

    return report


class BuildMeter:
    """Measures one running `uv pip install --compile-bytecode`. The fraction never decreases.

    uv unpacks all packages into its cache, links them into the environment, then compiles. The bytes it writes are
    compared with `unpacked_bytes`. Cached packages are not written again, so that stage can end early.
    """

    def __init__(self, *, site: Path, packages: int, unpacked_bytes: int) -> None:
        self._site = site
        self._packages = packages
        self._unpacked_bytes = unpacked_bytes
        self._sources = 0  #: number of Python files to compile, once all are installed
        self._fraction = 0.0

    def look(self, pid: int) -> tuple[float, str]:
        """The completed fraction and the current step."""
        if (installed := self._installed()) == 0:
            return self._fetch_progress(_bytes_written(pid))
        if installed < self._packages and not self._sources:
            fraction = _FETCHED + (_INSTALLED - _FETCHED) * installed / self._packages
            return self._raise_to(fraction), f"Installing: {installed} of {self._packages} packages"
        compiled, sources = _count(self._site)
        self._sources = max(self._sources, sources, 1)
        fraction = _INSTALLED + (_COMPILED - _INSTALLED) * min(compiled / self._sources, 1)
        return self._raise_to(fraction), f"Compiling: {compiled:,} of {self._sources:,} files"

    def _fetch_progress(self, written: int) -> tuple[float, str]:
        part = min(written / self._unpacked_bytes, 1)
        shown = min(written, self._unpacked_bytes)  # uv writes more than it unpacks
        text = f"Fetching packages: {shown >> 20:,} MB of at most {self._unpacked_bytes >> 20:,} MB on disk"
        return self._raise_to(_START + (_FETCHED - _START) * part), text

    def _raise_to(self, fraction: float) -> float:
        self._fraction = max(self._fraction, fraction)
        return self._fraction

    def _installed(self) -> int:
        if not self._site.is_dir():
            return 0
        return sum(1 for entry in os.scandir(self._site) if entry.name.endswith(".dist-info"))


def _bytes_written(pid: int) -> int:
    try:
        return int(psutil.Process(pid).io_counters().write_chars)
    except psutil.Error:  # it has just exited
        return 0


def _count(site: Path) -> tuple[int, int]:
    """The number of compiled files and of source files below a folder."""
    compiled = sources = 0
    for _, _, files in os.walk(site):
        compiled += sum(name.endswith(".pyc") for name in files)
        sources += sum(name.endswith(".py") for name in files)
    return compiled, sources
