"""The sandbox of a package build: what it sees, and its own cache.

A build runs code of the package, and of all that it needs to be built. It writes its own folders alone, and what it
downloads is kept for no other build, so it can't change what another job imports.
"""

from __future__ import annotations

import os

from ..files import remove_folder
from . import view
from .cell import Cell
from .run import run_in_cell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_PRIVATE_FOLDER = ("private", "installer")  #: beside the sources, which are in the sandbox
_CACHE_FOLDER = "uv-cache"
#: Settings of the user for uv and pip: below HOME, and named by variables.
_SETTINGS = (".config/uv", ".config/pip", ".pip", ".netrc")
_SETTINGS_VARIABLES = ("UV_CONFIG_FILE", "PIP_CONFIG_FILE", "UV_FIND_LINKS", "PIP_FIND_LINKS", "SSL_CERT_FILE")


def run_build(spec: dict[str, Any], site: str, sources: str, run: Callable[[], int]) -> int:
    """Call `run` in the sandbox of a spec. It can write to `site` and `sources`. Returns the wait status."""
    env, private = dict(os.environ), os.path.join(os.path.dirname(sources), *_PRIVATE_FOLDER)
    sandbox = spec["sandbox"]
    shown = dict(
        sandbox,
        read_only=[
            *view.interpreter_paths(spec["python"]),
            view.node_folder(),
            spec["uv"],
            *(package["path"] for package in spec["packages"]),
            *_settings(env),
            *sandbox["read_only"],
        ],
        writable=[site, sources],
    )
    cell = Cell.of(shown, private, env.get("HOME", ""))
    if cell.limits is not None:
        cell.limits.open()
    temporary = cell.environment(env).get("TMPDIR", "/tmp")  # noqa: S108 - of the sandbox itself
    env.update(UV_CACHE_DIR=os.path.join(temporary, _CACHE_FOLDER), UV_LINK_MODE="copy")
    try:
        return run_in_cell(cell, run, env)
    finally:
        if cell.limits is not None:
            cell.limits.close()
        remove_folder(private)


def _settings(env: dict[str, str]) -> list[str]:
    home = env.get("HOME", "")
    paths = [os.path.join(home, name) for name in _SETTINGS] if home else []
    paths += [path for name in _SETTINGS_VARIABLES for path in env.get(name, "").split() if os.path.isabs(path)]
    return [path for path in paths if os.path.exists(path)]
