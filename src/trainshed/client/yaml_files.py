"""Files that users write in YAML or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainshed.errors import InvalidArgumentError


def read_yaml(path: Path) -> tuple[Any, Any]:
    """What a file holds, twice: with numbers as numbers, and with every value as the text that it was written as.

    1.10 is a version, and not the number 1.1: which of the two is meant depends on the field.
    """
    import yaml

    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidArgumentError(f"Failed to load YAML from [{path}]: Unable to read file [{path}]: {exc}") from exc
    try:
        return yaml.safe_load(text), yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  BaseLoader makes texts only
    except yaml.YAMLError as exc:
        raise InvalidArgumentError(f"Failed to parse YAML from [{path}]: {exc}") from exc
