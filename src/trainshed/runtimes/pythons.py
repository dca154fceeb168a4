"""Interpreters on this machine, and those that uv can fetch."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from trainshed.runtimes.uv import uv_command

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_ASK_S = 15.0  #: for a question that uv answers from this machine alone
_FETCH_S = 120.0
_FETCHING = {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "15", "UV_HTTP_CONNECT_TIMEOUT": "3"}


class Pythons:
    """Finds interpreters by version. Answers are kept for as long as this object lives. Safe to share by threads:
    those who ask about one version never wait for another, nor for a fetch.
    """

    def __init__(self, uv: Path) -> None:
        self._uv = uv
        self._asking: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._fetching: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._found: dict[str, Path | None] = {}
        self._can_fetch: dict[str, bool] = {}

    def can_be_had(self, version: str) -> bool:
        """Whether there is one here, or uv offers to fetch it and has not failed to. Fetches nothing."""
        with self._asking[version]:
            if self._find(version):
                return True
            if version not in self._can_fetch:
                offer = self._ask("python", "list", "--only-downloads", "--no-config", version)
                self._can_fetch[version] = bool(offer)
            return self._can_fetch[version]

    def get(self, version: str) -> Path | None:
        """The interpreter, fetched by uv if need be; that may take a minute. None if it can't be had."""
        with self._fetching[version]:
            if not self.can_be_had(version):
                return None
            with self._asking[version]:
                if found := self._find(version):
                    return found
            self._ask("python", "install", "--no-config", version, settings=_FETCHING, timeout_s=_FETCH_S)
            with self._asking[version]:
                self._found.pop(version, None)
                self._can_fetch[version] = (found := self._find(version)) is not None
                return found

    def _find(self, version: str) -> Path | None:
        known = self._found.get(version)
        if version not in self._found or (known and not known.exists()):
            self._found[version] = next(self._candidates(version), None)
        return self._found[version]

    def _candidates(self, version: str) -> Iterator[Path]:
        own = Path(sys.base_prefix, "bin", f"python{version}")
        if version == f"{sys.version_info.major}.{sys.version_info.minor}" and own.exists():
            yield own
        question = ("python", "find", "--system", "--no-project", "--no-config", "--no-python-downloads", version)
        if answer := self._ask(*question):
            yield Path(answer)
        # A version switcher's shim on the PATH can answer for a Python and then not run, and uv gives up at the first
        # such: ask again among real ones only.
        places = [str(folder) for folder in _pyenv_folders(version)]
        if answer := self._ask(*question, settings={"PATH": ":".join([*places, _SYSTEM_PATH])}):
            yield Path(answer)

    def _ask(self, *arguments: str, settings: dict[str, str] | None = None, timeout_s: float = _ASK_S) -> str:
        """What uv prints, or nothing if it fails or takes too long: then the interpreter can't be had that way."""
        command = uv_command(self._uv, *arguments, settings=settings)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_s, cwd="/", stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""


def _pyenv_folders(version: str) -> list[Path]:
    """The `bin` folders of pyenv's installations of this version, newest first."""
    folders = (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin")
    return sorted(folders, key=lambda folder: [int(n) for n in folder.parent.name.split(".") if n.isdigit()])[::-1]
