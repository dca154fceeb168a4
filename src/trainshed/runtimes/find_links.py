"""Where uv finds packages besides its index: folders and pages of the server's setting and of pip's configuration."""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainshed.errors import CannotProceedError


def find_links(setting: str, env: Mapping[str, str], *, prefix: Path = Path(sys.prefix)) -> tuple[str, ...]:
    """The folders and pages in `setting`, separated by commas, then those that pip is configured for.

    `prefix` is the environment that the server runs in, whose pip.conf counts. Those of UV_FIND_LINKS are left out,
    because uv reads it. Raises `CannotProceedError` if a file of pip's can't be read.
    """
    own = [part.strip() for part in setting.split(",") if part.strip()]
    return tuple(dict.fromkeys([*own, *_links_of_pip(env, prefix)]))


def _links_of_pip(env: Mapping[str, str], prefix: Path) -> list[str]:
    """pip takes the option from the most specific place that has it, and adds nothing from the others."""
    found = ""
    for file in _files_of_pip(env, prefix):
        found = _read(file) or found
    return (env.get("PIP_FIND_LINKS") or found).split()


def _files_of_pip(env: Mapping[str, str], prefix: Path) -> Iterator[Path]:
    """pip's configuration files, the most general first."""
    named = env.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return
    home = Path(env.get("HOME") or "/nonexistent")
    for folder in reversed((env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)):
        yield Path(folder, "pip", "pip.conf")
    yield Path("/etc/pip.conf")
    yield home / ".pip" / "pip.conf"
    yield Path(env.get("XDG_CONFIG_HOME") or home / ".config", "pip", "pip.conf")
    yield prefix / "pip.conf"
    if named:
        yield Path(named)


def _read(file: Path) -> str:
    """`find-links` of a configuration file, that of `pip install` first. Empty if it has none."""
    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError) as exc:
        raise CannotProceedError(
            f"The configuration of pip in {file} can't be read: {exc}. Correct it, or set PIP_CONFIG_FILE={os.devnull}."
        ) from exc
    return parser.get("install", "find-links", fallback="") or parser.get("global", "find-links", fallback="")
