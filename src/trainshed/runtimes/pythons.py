"""Interpreters on this machine, and those that uv can download."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from trainshed.runtimes.uv import uv_command

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_QUERY_TIMEOUT_S = 15.0  #: for queries that uv answers locally
_DOWNLOAD_TIMEOUT_S = 120.0
_DOWNLOAD_SETTINGS = {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "15", "UV_HTTP_CONNECT_TIMEOUT": "3"}


class Pythons:
    """Finds interpreters by version. Results are cached for the lifetime of the object. Thread-safe.

    A query for one version never waits for another version, nor for a download.
    """

    def __init__(self, uv: Path) -> None:
        self._uv = uv
        self._query_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._download_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._interpreters: dict[str, Path | None] = {}
        self._downloadable: dict[str, bool] = {}

    def can_be_had(self, version: str) -> bool:
        """Whether it is installed, or uv can download it and has not failed to. Downloads nothing."""
        with self._query_locks[version]:
            if self._find(version):
                return True
            if version not in self._downloadable:
                offer = self._run_uv("python", "list", "--only-downloads", "--no-config", version)
                self._downloadable[version] = bool(offer)
            return self._downloadable[version]

    def get(self, version: str) -> Path | None:
        """The interpreter, downloaded by uv if necessary, which can take a minute.

        Returns None if it is unavailable.
        """
        with self._download_locks[version]:
            if not self.can_be_had(version):
                return None
            with self._query_locks[version]:
                if interpreter := self._find(version):
                    return interpreter
            self._run_uv(
                "python", "install", "--no-config", version, settings=_DOWNLOAD_SETTINGS, timeout_s=_DOWNLOAD_TIMEOUT_S
            )
            with self._query_locks[version]:
                self._interpreters.pop(version, None)
                self._downloadable[version] = (interpreter := self._find(version)) is not None
                return interpreter

    def _find(self, version: str) -> Path | None:
        cached = self._interpreters.get(version)
        if version not in self._interpreters or (cached and not cached.exists()):
            self._interpreters[version] = next(self._candidates(version), None)
        return self._interpreters[version]

    def _candidates(self, version: str) -> Iterator[Path]:
        own = Path(sys.base_prefix, "bin", f"python{version}")
        if version == f"{sys.version_info.major}.{sys.version_info.minor}" and own.exists():
            yield own
        query = ("python", "find", "--system", "--no-project", "--no-config", "--no-python-downloads", version)
        if output := self._run_uv(*query):
            yield Path(output)
        # A version manager's shim on the PATH can claim a Python that it cannot run, and uv stops at the first failure.
        # Query again with real interpreters only.
        folders = [str(folder) for folder in _pyenv_folders(version)]
        if output := self._run_uv(*query, settings={"PATH": ":".join([*folders, _SYSTEM_PATH])}):
            yield Path(output)

    def _run_uv(
        self, *arguments: str, settings: dict[str, str] | None = None, timeout_s: float = _QUERY_TIMEOUT_S
    ) -> str:
        """The output of uv.

        Returns an empty string if it fails or times out, which means that the interpreter is unavailable.
        """
        command = uv_command(self._uv, *arguments, settings=settings)
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_s, cwd="/", stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            return ""
        return result.stdout.strip() if result.returncode == 0 else ""


def _pyenv_folders(version: str) -> list[Path]:
    """The `bin` folders of pyenv's installations of this version, newest first."""
    folders = (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin")
    return sorted(folders, key=lambda folder: [int(n) for n in folder.parent.name.split(".") if n.isdigit()])[::-1]
