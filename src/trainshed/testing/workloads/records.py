"""Files of JSON, one record a line, that another process may be writing to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def records(path: Path) -> list[Any]:
    """Those that are whole: one that is half there comes with a later look. None if there is no file yet."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
