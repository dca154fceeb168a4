"""Environments of suites in `.cache/conformance`: each is built once for its requirements, and kept."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from trainshed.runtimes.pythons import Pythons
from trainshed.runtimes.uv import find_uv, uv_command
from trainshed.testing.cache import CACHE
from trainshed.testing.conformance.suites import Installed

ROOT = CACHE / "conformance"


def python_environment(
    folder: Path, *, python: str, packages: Sequence[str], shown: Sequence[str], options: Sequence[str] = ()
) -> Installed:
    """Install `packages` for a version of Python. `shown` are the distributions whose versions the page has.

    Raises `CalledProcessError`, with uv's words on stderr, if an index has no such packages, and `RuntimeError` if
    there is no such Python.
    """
    wanted = json.dumps([python, list(packages), list(options)])
    environment = folder / hashlib.sha256(wanted.encode()).hexdigest()[:12]
    program = environment / "bin" / "python"
    if not (environment / "complete").exists():
        shutil.rmtree(environment, ignore_errors=True)
        interpreter = Pythons(find_uv()).get(python)
        if interpreter is None:
            raise RuntimeError(f"This machine has no Python {python}, and uv can't fetch one.")
        _uv("venv", "--quiet", "--python", interpreter, environment)
        _uv("pip", "install", "--quiet", "--python", program, *options, *packages)
        (environment / "complete").touch()
    versions = installed_versions(program)
    return Installed(program, {"python": python} | {name: versions[name] for name in shown})


def installed_versions(program: Path) -> dict[str, str]:
    """Return the version of each distribution in the environment of a Python."""
    listed = _uv("pip", "list", "--python", program, "--format", "json")
    return {each["name"]: each["version"] for each in json.loads(listed)}


def _uv(*words: str | Path) -> str:
    return subprocess.run(uv_command(find_uv(), *words), check=True, stdout=subprocess.PIPE, text=True).stdout
