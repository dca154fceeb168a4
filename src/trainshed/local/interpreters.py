"""The Python for a program on this machine: that of a runtime of the state folder, or the one on the PATH."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from trainshed.config import Home, Settings, environment
from trainshed.domain.models.version import serving_runtime
from trainshed.errors import CannotProceedError
from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.find_links import find_links
from trainshed.runtimes.progress import ProgressCallback
from trainshed.runtimes.resolution import RuntimeChoice
from trainshed.runtimes.uv import find_uv

_QUERY_TIMEOUT_S = 60.0
_VERSION = """
from importlib import metadata
for name in ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly"):
    try:
        print(metadata.version(name))
        break
    except metadata.PackageNotFoundError:
        pass
"""


def on_path(path: str | None) -> Path:
    """Return the `python` that a shell with this PATH starts."""
    python = shutil.which("python", path=path)
    if python is None:
        raise CannotProceedError(
            "There is no `python` on the PATH. Activate an environment that has one, or choose a runtime with "
            "--runtime-version, such as --runtime-version 2.21."
        )
    return Path(python)


def runtime_python(home: Home, version: str, progress: ProgressCallback) -> tuple[Path, RuntimeChoice]:
    """Return the interpreter of the runtime for this version, and the runtime. Builds it if it is missing."""
    choice = _runtimes(home).resolve(version, None)
    return ensure_runtime(home, choice.name, progress), choice


def folder_of(home: Home, version: str) -> tuple[str, Path]:
    """Return the name of the runtime for this version, and its folder once it is built."""
    name = version if version in CATALOGUE else _runtimes(home).resolve(version, None).name
    return name, home.runtimes / CATALOGUE[name].key


def serving_choice(home: Home, version: str | None) -> RuntimeChoice:
    """Choose the runtime on which a server would serve a model of this version, the newest if None. Builds nothing."""
    request = serving_runtime(version or "", "")
    choice = _runtimes(home).resolve(request.runtime_version or None, None, what="model")
    return RuntimeChoice(choice.name, tuple(note for note in (request.note, *choice.notes) if note))


def ensure_runtime(home: Home, name: str, progress: ProgressCallback) -> Path:
    """Return the interpreter of a runtime. Builds it if it is missing."""
    return _runtimes(home).ensure(name, progress)


def _runtimes(home: Home) -> Runtimes:
    home.create()
    return Runtimes(home.runtimes, find_uv(), find_links=links_of(home))


def links_of(home: Home) -> tuple[str, ...]:
    """Return where packages are found besides the index, as the server of this state folder does."""
    settings = Settings.read(environment(), home.file_settings().get("server"))
    return find_links(settings.runtime_find_links, environment())


def tensorflow_version(python: Path) -> str | None:
    """Return the version of TensorFlow that this Python would import, without importing it.

    Returns None if it has none.
    """
    result = subprocess.run(
        [python, "-c", _VERSION], capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=False
    )
    version = result.stdout.strip()
    return version if result.returncode == 0 and re.match(r"\d+\.", version) else None
