"""Which Python runs a thing on this machine: a runtime of the state folder, or the one on the PATH."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from trainshed.config import Home
from trainshed.domain.models.version import serving_runtime
from trainshed.errors import CannotProceedError
from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.progress import ProgressCallback
from trainshed.runtimes.resolution import RuntimeChoice
from trainshed.runtimes.uv import find_uv

_ASK_S = 60.0
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
    """The `python` that a shell with this PATH would start."""
    found = shutil.which("python", path=path)
    if found is None:
        raise CannotProceedError(
            "There is no `python` on the PATH. Activate an environment that has one, or choose a runtime with "
            "--runtime-version, such as --runtime-version 2.21."
        )
    return Path(found)


def of_runtime(home: Home, version: str, progress: ProgressCallback) -> tuple[Path, RuntimeChoice]:
    """The interpreter of the runtime for this version, and which runtime that is. Built first if it is not there."""
    choice = _runtimes(home).resolve(version, None)
    return built(home, choice.name, progress), choice


def folder_of(home: Home, version: str) -> tuple[str, Path]:
    """The name of the runtime for this version, and the folder in which it is, once it is built."""
    name = version if version in CATALOGUE else _runtimes(home).resolve(version, None).name
    return name, home.runtimes / CATALOGUE[name].key


def chosen_to_serve(home: Home, version: str | None) -> RuntimeChoice:
    """The runtime that a server would host a model of this version on, the newest if None. Builds nothing."""
    wanted = serving_runtime(version or "", "")
    choice = _runtimes(home).resolve(wanted.runtime_version or None, None, what="model")
    return RuntimeChoice(choice.name, tuple(note for note in (wanted.note, *choice.notes) if note))


def built(home: Home, name: str, progress: ProgressCallback) -> Path:
    """The interpreter of a runtime, which is built first if it is not there."""
    return _runtimes(home).ensure(name, progress)


def _runtimes(home: Home) -> Runtimes:
    home.create()
    return Runtimes(home.runtimes, find_uv())


def tensorflow_version(python: Path) -> str | None:
    """The version of TensorFlow that this Python would import; None if it has none. Imports nothing of it."""
    asked = subprocess.run([python, "-c", _VERSION], capture_output=True, text=True, timeout=_ASK_S, check=False)
    found = asked.stdout.strip()
    return found if asked.returncode == 0 and re.match(r"\d+\.", found) else None
