"""Writes the secrets of an attempt or a host into a folder: files, and what its supervisor or reaper reads once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from trainshed.domain.access.secrets import Delivery, masked_parts, short_lines, variable_of
from trainshed.node.files import remove_folder, write_file

SECRETS_FILE = "secrets.json"  #: in the folder; it is read once and removed
SECRETS_FOLDER = "secrets"  #: in the folder, until the process ends
FOLDER_VARIABLE = "TRAINSHED_SECRETS"  #: names the folder of files to user code

Values = Callable[[str, Iterable[str]], Mapping[str, str]]  #: secrets of a project by their names


def write_secrets(
    folder: Path, wanted: Mapping[str, Delivery], values: Mapping[str, str], *, mode: int = 0o600
) -> Path:
    """Write these secrets. Returns the folder of those that are files, which have this mode."""
    files = folder / SECRETS_FOLDER
    files.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, how in wanted.items():
        if how is Delivery.FILE:
            write_file(files / name, values[name].encode())
            (files / name).chmod(mode)
    body = {
        "variables": {variable_of(name): values[name] for name, how in wanted.items() if how is Delivery.VARIABLE},
        "masked": [part for value in values.values() for part in masked_parts(value)],
        "short": [line for value in values.values() for line in short_lines(value)],
    }
    write_file(folder / SECRETS_FILE, json.dumps(body).encode())
    return files


def remove_secrets(folder: Path) -> None:
    """Remove what `write_secrets` wrote. Idempotent. Raises `OSError`."""
    (folder / SECRETS_FILE).unlink(missing_ok=True)
    remove_folder(str(folder / SECRETS_FOLDER))
