"""The sandbox of a package build: what it sees, and its own cache.

A build runs code of the package, and of all that it needs to be built. It writes its own folders alone, and what it
downloads is kept for no other build, so it can't change what another job imports.
"""

from __future__ import annotations

import os
import re

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
_MACHINE_SETTINGS = ("/etc/uv", "/etc/xdg/uv", "/etc/pip.conf")
_SETTINGS_FILES = ("uv.toml", "pip.conf")  #: in those of them that are folders
_DEFAULT_HOSTS = ("pypi.org", "files.pythonhosted.org")
_ADDRESS = re.compile(r"\b(https?)://(?:[^/@\s\"']*@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?")
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
    network = sandbox.get("build_network")
    shown["network"] = network and dict(network, hosts=[*network["hosts"], *index_hosts(env)])
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


def index_hosts(env: dict[str, str]) -> list[tuple[str, int]]:
    """Hosts and ports of the package index: of all addresses in the variables and settings for it, and the default
    ones."""
    texts = [value for name, value in env.items() if name.startswith(("UV_", "PIP_")) and "://" in value]
    files = [*_settings(env), *_MACHINE_SETTINGS]
    for path in files:
        for found in [path] if os.path.isfile(path) else [os.path.join(path, name) for name in _SETTINGS_FILES]:
            try:
                with open(found, encoding="utf-8", errors="replace") as file:
                    texts.append(file.read())
            except OSError:
                continue  # there is none
    hosts = {(host, 443) for host in _DEFAULT_HOSTS}
    for scheme, host, port in _ADDRESS.findall("\n".join(texts)):
        hosts.add((host.strip("[]").lower(), int(port) if port else 443 if scheme == "https" else 80))
    return sorted(hosts)


def _settings(env: dict[str, str]) -> list[str]:
    home = env.get("HOME", "")
    paths = [os.path.join(home, name) for name in _SETTINGS] if home else []
    paths += [path for name in _SETTINGS_VARIABLES for path in env.get(name, "").split() if os.path.isabs(path)]
    return [path for path in paths if os.path.exists(path)]
